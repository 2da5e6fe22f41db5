"""Pondering: a step network run up to N times, and the loss to train it by (spec M1 to M7; paper §2.1 to §2.4)."""

import math
from collections.abc import Callable
from numbers import Number
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from ponder_ref import checks
from ponder_ref.base import HaltRule, Pondered, PonderLoss
from ponder_ref.trees import map_tree
from ponder_torch.act import act_cost, act_output, act_weights
from ponder_torch.arrays import as_float, check_tensors, expand_right
from ponder_torch.criteria import binary_cross_entropy, cross_entropy, squared_error
from ponder_torch.halting import log_halting
from ponder_torch.losses import ponder_loss, weighted_mean

ENTRYWISE = (binary_cross_entropy, cross_entropy, squared_error)


def halt_rule(method: str, epsilon: float | None, act_epsilon: float, min_steps: int) -> HaltRule | None:
    """The rule by which a method leaves early; None if it takes all steps."""
    if method == "act":
        return HaltRule(torch.sigmoid, lambda total: total >= 1 - act_epsilon, 1)  # A1; no minimum for ACT
    if epsilon is not None:
        return HaltRule(lambda z: logsigmoid(-z), lambda total: total < math.log(epsilon), min_steps)  # H6
    return None


def _check_leaf(leaf: Any) -> Any:
    """A part of the state that can be kept or stacked: in any other object tensors might hide."""
    if not isinstance(leaf, (torch.Tensor, Number, str)):
        raise ValueError(
            f"state must be a tree (tuples, lists, dicts) of tensors and numbers, got a {type(leaf).__name__} in it"
        )
    return leaf


def _stack(*leaves: Any) -> torch.Tensor:
    return torch.stack([torch.as_tensor(_check_leaf(leaf)) for leaf in leaves])


def freeze(halted: torch.Tensor, old: Any, new: Any) -> Any:
    """The old state for examples that have halted, the new one for the others, leaf by leaf (M2)."""

    def leaf(before: Any, after: Any) -> Any:
        if not isinstance(after, torch.Tensor) or after.shape[: halted.ndim] != halted.shape:
            return after  # shared by the batch
        return torch.where(expand_right(halted, after.ndim), before, after)

    return map_tree(leaf, old, map_tree(_check_leaf, new))


def _check_rows(old: Any, new: Any, batch: tuple[int, ...]) -> None:
    """Refuses a state in which one row has taken the place of the batch's: it would be stretched over all examples."""
    lost: list[str] = []

    def leaf(a: Any, b: Any) -> None:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape[: len(batch)] == batch:
            rows = tuple(b.shape[: len(batch)])
            # Other sizes are not stretched: of a history that grows along its first axis, say.
            if rows != batch and all(size in (1, own) for size, own in zip(rows, batch, strict=False)):
                lost.append(f"shape {tuple(a.shape)} became {tuple(b.shape)}")

    try:
        map_tree(leaf, old, new)
    except ValueError:
        return  # of another structure, say after None: carried on as it is (M1)
    if lost:
        raise ValueError(f"state must keep its rows: {lost[0]}")


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
      x, state: the input and h₀, trees of tensors; x may be anything that step understands.
      max_steps: N.
      method: "ponder"; "repeat" (N steps, the last answers), "once" (one step), "act" (M3, M4).
      min_steps, epsilon: leave when each example has halted but for ε (H6), after min_steps at the earliest (M2).
        Whether to go on is then asked of the device at each step.
      remainder: what becomes of the mass left after N (H2, H3).
      act_epsilon: ACT's ε (A1).
      readout: `readout(h) -> (y_hat, halt_logit)` of the states, which may be stacked: then it is called once (M1).

    Returns:
      Pondered, its first axis the number of steps that were run; what lies beyond Nᵢ has no influence.
    """
    checks.check_pondering(max_steps, method, min_steps, epsilon, remainder, act_epsilon)
    rule = halt_rule(method, epsilon, act_epsilon, min_steps)
    run = step if x is None else lambda h: step(x, h)
    advance = run if readout is not None else lambda h: checks.step_result(run(h))
    if rule is None:
        y_hat, z, state = _run_all(advance, readout, state, 1 if method == "once" else max_steps)
        lengths = torch.full(z.shape[1:], len(z), device=z.device)
    else:
        y_hat, z, state, lengths = _run_some(advance, readout, state, max_steps, rule)
    return pondered(y_hat, z, lengths, state, method, remainder, cut=rule is not None)


def _run_all(advance: Callable, readout: Callable | None, state: Any, steps: int):
    """All steps; predictions and logits `[N, ...batch, ...]`, and the last state."""
    states, predictions, logits = [], [], []
    for _ in range(steps):
        if readout is None:
            given, (y_hat, state, z) = state, advance(state)
            checks.check_step_result(y_hat, z)
            if not predictions:  # what the first step does to shapes the others do, too
                _check_rows(given, state, z.shape)
            predictions.append(y_hat)
            logits.append(z)
        else:
            state = advance(state)
            states.append(state)
    if readout is None:
        return torch.stack(predictions), torch.stack(logits), state
    y_hat, z = readout(map_tree(_stack, *states))
    checks.check_step_result(y_hat, z)
    return y_hat, z, state


def _run_some(advance: Callable, readout: Callable | None, state: Any, max_steps: int, rule: HaltRule):
    """Steps until every example has had enough, at most max_steps; also each example's own number of them."""
    predictions, logits, total, lengths, given = [], [], torch.zeros(()), torch.zeros(()), state
    for n in range(1, max_steps + 1):
        # An example that has halted repeats its last step, which is known to be harmless: a step further might not be.
        given = state if n == 1 else freeze(lengths > 0, given, state)
        result = advance(given)
        if readout is None:
            y_hat, state, z = result
        else:
            state, (y_hat, z) = result, readout(result)
        checks.check_step_result(y_hat, z)
        if n == 1:  # what the first step does to shapes the others do, too
            _check_rows(given, state, z.shape)
        predictions.append(y_hat)
        logits.append(z)
        (counted,) = as_float(z.detach())
        if n == 1:
            total, lengths = rule.add(counted), torch.zeros(z.shape, dtype=torch.int64, device=z.device)
        else:
            total = total + rule.add(counted)
        if n >= rule.min_steps:
            lengths = torch.where((lengths == 0) & rule.enough(total), n, lengths)
            if n < max_steps and bool((lengths > 0).all()):
                break
    lengths = torch.where(lengths > 0, lengths, len(logits))
    return torch.stack(predictions), torch.stack(logits), state, lengths


