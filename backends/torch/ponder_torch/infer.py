"""Batched inference with a real exit: rows that halt leave, waiting examples take their slots (spec I1 to I7)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ponder_ref import checks
from ponder_ref.base import ExitRule, Predicted, Trace
from ponder_ref.trees import check_alike, leaves_of, map_tree
from ponder_torch.arrays import as_float, expand_right
from ponder_torch.exits import POLICIES, Exits
from ponder_torch.halting import expected_prediction, log_halting

# As many examples side by side as have 8 MB of input and state: enough work for a call to be worth its overhead, little
# enough for the caches. Measured by `python -m benchmarks inference`.
AUTO_BYTES = 8 * 2**20
LEAST_SLOTS = 16
# A step of small rows costs little more than to move them: they are cut out only when an eighth of them have left.
SMALL_ROW, LAZY_SHARE = 4096, 0.125


def choose_slots(tree: Any, count: int) -> tuple[int, float]:
    """How many slots suit examples of this size, and which share of them may be idle; no answer depends on it (I5)."""
    row = sum(leaf.numel() * leaf.element_size() for leaf in leaves_of(tree)) / count
    slots = min(count, max(LEAST_SLOTS, int(AUTO_BYTES / max(row, 1))))
    return slots, LAZY_SHARE if row < SMALL_ROW else 0.0


def _cast(tree: Any, like: Any) -> Any:
    """A tree in the dtypes of another."""
    return map_tree(lambda leaf, other: leaf.to(other.dtype), tree, like)


def _merged(old: torch.Tensor, kept: torch.Tensor | None, new: torch.Tensor | None) -> torch.Tensor:
    """The kept rows of a leaf (all, if None), with new ones behind."""
    held = old if kept is None else old.index_select(0, kept)
    if new is None:
        return held
    if held.dtype != new.dtype:  # to join them would round some examples and not others
        raise ValueError(f"state must keep its dtype: {checks.dtype_name(new)} became {checks.dtype_name(held)}")
    return torch.cat([held, new])


class Exited:
    """Examples that have just left: where they belong, their answers `[rows, ...]` and steps."""

    def __init__(self, places: np.ndarray, y_hat: torch.Tensor, steps: np.ndarray):
        self.places, self.y_hat, self.steps = places, y_hat, steps


class Slots:
    """The examples being computed: their rows of input and state, and what the exit policy remembers of them.

    `record(n, places, y_hat, halt_logit)` sees every step that is taken. Rows that have left are cut out at once, or,
    with an `idle_share`, when more than that share of the rows have left.
    """

    def __init__(self, step: Callable, rule: ExitRule, record: Callable | None = None, idle_share: float = 0.0):
        self.step, self.exits, self.record, self.idle_share = step, Exits(rule), record, idle_share
        self.places, self.idle = np.zeros(0, np.int64), np.zeros(0, bool)
        self.tree: Any = None  # (x, state)
        self.like: Any = None  # empty tensors in the dtypes of the step's states, to which every h₀ is cast (I5)
        self.blend: torch.Tensor | None = None  # Σ pₙŷₙ so far, for "expected"
        self.kept: np.ndarray | None = None  # rows that go on, if others are to be cut out
        self.rows = 0

    def __len__(self) -> int:
        return len(self.idle) - int(self.idle.sum())

    def full(self) -> bool:
        """Whether idle rows are still carried along, so that nothing is to be added yet."""
        return self.kept is None and bool(self.idle.any())

    @torch.no_grad()
    def change(self, tree: Any = None, ids: Any = (), places: Any = (), prepared: np.ndarray | None = None) -> None:
        """Takes out the rows that have left and puts new examples behind the others: (x, state), ids and places."""
        if self.kept is None and not len(ids):
            return
        going_on = len(self)
        if tree is not None and self.like is not None:
            tree = tree[0], _cast(tree[1], self.like)
        kept = np.arange(len(self.places)) if self.kept is None else self.kept
        self.exits.change(kept, np.asarray(ids, np.int64), prepared)
        self.places = np.concatenate([self.places[kept], np.asarray(places, np.int64)])
        self.idle = np.zeros(len(self.places), bool)
        if not going_on:
            self.tree, self.blend = tree, None
        else:
            device = leaves_of(self.tree)[0].device
            index = None if self.kept is None else torch.from_numpy(kept).to(device)
            if tree is None:
                self.tree = map_tree(lambda old: _merged(old, index, None), self.tree)
            else:
                self.tree = map_tree(lambda old, new: _merged(old, index, new), self.tree, tree)
            if self.blend is not None:
                fresh = self.blend.new_zeros(len(ids), *self.blend.shape[1:])
                self.blend = _merged(self.blend, index, fresh)
        self.kept = None

    @torch.no_grad()
    def advance(self) -> Exited | None:
        """One step of every example; those that leave by it."""
        x, state = self.tree
        count = len(self.places)
        given = map_tree(torch.clone, state) if self.like is None else state  # a step may work in place
        y_hat, after, z = self._step(x, given)
        if self.like is None:
            self.like = map_tree(lambda leaf: leaf.new_empty(0), after)
            if any(a.dtype != b.dtype for a, b in zip(leaves_of(state), leaves_of(after), strict=True)):
                # The first step once more, from h₀ in the step's dtypes; the first try is not counted among the rows.
                y_hat, after, z = self._step(x, _cast(state, after))
        checks.check_answer(y_hat, z, count)
        self.tree, self.rows = (x, after), self.rows + count
        halts, blending = self.exits.decide(z)
        if self.record is not None:
            self.record(self.exits.n, self.places, y_hat, z)
        if blending is not None:
            y_hat = self._blended(y_hat, blending)
        halts &= ~self.idle
        if not halts.any():
            return None
        self.idle = self.idle | halts
        done = np.flatnonzero(halts)
        if self.idle.mean() > self.idle_share or self.idle.all():
            self.kept = np.flatnonzero(~self.idle)
        answers = y_hat if len(done) == count else y_hat.index_select(0, torch.from_numpy(done).to(y_hat.device))
        return Exited(self.places[done], answers, self.exits.n[done])

    def _step(self, x: Any, state: Any) -> tuple[torch.Tensor, Any, torch.Tensor]:
        y_hat, after, z = checks.step_result(self.step(state) if x is None else self.step(x, state))
        check_alike(state, after)
        return y_hat, after, z

    def _blended(self, y_hat: torch.Tensor, blending) -> torch.Tensor:
        """Σ pₙŷₙ with this step, `[rows, ...]`; what is returned is divided by the mass."""
        (y_hat,) = as_float(y_hat)
        scale, weight, mass = (
            expand_right(torch.from_numpy(part).to(y_hat.device, y_hat.dtype), y_hat.ndim) for part in blending
        )
        # Select, so that a step of no weight has no influence whatever it predicts.
        share = torch.where(weight == 0, 0.0, weight * y_hat)
        self.blend = share if self.blend is None else scale * self.blend + share
        return self.blend / mass


class _Answers:
    """Answers, steps and a trace, put where their examples stood."""

    def __init__(self, count: int, max_steps: int):
        self.count, self.max_steps = count, max_steps
        self.y_hat: Any = None
        self.steps = np.zeros(count, np.int64)
        self.traced: Any = None

    def put(self, left: Exited) -> None:
        if self.y_hat is None:
            self.y_hat = left.y_hat.new_empty(self.count, *left.y_hat.shape[1:])
        self.y_hat[torch.from_numpy(left.places).to(left.y_hat.device)] = left.y_hat
        self.steps[left.places] = left.steps

    def record(self, n: np.ndarray, places: np.ndarray, y_hat: torch.Tensor, z: torch.Tensor) -> None:
        if self.traced is None:
            shape = (self.max_steps, self.count)
            self.traced = Trace(y_hat.new_zeros(*shape, *y_hat.shape[1:]), z.new_zeros(*shape))
        at = tuple(torch.from_numpy(part).to(z.device) for part in (n - 1, places))
        self.traced.y_hat[at], self.traced.halt_logits[at] = y_hat, z


@torch.no_grad()
def predict(
    step: Callable,
    x: Any,
    state: Any,
    *,
    max_steps: int,
    policy: str = "sample",
    seed: int = 0,
    example_ids: torch.Tensor | None = None,
    draw: int = 0,
    q: float = 0.5,
    epsilon: float = 0.05,
    min_steps: int = 1,
    remainder: str = "last",
    slots: int | None = None,
    trace: bool = False,
) -> Predicted:
    """The answer of each example after as many steps as it needs; cost follows the sum of the steps.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, or `step(h)` if x is None (M1).
      x, state: the input and h₀, trees of tensors whose first axis is the examples'.
      max_steps: N, at which every example leaves.
      policy: "sample" (I1), "quantile" (I2), "fixed" (I3), "expected" (I4).
      seed, example_ids, draw: of the uniforms, for "sample"; ids are 0, 1, 2, … if None.
      q: for "quantile".
      epsilon, min_steps, remainder: for "expected".
      slots: how many examples to compute side by side; by their size if None, and small ones then leave by eighths.
      trace: whether to keep every step (I7).

    Returns:
      Predicted, in the order of the examples. `rows` is the sum of the steps, if `slots` are given.
    """
    rule = ExitRule(policy, max_steps, seed, draw, q, epsilon, min_steps, remainder)
    checks.check_exit(rule, tuple(POLICIES))
    example_ids = None if example_ids is None else torch.as_tensor(example_ids)
    named = [*(("x", leaf) for leaf in leaves_of(x)), *(("state", leaf) for leaf in leaves_of(state))]
    count = checks.check_examples(named, example_ids, slots)
    ids = np.arange(count) if example_ids is None else example_ids.cpu().numpy().astype(np.int64)
    width, idle_share = choose_slots((x, state), count) if slots is None else (slots, 0.0)
    prepared = POLICIES[policy].prepare(rule, ids)
    answers = _Answers(count, max_steps)
    engine = Slots(step, rule, answers.record, 0.0) if trace else Slots(step, rule, None, idle_share)
    waiting = 0
    while waiting < count or len(engine):
        stop = min(count, waiting + width - len(engine))
        if stop > waiting and not engine.full():
            part = slice(waiting, stop)
            new = map_tree(lambda leaf, part=part: leaf[part], (x, state))
            engine.change(new, ids[part], np.arange(waiting, stop), None if prepared is None else prepared[part])
            waiting = stop
        else:
            engine.change()
        left = engine.advance()
        if left is not None:
            answers.put(left)
    steps = torch.from_numpy(answers.steps).to(answers.y_hat.device)
    result = Predicted(answers.y_hat, steps, engine.rows)
    if not trace:
        return result
    log_p = log_halting(answers.traced.halt_logits, remainder=remainder, lengths=steps)
    expected = expected_prediction(log_p, answers.traced.y_hat)
    return result._replace(log_p=log_p, expected=expected, trace=answers.traced)
