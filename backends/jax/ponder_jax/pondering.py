"""Pondering: a step network run up to N times, and the loss to train it by (spec M1 to M7; paper §2.1 to §2.4)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid

from ponder_jax.act import act_cost, act_output, act_weights
from ponder_jax.arrays import as_float, either, expand_right, on_any, settle_axes, vary_like
from ponder_jax.halting import log_halting
from ponder_jax.losses import ponder_loss, weighted_mean
from ponder_ref import checks
from ponder_ref.base import HaltRule, Pondered, PonderLoss


def halt_rule(method: str, epsilon: float | None, act_epsilon: float, min_steps: int) -> HaltRule | None:
    """The rule by which a method leaves early; None if it takes all steps."""
    if method == "act":
        return HaltRule(jax.nn.sigmoid, lambda total: total >= 1 - act_epsilon, 1)  # A1; no minimum for ACT
    if epsilon is not None:
        return HaltRule(lambda z: log_sigmoid(-z), lambda total: total < math.log(epsilon), min_steps)  # H6
    return None


@jax.tree_util.register_dataclass
@dataclass
class Shared:
    """A part of the state that belongs to no example, whatever its shapes: random keys, running statistics."""

    tree: Any


def freeze(halted: jax.Array, old: Any, new: Any) -> Any:
    """The old state for examples that have halted, the new one for the others, leaf by leaf (M2)."""

    def leaf(before: Any, after: Any) -> Any:
        if isinstance(after, Shared) or jnp.shape(after)[: halted.ndim] != halted.shape:
            return after  # shared by the batch
        return jnp.where(expand_right(halted, jnp.ndim(after)), before, after)

    return jax.tree.map(leaf, old, new, is_leaf=lambda node: isinstance(node, Shared))


def settle(one: Callable, state: Any) -> Any:
    """h₀ in the dtypes and over the mesh axes that a step returns: a loop must keep them. Other changes are named."""
    after = jax.eval_shape(one, state)[1]
    old, new = jax.tree.structure(state), jax.tree.structure(after)
    if old != new:
        raise ValueError(f"state must keep its structure: {old} became {new}")
    for (path, before), now in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True):
        if before.shape != now.shape:
            name = f"state{jax.tree_util.keystr(path)}"
            raise ValueError(f"{name} must keep its shape: {before.shape} became {now.shape}")
    state = jax.tree.map(lambda x, now: x if x.dtype == now.dtype else x.astype(now.dtype), state, after)
    return settle_axes(lambda state: one(state)[1], state)


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
    unroll: int = 1,
) -> Pondered:
    """Runs a step network and gives its predictions with their halting distribution.

        ŷₙ, hₙ, zₙ = s(x, hₙ₋₁)   for n = 1..N                                   (M1; paper §2.1)

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, or `step(h)` if x is None; with `readout`, `step(x, h) -> h`.
      x, state: the input and h₀, trees of arrays; x may be anything that step understands.
      max_steps: N.
      method: "ponder"; "repeat" (N steps, the last answers), "once" (one step), "act" (M3, M4).
      min_steps, epsilon: leave when each example has halted but for ε (H6), after min_steps at the earliest (M2).
        The steps not run cost nothing, and have zeros in their places.
      remainder: what becomes of the mass left after N (H2, H3).
      act_epsilon: ACT's ε (A1).
      readout: `readout(h) -> (y_hat, halt_logit)` of the states, which may be stacked: then it is called once (M1).
      unroll: how many steps the compiler lays out in a row (`jax.lax.scan`).

    Returns:
      Pondered, its first axis max_steps; what lies beyond Nᵢ has no influence.
    """
    checks.check_pondering(max_steps, method, min_steps, epsilon, remainder, act_epsilon)
    rule = halt_rule(method, epsilon, act_epsilon, min_steps)
    run = step if x is None else lambda h: step(x, h)
    advance = run if readout is not None else lambda h: checks.step_result(run(h))
    state = jax.tree.map(jnp.asarray, state)
    if rule is None:
        y_hat, z, state = _run_all(advance, readout, state, 1 if method == "once" else max_steps, unroll)
        lengths = jnp.full(z.shape[1:], len(z), jnp.int32)
    else:
        y_hat, z, state, lengths = _run_some(advance, readout, state, max_steps, rule, unroll)
    return pondered(y_hat, z, lengths, state, method, remainder, cut=rule is not None)


def _run_all(advance: Callable, readout: Callable | None, state: Any, steps: int, unroll: int):
    """All steps; predictions and logits `[N, ...batch, ...]`, and the last state."""

    def body(state, _):
        if readout is not None:
            after = advance(state)
            return vary_like(after, state), after
        y_hat, after, z = advance(state)
        checks.check_step_result(y_hat, z)
        return vary_like(after, state), (y_hat, z)

    state = settle(advance if readout is None else lambda h: (None, advance(h)), state)
    state, stacked = jax.lax.scan(body, state, None, length=steps, unroll=min(unroll, steps))
    y_hat, z = stacked if readout is None else readout(stacked)
    checks.check_step_result(y_hat, z)
    return y_hat, z, state


def _run_some(advance: Callable, readout: Callable | None, state: Any, max_steps: int, rule: HaltRule, unroll: int):
    """Steps until every example has had enough, at most max_steps; also each example's own number of them."""

    def one(state):
        result = advance(state)
        if readout is None:
            y_hat, state, z = result
        else:
            state, (y_hat, z) = result, readout(result)
        checks.check_step_result(y_hat, z)
        return y_hat, state, z

    state = settle(one, state)
    y_shape, _, z_shape = jax.eval_shape(one, state)
    (total,) = as_float(jnp.zeros(z_shape.shape, z_shape.dtype))
    nothing = jnp.zeros(y_shape.shape, y_shape.dtype), jnp.zeros(z_shape.shape, z_shape.dtype)

    def run(carry, n):
        given, state, total, lengths = carry
        # An example that has halted repeats its last step, which is known to be harmless: a step further might not be.
        given = freeze(lengths > 0, given, state)
        y_hat, state, z = one(given)
        total = total + rule.add(*as_float(jax.lax.stop_gradient(z)))
        lengths = jnp.where((lengths == 0) & rule.enough(total) & (n >= rule.min_steps), n, lengths)
        return (given, state, total, lengths), (y_hat, z)

    def body(carry, n):
        # In a shard_map all devices leave together: gradients of what they share are summed over them at every step.
        going_on = on_any((carry[3] == 0).any())
        after, results = either(going_on, run, lambda carry, n: (carry, nothing), carry, n)
        return vary_like(after, carry), results

    numbers = jnp.arange(1, max_steps + 1, dtype=jnp.int32)
    carry = state, state, total, jnp.zeros(z_shape.shape, jnp.int32)
    carry = settle_axes(lambda carry: run(carry, 1)[0], carry)
    (_, state, _, lengths), (y_hat, z) = jax.lax.scan(body, carry, numbers, unroll=min(unroll, max_steps))
    return y_hat, z, state, jnp.where(lengths > 0, lengths, max_steps)


