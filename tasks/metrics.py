"""What is measured of a model, in NumPy and float64, the same for every backend (spec annex/tasks.md, "Metrics").

Sums over examples are added up batch by batch; dividing comes last.
"""

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np

import ponder_ref
from ponder_ref.base import Predicted
from ponder_ref.criteria import binary_cross_entropy, cross_entropy
from ponder_ref.halting import log_sigmoid
from ponder_ref.priors import named_log_prior
from ponder_ref.runtime.settings import Halting
from ponder_ref.runtime.train import TRAIN_KEYS


def sigmoid(z: np.ndarray) -> np.ndarray:
    """σ(z) in float64, accurate for any finite z."""
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, e) / (1 + e)


def score_answers(y_hat: np.ndarray, targets: np.ndarray, output: str) -> tuple[np.ndarray, np.ndarray]:
    """(correct, loss), both `[..., B]` in float64, for targets `[B, ...answers]`: right if all answers are, mean loss.

    Logits are `[..., B, ...answers]` ("binary"), with the classes as last axis otherwise ("classes").
    """
    y_hat = np.asarray(y_hat, np.float64)
    answers = tuple(range(1 - targets.ndim, 0))
    if output == "binary":
        targets = np.broadcast_to(targets, y_hat.shape)
        correct, loss = (y_hat > 0) == (targets == 1), binary_cross_entropy(y_hat, targets.astype(np.float64))
    else:
        targets = np.broadcast_to(targets, y_hat.shape[:-1])
        correct, loss = y_hat.argmax(axis=-1) == targets, cross_entropy(y_hat, targets)
    return correct.all(axis=answers).astype(np.float64), loss.mean(axis=answers) if answers else loss


@dataclasses.dataclass(frozen=True)
class Scored:
    """One batch, scored: per example `[B]`, except `p` and `step_correct` `[N, B]`."""

    accuracy: np.ndarray  # exact expectation over the halting step
    steps: np.ndarray  # likewise
    sampled_accuracy: np.ndarray  # mean over the draws
    sampled_steps: np.ndarray
    median_accuracy: np.ndarray  # at the example's median step
    median_steps: np.ndarray
    loss_rec: np.ndarray
    loss_reg: np.ndarray
    p: np.ndarray  # chance of answering with step n
    step_correct: np.ndarray  # whether step n's own answer is right


def median_steps(halt_logits: np.ndarray) -> np.ndarray:
    """The first step by which half of an example's halting is done, else N; integers `[B]` (spec I2, q = 1/2)."""
    done = -np.expm1(np.cumsum(log_sigmoid(-halt_logits), axis=0)) >= 0.5
    done[-1] = True  # as in sampling, whatever the run's remainder is
    return done.argmax(axis=0) + 1


class Scoring(NamedTuple):
    """How answers are scored: the halting of the run, its kind of output, and the seed and number of sampled steps."""

    halting: Halting
    output: str
    seed: int
    draws: int = 1


def score_ponder(y_hat, halt_logits, targets, ids, by: Scoring) -> Scored:
    """PonderNet: Σₙ pₙ·(·) exactly, with steps drawn by (seed, example id, draw), and at the median step.

    Spec H7, L1 and L2; S4; I2.
    """
    correct, losses = score_answers(y_hat, targets, by.output)
    z = np.asarray(halt_logits, np.float64)
    log_p = ponder_ref.log_halting(z, remainder=by.halting.remainder)
    prior = named_log_prior(by.halting.prior, by.halting.lambda_p, len(z), dtype="float64")
    lambdas = sigmoid(z)
    steps = np.stack([ponder_ref.draw_steps(lambdas, by.seed, ids, draw=draw) for draw in range(by.draws)])
    median = median_steps(z)
    return Scored(
        accuracy=ponder_ref.expected_loss(log_p, correct),
        steps=ponder_ref.expected_steps(log_p),
        sampled_accuracy=np.take_along_axis(correct, steps - 1, axis=0).mean(axis=0),
        sampled_steps=steps.mean(axis=0),
        median_accuracy=np.take_along_axis(correct, median[None] - 1, axis=0)[0],
        median_steps=median.astype(np.float64),
        loss_rec=ponder_ref.expected_loss(log_p, losses),
        loss_reg=ponder_ref.kl_divergence(log_p, prior),
        p=np.exp(log_p),
        step_correct=correct,
    )


