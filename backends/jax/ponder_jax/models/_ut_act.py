"""The Universal Transformer's own ACT: every row halts by itself (spec M9, "Halting row by row")."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp

from ponder_jax.act import act_output, act_weights
from ponder_jax.arrays import either, on_any, settle_axes, step_numbers, vary_like
from ponder_jax.models.transformer import advance, begin, questions, read, rows_of
from ponder_ref.base import ActHalting, Pondered
from ponder_ref.models._attention import dropped_share
from ponder_ref.models.transformer import SURE, Transformer


def ut_act_unroll(
    model: Transformer,
    params: Mapping[str, jax.Array],
    inputs: Mapping[str, jax.Array],
    max_steps: int,
    act_epsilon: float,
) -> Pondered:
    """The answer of the question's averaged state, the same at every n; Nᵢ is that of the row that halts last.

    `act.remainder` is the whole cost, the mean of Nₛ + Rₛ over the rows; `act.steps` is 0, the other weights tell Nᵢ.
    """
    buckets, h = begin(model, params, inputs, max_steps)
    present = jnp.concatenate([b.present.reshape(-1) for b in buckets])

    def run(carry, n, *, last: bool = False):
        h, before, lengths = carry
        running = present & (lengths == 0)
        after = advance(params, buckets, h, n, model.heads, dropped_share(model), last=last)
        if last:  # every row halts here, whatever its λ; only the question's state is asked for
            asked = questions(buckets, running[:, None])
            question = jnp.where(asked, after, questions(buckets, h))
            return carry, (question, jnp.zeros(len(question), h.dtype))
        h = jnp.where(running[:, None], after, h)
        lam = jax.nn.sigmoid(read(params, h)[1])
        halting = running & (jax.lax.stop_gradient(before + lam) >= 1 - act_epsilon)
        before = before + jnp.where(running & ~halting, lam, 0.0)
        lengths = jnp.where(halting, n, lengths)
        return (h, before, lengths), (questions(buckets, h), questions(buckets, lam[:, None])[:, 0])

    def body(carry, n, *, last: bool = False):
        going_on = on_any((present & (carry[2] == 0)).any())
        after, results = either(going_on, partial(run, last=last), lambda carry, n: (carry, nothing), carry, n)
        return vary_like(after, carry), results

    batch = sum(b.size for b in buckets)
    nothing = jnp.zeros((batch, model.embedding), h.dtype), jnp.zeros(batch, h.dtype)
    carry = h, jnp.zeros(len(h), h.dtype), jnp.zeros(len(h), jnp.int32)
    carry = settle_axes(lambda carry: run(carry, jnp.int32(1))[0], carry)
    carry, (states, lam) = jax.lax.scan(body, carry, jnp.arange(1, max_steps, dtype=jnp.int32))
    (_, before, lengths), (question, nought) = body(carry, jnp.int32(max_steps), last=True)
    states, lam = jnp.concatenate([states, question[None]]), jnp.concatenate([lam, nought[None]])
    lengths = jnp.where(present, jnp.where(lengths > 0, lengths, max_steps), 0)
    weights = act_weights(lam, questions(buckets, lengths[:, None])[:, 0]).weights
    state = act_output(weights, states)
    spent = jnp.where(present, lengths + 1 - before, 0.0)
    cost = jnp.concatenate([_sums(b.size, x) / _sums(b.size, y) for b, x, y in _zip(buckets, spent, present)])
    longest = jnp.concatenate([x.reshape(b.size, -1).max(1) for b, x, _ in _zip(buckets, lengths, present)])
    at_end = step_numbers(lam) == longest
    y_hat = jnp.broadcast_to(read(params, state)[0], (max_steps, batch, model.outputs))
    act = ActHalting(at_end.astype(h.dtype), jnp.zeros_like(longest), cost)
    return Pondered(
        y_hat, jnp.where(at_end, SURE, -SURE).astype(h.dtype), None, longest, jax.lax.stop_gradient(state), act
    )


def _zip(buckets, *columns):
    return zip(buckets, *(rows_of(buckets, column) for column in columns), strict=True)


def _sums(count: int, x: jax.Array) -> jax.Array:
    return x.reshape(count, -1).sum(1)