def pondered(y_hat, z, lengths, state, method: str, remainder: str, *, cut: bool) -> Pondered:
    """The distribution that a method gives to the steps that were run."""
    if method == "act":
        act = act_weights(jax.nn.sigmoid(*as_float(z)), lengths)
        return Pondered(y_hat, z, None, lengths, state, act)
    if method == "ponder":
        log_p = log_halting(z, remainder=remainder, lengths=lengths if cut else None)
    else:
        (log_p,) = as_float(jnp.full_like(z, -math.inf))
        log_p = log_p.at[-1].set(0.0)
    return Pondered(y_hat, z, log_p, lengths, state, None)


def harmless(tree: Any, weights: jax.Array | None, lead: int = 0) -> Any:
    """A tree in which rows of weight 0 are another row that has weight, or zeros if none has, without gradient (M6).

    Such a row can do no harm in any criterion. What does not have the batch's axes, after `lead` others, is kept.
    """
    if weights is None:
        return tree
    live = jnp.asarray(weights).astype(bool)
    at, ones = live.reshape(-1).argmax()[None], [1] * live.ndim

    def leaf(x: Any) -> Any:
        if getattr(x, "shape", ())[lead : lead + live.ndim] != live.shape or not hasattr(x, "dtype"):
            return x
        before, after = x.shape[:lead], x.shape[lead + live.ndim :]
        rows = jax.lax.stop_gradient(x).reshape((*before, live.size, *after))
        row = jnp.take(rows, at, axis=lead).reshape((*before, *ones, *after))
        row = jnp.where(live.any(), row, jnp.zeros_like(row))
        return jnp.where(expand_right(live, live.ndim + len(after)), x, row)

    return jax.tree.map(leaf, tree)


def _example_losses(criterion: Callable, y_hat: jax.Array, targets: Any, batch: tuple[int, ...]) -> jax.Array:
    """criterion, averaged over what lies beyond the batch axes."""
    values = criterion(y_hat, targets)
    checks.check_criterion(values, batch, y_hat)
    return values.mean(tuple(range(len(batch), values.ndim))) if values.ndim > len(batch) else values


def training_loss(
    out: Pondered,
    targets: jax.Array,
    criterion: Callable,
    *,
    log_prior: jax.Array | None = None,
    beta: float | jax.Array = 0.0,
    tau: float | jax.Array = 0.0,
    weights: jax.Array | None = None,
) -> PonderLoss:
    """The loss of what `ponder` gave: expected loss + β·KL, or the loss of ACT's output + τ·(N + R) (M6).

    Args:
      out: of `ponder`.
      targets: `[...batch, ...]`, or a tree of such arrays.
      criterion: a function of a prediction `[...batch, ...]` and targets, an array that begins with the batch shape;
        it is mapped over the steps.
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
            rec, reg = (jnp.where(jnp.asarray(weights).astype(bool), part, 0.0) for part in (rec, reg))
        loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
        return PonderLoss(loss_rec + tau * loss_reg, loss_rec, loss_reg, rec, reg)
    # Selected before the criterion, so that no NaN of a step beyond Nᵢ enters a gradient.
    y_hat = jnp.where(expand_right(out.log_p == -math.inf, y_hat.ndim), 0.0, y_hat)
    step_losses = jax.vmap(lambda y: _example_losses(criterion, y, targets, batch))(y_hat)
    prior, beta = (out.log_p, 0.0) if log_prior is None else (log_prior[: len(y_hat)], beta)  # no prior, no KL
    return ponder_loss(out.log_p, step_losses, prior, beta=beta, weights=weights)