def one_answer(accuracy, steps, loss_rec, loss_reg, p, step_correct) -> Scored:
    """Of a method that answers once, whose expected, sampled and median numbers are the same."""
    return Scored(
        accuracy=accuracy,
        steps=steps,
        sampled_accuracy=accuracy,
        sampled_steps=steps,
        median_accuracy=accuracy,
        median_steps=steps,
        loss_rec=loss_rec,
        loss_reg=loss_reg,
        p=p,
        step_correct=step_correct,
    )


def score_act(y_hat, halt_logits, targets, ids, by: Scoring) -> Scored:
    """ACT: the weighted output after each example's own number of steps; nothing is drawn (spec A1 to A4)."""
    halting = ponder_ref.act_halting(sigmoid(np.asarray(halt_logits, np.float64)), epsilon=by.halting.act_epsilon)
    mean = ponder_ref.act_output(halting.weights, np.asarray(y_hat, np.float64))
    correct, loss = score_answers(mean, targets, by.output)
    steps = halting.steps.astype(np.float64)
    stops = (np.arange(1, len(y_hat) + 1)[:, None] == halting.steps).astype(np.float64)
    cost = ponder_ref.act_cost(halting.steps, halting.remainder, tau=1.0)
    return one_answer(correct, steps, loss, cost, stops, score_answers(y_hat, targets, by.output)[0])


def score_fixed(y_hat, halt_logits, targets, ids, by: Scoring) -> Scored:
    """The answer of the last step."""
    correct, losses = score_answers(y_hat, targets, by.output)
    steps = np.full(correct.shape[1], float(len(correct)))
    p = np.zeros_like(correct)
    p[-1] = 1
    last, zero = correct[-1], np.zeros(correct.shape[1])
    return one_answer(last, steps, losses[-1], zero, p, correct)


FIXED = {"repeat": score_fixed, "once": score_fixed}
SCORES = {"ponder": score_ponder, **FIXED}  # every other method is a kind of ACT


def price(halting: Halting) -> float:
    """The weight of `loss_reg` in the loss."""
    return {"ponder": halting.beta, **dict.fromkeys(FIXED, 0.0)}.get(halting.method, halting.tau)


class Tally:
    """Sums over the examples of an evaluation, in all and for each group."""

    def __init__(self, halting: Halting, output: str, seed: int, draws: int = 1, shares: bool = False):
        self.by, self.shares = Scoring(halting, output, seed, draws), shares
        self.score = SCORES.get(halting.method, score_act)
        self.count = 0
        self.squares = 0.0  # of the accuracies, for their standard error
        self.sums: dict[str, Any] = {}
        self.groups: dict[int, np.ndarray] = {}  # group -> count, then accuracy and steps, expected and median
        self.group_shares: dict[int, np.ndarray] = {}  # group -> sum of p `[N]`

    def add(self, y_hat, halt_logits, targets, ids, groups) -> None:
        """Adds a batch: y_hat `[N, B, ...]`, halt_logits `[N, B]`, targets `[B, ...answers]`, the rest `[B]`."""
        scored = self.score(y_hat, halt_logits, targets, ids, self.by)
        for field in dataclasses.fields(scored):
            self.sums[field.name] = self.sums.get(field.name, 0.0) + getattr(scored, field.name).sum(axis=-1)
        self.squares += float((scored.accuracy**2).sum())
        self.count += len(scored.accuracy)
        for group in np.unique(groups).tolist():
            of = np.asarray(groups) == group
            seen = (scored.accuracy, scored.steps, scored.median_accuracy, scored.median_steps)
            row = np.array([of.sum(), *(values[of].sum() for values in seen)])
            self.groups[group] = self.groups.get(group, 0.0) + row
            if self.shares:
                self.group_shares[group] = self.group_shares.get(group, 0.0) + scored.p[:, of].sum(axis=-1)

    def result(self) -> dict[str, Any]:
        """Means over the examples as plain values; `levels` has a row [group, count, accuracy, steps] for each.

        `median_levels` has the same at the median step. With shares, `level_shares` has the rows
        [group, p₁, p₂, ...] of the mean halting distribution.
        """
        shares = [
            [group, *(round(float(x), 6) for x in total / self.groups[group][0])]
            for group, total in sorted(self.group_shares.items())
        ]

        def row(group: int, n: float, right: float, steps: float) -> list[float]:
            return [group, int(n), round(right / n, 6), round(steps / n, 6)]

        rows = sorted((group, sums.tolist()) for group, sums in self.groups.items())
        mean = {name: total / self.count for name, total in self.sums.items()}
        # An example's accuracy is an expectation, and seldom 0 or 1: its variance is below that of a coin.
        variance = max(self.squares / self.count - float(mean["accuracy"]) ** 2, 0.0)
        return {
            "accuracy": float(mean["accuracy"]),
            "accuracy_error": (variance / self.count) ** 0.5,
            "sampled_accuracy": float(mean["sampled_accuracy"]),
            "expected_steps": float(mean["steps"]),
            "sampled_steps": float(mean["sampled_steps"]),
            "median_accuracy": float(mean["median_accuracy"]),
            "median_steps": float(mean["median_steps"]),
            "loss": float(mean["loss_rec"] + price(self.by.halting) * mean["loss_reg"]),
            "loss_rec": float(mean["loss_rec"]),
            "loss_reg": float(mean["loss_reg"]),
            "examples": self.count,
            "draws": self.by.draws if self.by.halting.method == "ponder" else 0,
            "step_accuracy": [round(float(x), 6) for x in mean["step_correct"]],
            "step_share": [round(float(x), 6) for x in mean["p"]],
            "levels": [row(group, n, *expected) for group, (n, *expected, _, _) in rows],
            "median_levels": [row(group, n, *median) for group, (n, _, _, *median) in rows],
            **({"level_shares": shares} if self.shares else {}),
        }


