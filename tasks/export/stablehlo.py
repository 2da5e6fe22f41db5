"""The RNN of M8 as one StableHLO program with the while loop inside, by `jax.export`; imported only when asked for."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, sigmoid

from ponder_jax import rnn_initial_state, rnn_project, rnn_readout, rnn_transition
from ponder_jax.sampling import threefry2x32
from ponder_ref.models.rnn import Rnn
from tasks.export.policy import Exit, answer_shape, check_written, port, ports

POLICIES = ("sample", "quantile", "fixed", "expected")  # those that are written here
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
PORTS = (port("seed", "uint32", 2), "uint32", "int32")  # without x64 JAX has no 64-bit integers


def about(model: Rnn, exit: Exit) -> dict[str, Any]:
    return {"format": "stablehlo", "jax": jax.__version__, "platforms": list(PLATFORMS)} | ports(model, exit, *PORTS)


class Carry(NamedTuple):
    """What goes round the loop: `[batch]`, but for h, the answer and the count of iterations."""

    iterations: jax.Array
    h: jax.Array
    answer: jax.Array
    steps: jax.Array
    running: jax.Array
    reached: jax.Array  # Σ_{j<n} log(1 − λⱼ)
    top: jax.Array  # "expected": the largest log p so far
    mass: jax.Array  # and Σ pⱼ so far, in units of exp(top)


def beside(row: jax.Array, y_hat: jax.Array) -> jax.Array:
    """`[batch]` in the rank of the predictions."""
    return row.reshape(row.shape + (1,) * (y_hat.ndim - 1))


def uniforms(seed: jax.Array, ids: jax.Array, step: jax.Array) -> jax.Array:
    """uₙ of the example ids, `[batch]` float32 (S2); seed: its low and high word."""
    word, _ = threefry2x32((seed[0], seed[1]), jnp.broadcast_arrays(ids, step.astype(jnp.uint32)))
    return (word >> jnp.uint32(8)).astype(jnp.float32) * 2**-24


def advance(params, projected, exit: Exit, draws, old: Carry) -> Carry:
    """A step of the network, then the policy."""
    n = old.iterations + 1
    h = rnn_transition(params, projected, old.h)
    y_hat, z = rnn_readout(params, h)
    reached, top, mass = old.reached + log_sigmoid(-z), old.top, old.mass
    halts = jnp.zeros_like(old.running)
    if exit.policy == "sample":
        seed, ids = draws
        halts = uniforms(seed, ids, n) < sigmoid(z)
    elif exit.policy == "quantile":
        halts = -jnp.expm1(reached) >= exit.q
    elif exit.policy == "expected" and exit.epsilon is not None:
        halts = reached < math.log(exit.epsilon)
    stops = old.running & (halts | (n == exit.max_steps))
    if exit.policy == "expected":
        answer, top, mass = add_expected(exit, old, y_hat, z, stops)
    else:
        answer = jnp.where(beside(stops, y_hat), y_hat, old.answer)
    return Carry(n, h, answer, jnp.where(stops, n, old.steps), old.running & ~stops, reached, top, mass)


def add_expected(exit: Exit, old: Carry, y_hat, z, stops) -> tuple[jax.Array, jax.Array, jax.Array]:
    """pₙŷₙ and pₙ added to the sums of the rows that run, relative to their largest p (H2 to H4, H8)."""
    log_p = old.reached + log_sigmoid(z)
    if exit.remainder == "last":
        log_p = jnp.where(stops, old.reached, log_p)
    top = jnp.maximum(old.top, log_p)
    scale, p = jnp.exp(old.top - top), jnp.exp(log_p - top)
    answer = old.answer * beside(scale, y_hat) + beside(p, y_hat) * y_hat
    new, before = (answer, top, old.mass * scale + p), (old.answer, old.top, old.mass)
    answer, top, mass = (jnp.where(beside(old.running, x), x, x_old) for x, x_old in zip(new, before, strict=True))
    return answer, top, mass


def program(model: Rnn, params: Mapping[str, Any], exit: Exit):
    """The function that is exported: (x), or (x, seed, example_ids) for "sample", to (y_hat, steps, iterations)."""

    def answer(x: jax.Array, *draws: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        projected = rnn_project(params, x)
        row = jnp.zeros_like(projected[:, 0])
        start = Carry(
            iterations=jnp.int32(0),
            h=rnn_initial_state(params, projected),
            answer=jnp.zeros(answer_shape(model, x.shape[0]), row.dtype),
            steps=row.astype(jnp.int32),
            running=jnp.ones_like(row, bool),
            reached=row,
            top=jnp.full_like(row, -math.inf),
            mass=row,
        )
        last = jax.lax.while_loop(
            lambda carry: carry.running.any(), lambda carry: advance(params, projected, exit, draws, carry), start
        )
        y_hat = last.answer / beside(last.mass, last.answer) if exit.policy == "expected" else last.answer
        return y_hat, last.steps, last.iterations

    return answer


def write(model: Rnn, params: Mapping[str, np.ndarray], exit: Exit, description: Mapping[str, Any]) -> bytes:
    """The file: a program for any batch and platform, its arguments and results as `ports` has them."""
    check_written(exit, POLICIES, "stablehlo")
    del description  # the format has no place for it
    weights = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    (batch,) = jax.export.symbolic_shape("batch")
    arguments = [
        jax.ShapeDtypeStruct(tuple(batch if axis == "batch" else axis for axis in each["shape"]), each["dtype"])
        for each in ports(model, exit, *PORTS)["inputs"]
    ]
    made = jax.export.export(jax.jit(program(model, weights, exit)), platforms=PLATFORMS)(*arguments)
    return bytes(made.serialize())
