"""The RNN of the parity experiment (spec M8; paper app. B): its functions, its step network, its fast unroll.

The unroll has a gradient written by hand. Automatic differentiation of a loop that leaves early would keep and clear
memory for all N steps; here the backward loop runs as many steps as the forward one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ponder_jax.arrays import in_shard_map
from ponder_jax.models import CanonicalStep
from ponder_ref.base import HaltRule
from ponder_ref.models.rnn import Rnn

Params = Mapping[str, jax.Array]

FEW = 4  # heads whose gradient is spread over the units entry by entry: a product so thin takes longer (measured)


def rnn_project(params: Params, x: jax.Array) -> jax.Array:
    """x·W_x + b, `[...batch, hidden]`: the input's share of every step, computed once."""
    return x @ params["rnn.w_x"] + params["rnn.b"]


def rnn_transition(params: Params, projected: jax.Array, h: jax.Array) -> jax.Array:
    """hₙ = tanh(x·W_x + b + hₙ₋₁·W_h), `[...batch, hidden]`."""
    return jnp.tanh(projected + h @ params["rnn.w_h"])


def rnn_readout(params: Params, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prediction `[...]` (`[..., outputs]` for several) and halting logit `[...]` of states `[..., hidden]`."""
    weights = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    both = h @ weights + jnp.concatenate([params["output.b"], params["halt.b"]])  # one product for the two
    return (both[..., 0] if both.shape[-1] == 2 else both[..., :-1]), both[..., -1]


def rnn_initial_state(params: Params, projected: jax.Array) -> jax.Array:
    """h₀ = 0, of the projected input's shape."""
    return jnp.zeros_like(projected)


class Step(CanonicalStep):
    """The RNN as a step network: x `[...batch, inputs]`, state `[...batch, hidden]`."""

    settings: Rnn

    def project(self, x: jax.Array) -> jax.Array:
        return rnn_project(self.params(), x)

    def initial_state(self, x: jax.Array) -> jax.Array:
        return rnn_initial_state(self.params(), x)

    def __call__(self, x: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        params = self.params()
        h = rnn_transition(params, x, h)
        y_hat, z = rnn_readout(params, h)
        return y_hat, h, z

    def unroll(self, x: jax.Array, max_steps: int, rule: HaltRule | None) -> tuple | None:
        """All steps as one loop with a gradient of its own, of any order, in reverse mode alone.

        JAX refuses forward mode here (`jax.jvp`, `jax.hessian`): `ponder(net.step, *net.start(x), ...)` has it, which
        runs the steps one by one. None inside a `shard_map`, and for batches of several axes: then that is done, too.
        """
        if x.ndim != 2 or in_shard_map():
            return None
        params = self.params()
        y_hat, z, state, lengths = rnn_unroll(params, rnn_project(params, x), max_steps, rule)
        return (y_hat[..., 0] if self.settings.outputs == 1 else y_hat), z, state, lengths


def rnn_unroll(
    params: Params, projected: jax.Array, max_steps: int, rule: HaltRule | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, the states after step Nᵢ and Nᵢ, of `[batch, hidden]`.

    After a rule has let all examples go, predictions and logits are zeros.
    """
    weights = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    bias = jnp.concatenate([params["output.b"], params["halt.b"]])
    results: Any = _unroll(max_steps, rule, params["rnn.w_h"], weights, bias, projected)
    both, state, lengths, *_ = results
    return both[..., :-1], both[..., -1], state, lengths


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll(max_steps: int, rule: HaltRule | None, w_h, weights, bias, projected) -> Any:
    """All steps, or those until every example has had enough: `count` of them. Also the states, for the gradient."""
    batch, hidden = projected.shape

    def going_on(carry):
        n, _, _, _, _, lengths = carry
        return (n < max_steps) if rule is None else (n < max_steps) & (lengths == 0).any()

    def note(n, h, both, states, total, lengths):
        """What step n + 1 leaves behind, with its state."""
        heads = h @ weights + bias
        if rule is not None:
            total = total + rule.add(heads[:, -1])
            lengths = jnp.where((lengths == 0) & rule.enough(total) & (n + 1 >= rule.min_steps), n + 1, lengths)
        both = jax.lax.dynamic_update_index_in_dim(both, heads, n, 0)
        return n + 1, h, both, jax.lax.dynamic_update_index_in_dim(states, h, n, 0), total, lengths

    def body(carry):
        n, h, *rest = carry
        return note(n, jnp.tanh(projected + h @ w_h), *rest)

    nothing = (
        jnp.zeros((max_steps, batch, weights.shape[1]), projected.dtype),
        jnp.zeros((max_steps, batch, hidden), projected.dtype),
        jnp.zeros(batch, projected.dtype),
        jnp.zeros(batch, jnp.int32),
    )
    first = note(jnp.int32(0), jnp.tanh(projected), *nothing)  # no product: h₀ is 0
    count, _, both, states, _, lengths = jax.lax.while_loop(going_on, body, first)
    lengths = jnp.where(lengths > 0, lengths, max_steps)
    state = jnp.take_along_axis(states, lengths[None, :, None] - 1, 0)[0]
    return both, state, lengths, states, count


def _forward(max_steps: int, rule: HaltRule | None, *inputs):
    inputs = tuple(each.value for each in inputs)
    results: Any = _unroll(max_steps, rule, *inputs)  # by itself: a gradient of a gradient comes here, too
    return results, (inputs, results[2:])


def _backward(max_steps: int, rule: HaltRule | None, kept, cotangents):
    g, of_state, *_ = cotangents
    g = jnp.zeros(g.shape, str(g.dtype)) if isinstance(g, SymbolicZero) else g
    of_state = None if isinstance(of_state, SymbolicZero) else of_state  # if nobody uses it, a training pays nothing
    return _gradients(*kept, g, of_state)


@jax.custom_vjp
def _gradients(inputs, found, g, of_state):
    """∂L/∂(W_h, heads, projected): dₙ = (gₙ·Vᵀ + dₙ₊₁·W_hᵀ)·(1 − hₙ²), in the sum at n = Nᵢ also the state's."""
    (w_h, weights, _, _), (lengths, states, count) = inputs, found

    def at(n):
        return (jax.lax.dynamic_index_in_dim(x, n, 0, keepdims=False) for x in (states, g))

    def slope(n, g_n, back, h):
        few = weights.shape[1] <= FEW
        spread = sum(g_n[:, i : i + 1] * w for i, w in enumerate(weights.T)) if few else g_n @ weights.T
        back = back if of_state is None else back + jnp.where((lengths == n + 1)[:, None], of_state, 0)
        return (spread + back) * (1 - h * h)

    def body(carry):
        n, back, d_w_h, d_heads, d_projected = carry
        (h, g_n), (before, _) = at(n), at(n - 1)
        d = slope(n, g_n, back, h)
        return n - 1, d @ w_h.T, d_w_h + before.T @ d, d_heads + g_n.T @ h, d_projected + d

    nothing = jnp.zeros_like(states[0])
    carry = (count - 1, nothing, jnp.zeros_like(w_h), jnp.zeros_like(weights.T), nothing)
    _, back, d_w_h, d_heads, d_projected = jax.lax.while_loop(lambda carry: carry[0] > 0, body, carry)
    # The first step is apart: nothing goes back from it, and h₀, which is 0, has no share in the weights' gradient.
    d_weights = (d_heads + g[0].T @ states[0]).T
    return d_w_h, d_weights, g.sum((0, 1)), d_projected + slope(0, g[0], back, states[0])


def _plain_gradients(inputs, found, g, of_state):
    """What `_gradients` gives, by JAX's own gradient of a `scan`, so that it can be differentiated again."""
    lengths, states, count = found

    def run(w_h, weights, bias, projected):
        def body(h, n):
            h = jnp.tanh(projected + h @ w_h)
            return h, (jnp.where(n < count, h @ weights + bias, 0), h)

        _, (both, hs) = jax.lax.scan(body, jnp.zeros_like(projected), jnp.arange(len(states)))
        return both, jnp.take_along_axis(hs, lengths[None, :, None] - 1, 0)[0]

    pull = jax.vjp(run, *inputs)[1]
    return pull((g, jnp.zeros_like(states[0]) if of_state is None else of_state))


def _gradients_backward(given, cotangents):
    inputs, found, g, of_state = given
    pull = jax.vjp(lambda inputs, g, of_state: _plain_gradients(inputs, found, g, of_state), inputs, g, of_state)[1]
    of_inputs, of_g, of_of_state = pull(cotangents)
    return of_inputs, None, of_g, of_of_state  # the states are functions of the inputs, which have their share


_unroll.defvjp(_forward, _backward, symbolic_zeros=True)
_gradients.defvjp(lambda *given: (_gradients(*given), given), _gradients_backward)