class Exits:
    """Sums over answers that were given under an exit policy, by `predict`: what early exit really did."""

    def __init__(self, output: str, **policy: Any):
        self.output, self.policy = output, policy
        self.count, self.rows, self.right, self.steps = 0, 0, 0.0, 0.0

    def add(self, found: Predicted, targets: np.ndarray) -> None:
        correct, _ = score_answers(found.y_hat, targets, self.output)
        self.count += len(targets)
        self.rows += int(found.rows)
        self.right += float(correct.sum())
        self.steps += float(np.sum(found.steps))

    def result(self) -> dict[str, Any]:
        """Policy, accuracy, mean steps, and the rows that the step network was given."""
        means = {"accuracy": self.right / self.count, "steps": self.steps / self.count}
        return {"name": self.policy["policy"], **means, "rows": self.rows} | (
            {"q": self.policy["q"]} if "q" in self.policy else {}
        )


def bands(rows: list[list[float]]) -> list[tuple[str, int, float, float]]:
    """Rows (label, count, accuracy, steps) with groups joined in bands 1-4, 5-8, 9-16, 17-32, ...

    A label has the least and the largest group that are there.
    """
    found = []
    for _, band in itertools.groupby(sorted(rows), lambda row: max(4, 1 << (int(row[0]) - 1).bit_length())):
        groups, counts, *values = zip(*band, strict=True)
        label = "-".join(dict.fromkeys(str(int(group)) for group in (groups[0], groups[-1])))
        means = (sum(n * x for n, x in zip(counts, column, strict=True)) / sum(counts) for column in values)
        found.append((label, int(sum(counts)), *means))
    return found


class Window:
    """Sums of the training metrics since the last logged update, and the forward passes since the first one.

    Part of a checkpoint, so that a resumed run logs what the unbroken one would have.
    """

    def __init__(self, sums: dict[str, float] | None = None, count: int = 0, forward_passes: int = 0):
        self.sums = {name: sums[name] if sums else 0.0 for name in TRAIN_KEYS}
        self.count, self.forward_passes = count, forward_passes

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Adds the metrics of a chunk, arrays `[K]`."""
        for name in TRAIN_KEYS:
            # One by one, so that the sum does not depend on how the updates were cut into chunks.
            for value in np.asarray(metrics[name], np.float64).tolist():
                self.sums[name] += value
        self.count += len(metrics["loss"])
        self.forward_passes += int(np.sum(metrics["steps_run"]))

    def close(self) -> dict[str, float]:
        """Means of the window and the total of forward passes; a new window begins."""
        means = {name: total / self.count for name, total in self.sums.items()}
        self.sums, self.count = dict.fromkeys(TRAIN_KEYS, 0.0), 0
        return {**means, "forward_passes": self.forward_passes}

    def to_json(self) -> dict[str, Any]:
        return {"sums": self.sums, "count": self.count, "forward_passes": self.forward_passes}