def pondered(y_hat, z, lengths, state, method: str, remainder: str, *, cut: bool) -> Pondered:
    """The distribution that a method gives to the steps that were run."""
    if method == "act":
        act = act_weights(torch.sigmoid(*as_float(z)), lengths)
        return Pondered(y_hat, z, None, lengths, state, act)
    if method == "ponder":
        log_p = log_halting(z, remainder=remainder, lengths=lengths if cut else None)
    else:
        (log_p,) = as_float(torch.full_like(z, -math.inf))
        log_p[-1] = 0
    return Pondered(y_hat, z, log_p, lengths, state, None)


def harmless(tree: Any, weights: torch.Tensor | None, lead: int = 0) -> Any:
    """A tree in which rows of weight 0 are another row that has weight, or zeros if none has, without gradient (M6).

    Such a row can do no harm in any criterion. What does not have the batch's axes, after `lead` others, is kept.
    """
    if weights is None:
        return tree
    check_tensors(weights)
    live = weights.bool()
    at, ones = live.flatten().long().argmax().reshape(1), [1] * live.ndim

    def leaf(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.shape[lead : lead + live.ndim] != live.shape:
            return x
        before, after = x.shape[:lead], x.shape[lead + live.ndim :]
        rows = x.detach().reshape((*before, live.numel(), *after))
        row = rows.index_select(lead, at).reshape((*before, *ones, *after))
        row = torch.where(live.any(), row, torch.zeros_like(row))
        return torch.where(expand_right(live, live.ndim + len(after)), x, row)

    return map_tree(leaf, tree)


def _example_losses(criterion: Callable, y_hat: torch.Tensor, targets: Any, batch: tuple[int, ...]) -> torch.Tensor:
    """criterion, averaged over what lies beyond the batch axes."""
    values = criterion(y_hat, targets)
    checks.check_criterion(values, batch, y_hat)
    return values.flatten(len(batch)).mean(-1) if values.ndim > len(batch) else values


def _step_losses(criterion: Callable, y_hat: torch.Tensor, targets: Any, batch: tuple[int, ...]) -> torch.Tensor:
    """The losses of all steps `[N, ...batch]`: in one call where the criterion works entry by entry, else in N."""
    if criterion not in ENTRYWISE:
        return torch.stack([_example_losses(criterion, y, targets, batch) for y in y_hat])
    return _example_losses(criterion, y_hat, targets.expand(len(y_hat), *targets.shape), (len(y_hat), *batch))


def training_loss(
    out: Pondered,
    targets: torch.Tensor,
    criterion: Callable,
    *,
    log_prior: torch.Tensor | None = None,
    beta: float | torch.Tensor = 0.0,
    tau: float | torch.Tensor = 0.0,
    weights: torch.Tensor | None = None,
) -> PonderLoss:
    """The loss of what `ponder` gave: expected loss + β·KL, or the loss of ACT's output + τ·(N + R) (M6).

    Args:
      out: of `ponder`.
      targets: `[...batch, ...]`, or a tree of such tensors.
      criterion: a function of a prediction `[...batch, ...]` and targets, a tensor that begins with the batch shape.
      log_prior: `[max_steps]` (or `[max_steps, ...batch]`); of a shorter unroll the first entries are used, uncut (L2).
      beta, tau: weights of the KL and of ACT's cost.
      weights: `[...batch]` (L3); what a row of weight 0 has as prediction and targets has no influence.
    """
    batch = tuple(out.halt_logits.shape[1:])
    checks.check_weights(weights, batch)
    y_hat, targets = harmless(out.y_hat, weights, lead=1), harmless(targets, weights)
    if out.act is not None:
        y_hat = harmless(act_output(out.act.weights, y_hat), weights)
        rec = _example_losses(criterion, y_hat, targets, batch)
        reg = act_cost(out.act.steps, out.act.remainder, tau=1.0)
        if weights is not None:
            rec, reg = (torch.where(weights.bool(), part, 0.0) for part in (rec, reg))
        loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
        return PonderLoss(loss_rec + tau * loss_reg, loss_rec, loss_reg, rec, reg)
    # Selected before the criterion, so that no NaN of a step beyond Nᵢ enters a gradient.
    y_hat = torch.where(expand_right(out.log_p == -math.inf, y_hat.ndim), 0.0, y_hat)
    step_losses = _step_losses(criterion, y_hat, targets, batch)
    prior, beta = (out.log_p, 0.0) if log_prior is None else (log_prior[: len(y_hat)], beta)  # no prior, no KL
    return ponder_loss(out.log_p, step_losses, prior, beta=beta, weights=weights)
