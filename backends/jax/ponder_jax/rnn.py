"""The parity RNN unrolled at the speed of its matrix products: M8 with a gradient written by hand.

The same numbers as `ponder` with `rnn_transition` and `rnn_readout`, to rounding. Automatic differentiation of a loop
that leaves early would keep and clear memory for all N steps; here the backward loop runs as many steps as the forward.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ponder_ref.interface import LeavingRule

UNROLL = 4  # steps laid out in a row by the compiler, where their number is fixed: measured


def rnn_unroll(
    params: Mapping[str, jax.Array], projected: jax.Array, max_steps: int, rule: LeavingRule | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, last states (no gradient) and Nᵢ, of `[batch, hidden]`.

    After a rule has let all examples go, predictions and logits are zeros.
    """
    weights = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    bias = jnp.concatenate([params["output.b"], params["halt.b"]])
    results: Any = _unroll(max_steps, rule, params["rnn.w_h"], weights, bias, projected)
    both, states, lengths = results
    last = jnp.take_along_axis(jax.lax.stop_gradient(states), lengths[None, :, None] - 1, 0)[0]
    return both[..., :-1], both[..., -1], last, lengths


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll(max_steps: int, rule: LeavingRule | None, w_h, weights, bias, projected) -> Any:
    return _forward(max_steps, rule, w_h, weights, bias, projected)[0]


def _forward(max_steps: int, rule: LeavingRule | None, w_h, weights, bias, projected):
    if rule is None:
        both, states, lengths, count = _all_steps(max_steps, w_h, weights, bias, projected)
    else:
        both, states, lengths, count = _some_steps(max_steps, rule, w_h, weights, bias, projected)
    return (both, states, lengths), (w_h, weights, states, count)


def _all_steps(max_steps: int, w_h, weights, bias, projected):
    def body(h, _):
        h = jnp.tanh(projected + h @ w_h)
        return h, h

    _, states = jax.lax.scan(body, jnp.zeros_like(projected), None, length=max_steps, unroll=min(UNROLL, max_steps))
    return states @ weights + bias, states, jnp.full(projected.shape[:1], max_steps, jnp.int32), max_steps


def _some_steps(max_steps: int, rule: LeavingRule, w_h, weights, bias, projected):
    """Steps until every example has had enough; `count` of them."""
    batch, hidden = projected.shape

    def going_on(carry):
        n, _, _, _, _, lengths = carry
        return (n < max_steps) & (lengths == 0).any()

    def body(carry):
        n, h, both, states, total, lengths = carry
        h = jnp.tanh(projected + h @ w_h)
        heads = h @ weights + bias
        total = total + rule.add(heads[:, -1])
        lengths = jnp.where((lengths == 0) & rule.enough(total) & (n + 1 >= rule.min_steps), n + 1, lengths)
        both = jax.lax.dynamic_update_index_in_dim(both, heads, n, 0)
        return n + 1, h, both, jax.lax.dynamic_update_index_in_dim(states, h, n, 0), total, lengths

    carry = (
        jnp.int32(0),
        jnp.zeros_like(projected),
        jnp.zeros((max_steps, batch, weights.shape[1]), projected.dtype),
        jnp.zeros((max_steps, batch, hidden), projected.dtype),
        jnp.zeros(batch, projected.dtype),
        jnp.zeros(batch, jnp.int32),
    )
    count, _, both, states, _, lengths = jax.lax.while_loop(going_on, body, carry)
    return both, states, jnp.where(lengths > 0, lengths, max_steps), count


def _backward(max_steps: int, rule: LeavingRule | None, kept, cotangents):
    """∂L/∂(W_h, heads, projected) from ∂L/∂(predictions, logits): dₙ = (gₙ·Vᵀ + dₙ₊₁·W_hᵀ)·(1 − hₙ²)."""
    w_h, weights, states, count = kept
    g = cotangents[0]
    if rule is None:
        d_w_h, d_weights, d_projected = _all_steps_back(w_h, weights, states, g)
    else:
        d_w_h, d_weights, d_projected = _some_steps_back(w_h, weights, states, g, count)
    return d_w_h, d_weights, g.sum((0, 1)), d_projected


def _all_steps_back(w_h, weights, states, g):
    def body(carry, step):
        g_n, h = step
        d = (g_n @ weights.T + carry) * (1 - h * h)
        return d @ w_h.T, d

    steps, hidden = len(states), states.shape[-1]
    start = jnp.zeros_like(states[0])
    _, d = jax.lax.scan(body, start, (g, states), reverse=True, unroll=min(UNROLL, steps))
    # The weights' gradient as one large product; h₀ is 0 and has no share.
    d_w_h = states[:-1].reshape(-1, hidden).T @ d[1:].reshape(-1, hidden)
    d_weights = (g.reshape(-1, g.shape[-1]).T @ states.reshape(-1, hidden)).T  # thin products are faster this way round
    return d_w_h, d_weights, d.sum(0)


def _some_steps_back(w_h, weights, states, g, count):
    def body(carry):
        n, back, d_w_h, d_weights, d_projected = carry
        h, g_n = (jax.lax.dynamic_index_in_dim(x, n, 0, keepdims=False) for x in (states, g))
        before = jax.lax.dynamic_index_in_dim(states, jnp.maximum(n - 1, 0), 0, keepdims=False)
        d = (g_n @ weights.T + back) * (1 - h * h)
        d_w_h = d_w_h + jnp.where(n > 0, before, 0.0).T @ d
        return n - 1, d @ w_h.T, d_w_h, d_weights + (g_n.T @ h).T, d_projected + d

    nothing = jnp.zeros_like(states[0])
    carry = (count - 1, nothing, jnp.zeros_like(w_h), jnp.zeros_like(weights), nothing)
    _, _, d_w_h, d_weights, d_projected = jax.lax.while_loop(lambda carry: carry[0] >= 0, body, carry)
    return d_w_h, d_weights, d_projected


_unroll.defvjp(_forward, _backward)
