"""Pondering: a step network run up to N times, and the loss to train it by (spec M1 to M7; paper §2.1 to §2.4)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.act import act_cost, act_output, act_weights
from ponder_ref.base import HaltRule, Pondered, PonderLoss
from ponder_ref.halting import as_float, log_halting, log_sigmoid
from ponder_ref.losses import ponder_loss, weighted_mean
from ponder_ref.trees import map_tree


def halt_rule(method: str, epsilon: float | None, act_epsilon: float, min_steps: int) -> HaltRule | None:
    """The rule by which a method leaves early; None if it takes all steps."""
    if method == "act":
        return HaltRule(
            lambda z: np.exp(log_sigmoid(z)), lambda total: total >= 1 - act_epsilon, 1
        )  # A1; no minimum for ACT
    if epsilon is not None:
        return HaltRule(lambda z: log_sigmoid(-z), lambda total: total < np.log(epsilon), min_steps)  # H6
    return None


def freeze(halted: np.ndarray, old: Any, new: Any) -> Any:
    """The old state for examples that have halted, the new one for the others, leaf by leaf (M2)."""

    def leaf(before, after):
        before, after = np.asarray(before), np.asarray(after)
        if after.shape[: halted.ndim] != halted.shape:
            return after  # shared by the batch
        return np.where(halted.reshape((*halted.shape, *[1] * (after.ndim - halted.ndim))), before, after)

    return map_tree(leaf, old, new)


def ponder(
    step: Callable,
    x: Any,
    state: Any,
    *,
    max_steps: int,
    method: str = "ponder",
    min_steps: int = 1,
    epsilon: float | None = None,
    remainder: str = "last",
    act_epsilon: float = 0.01,
    readout: Callable | None = None,
) -> Pondered:
    """Runs a step network and gives its predictions with their halting distribution.

        ŷₙ, hₙ, zₙ = s(x, hₙ₋₁)   for n = 1..N                                   (M1; paper §2.1)

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, or `step(h)` if x is None; with `readout`, `step(x, h) -> h`.
      x, state: the input and h₀, trees of arrays; x may be anything that step understands.
      max_steps: N.
      method: "ponder"; "repeat" (N steps, the last answers), "once" (one step), "act" (M3, M4).
      min_steps, epsilon: leave when each example has halted but for ε (H6), after min_steps at the earliest (M2).
      remainder: what becomes of the mass left after N (H2, H3).
      act_epsilon: ACT's ε (A1).
      readout: `readout(h) -> (y_hat, halt_logit)` of the states, which may be stacked: then it is called once (M1).

    Returns:
      Pondered, its first axis at least the largest Nᵢ and at most N; what lies beyond Nᵢ has no influence.
    """
    checks.check_pondering(max_steps, method, min_steps, epsilon, remainder, act_epsilon)
    rule = halt_rule(method, epsilon, act_epsilon, min_steps)
    predictions, logits, total, lengths, given = [], [], 0.0, None, state
    for n in range(1, (1 if method == "once" else max_steps) + 1):
        # An example that has halted repeats its last step, which is known to be harmless: a step further might not be.
        given = state if lengths is None else freeze(lengths > 0, given, state)
        result = step(given) if x is None else step(x, given)
        if readout is None:
            y_hat, state, z = checks.step_result(result)
        else:
            state, (y_hat, z) = result, readout(result)
        checks.check_step_result(y_hat, z)
        predictions.append(y_hat)
        logits.append(z)
        if rule is not None:
            lengths = np.zeros(np.shape(z), int) if lengths is None else lengths
            total = total + rule.add(np.real(as_float(z)))
            lengths = np.where((lengths == 0) & rule.enough(total) & (n >= rule.min_steps), n, lengths)
            if (lengths > 0).all():
                break
    y_hat, z = np.stack(predictions), np.stack(logits)
    steps = np.full(z.shape[1:], len(z)) if lengths is None else np.where(lengths > 0, lengths, len(z))
    return pondered(y_hat, z, steps, state, method, remainder, cut=lengths is not None)


def pondered(y_hat, z, lengths, state, method: str, remainder: str, *, cut: bool) -> Pondered:
    """The distribution that a method gives to the steps that were run."""
    if method == "act":
        act = act_weights(np.exp(log_sigmoid(as_float(z))), lengths)
        return Pondered(y_hat, z, None, lengths, state, act)
    if method == "ponder":
        log_p = log_halting(z, remainder=remainder, lengths=lengths if cut else None)
    else:
        log_p = np.full(z.shape, -np.inf)
        log_p[-1] = 0
    return Pondered(y_hat, z, log_p, lengths, state, None)


def harmless(tree: Any, weights, lead: int = 0) -> Any:
    """A tree in which rows of weight 0 are another row that has weight, or zeros if none has (M6).

    Such a row can do no harm in any criterion. What does not have the batch's axes, after `lead` others, is kept.
    """
    if weights is None:
        return tree
    live = np.asarray(weights).astype(bool)

    def leaf(x):
        if not hasattr(x, "dtype") or np.shape(x)[lead : lead + live.ndim] != live.shape:
            return x
        before, after = x.shape[:lead], x.shape[lead + live.ndim :]
        rows = x.reshape((*before, live.size, *after))
        row = rows.take([live.argmax()], axis=lead).reshape((*before, *[1] * live.ndim, *after))
        return np.where(live.reshape((*live.shape, *[1] * len(after))), x, row if live.any() else np.zeros_like(row))

    return map_tree(leaf, tree)


def _example_losses(criterion: Callable, y_hat, targets, batch: tuple[int, ...]) -> np.ndarray:
    """criterion, averaged over what lies beyond the batch axes."""
    values = as_float(criterion(y_hat, targets))
    checks.check_criterion(values, batch, np.asarray(y_hat))
    return values.mean(axis=tuple(range(len(batch), values.ndim))) if values.ndim > len(batch) else values


def training_loss(
    out: Pondered, targets, criterion: Callable, *, log_prior=None, beta=0.0, tau=0.0, weights=None
) -> PonderLoss:
    """The loss of what `ponder` gave: expected loss + β·KL, or the loss of ACT's output + τ·(N + R) (M6).

    Args:
      out: of `ponder`.
      targets: `[...batch, ...]`, or a tree of such arrays.
      criterion: a function of a prediction `[...batch, ...]` and targets, an array that begins with the batch shape.
      log_prior: `[max_steps]` (or `[max_steps, ...batch]`); of a shorter unroll the first entries are used, uncut (L2).
      beta, tau: weights of the KL and of ACT's cost.
      weights: `[...batch]` (L3); what a row of weight 0 has as prediction and targets has no influence.
    """
    batch = out.halt_logits.shape[1:]
    checks.check_weights(weights, batch)
    y_hat, targets = harmless(out.y_hat, weights, lead=1), harmless(targets, weights)
    if out.act is not None:
        y_hat = harmless(act_output(out.act.weights, y_hat), weights)
        rec = _example_losses(criterion, y_hat, targets, batch)
        reg = act_cost(out.act.steps, out.act.remainder, tau=1.0)
        if weights is not None:
            rec, reg = (np.where(np.asarray(weights) == 0, 0, part) for part in (rec, reg))
        loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
        return PonderLoss(loss_rec + tau * loss_reg, loss_rec, loss_reg, rec, reg)
    used = np.real(out.log_p) > -np.inf
    y_hat = np.where(used.reshape((*used.shape, *[1] * (y_hat.ndim - used.ndim))), y_hat, 0)
    step_losses = np.stack([_example_losses(criterion, y, targets, batch) for y in y_hat])
    prior, beta = (np.real(out.log_p), 0.0) if log_prior is None else (log_prior[: len(y_hat)], beta)
    return ponder_loss(out.log_p, step_losses, prior, beta=beta, weights=weights)
