"""When an example leaves: exit policies for examples that are at different steps (spec I1 to I4).

Everything is an array of fixed shape, `[slots]`, so that the loop is compiled once and runs on the device alone.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid

from ponder_jax.arrays import as_float
from ponder_jax.sampling import uniforms_at
from ponder_ref.base import ExitRule
from ponder_ref.sampling import MASK


class Numbers(NamedTuple):
    """The numbers of an ExitRule as scalar arrays: another seed or threshold compiles nothing again."""

    k0: np.ndarray
    k1: np.ndarray
    fields: np.ndarray
    max_steps: np.ndarray
    q: np.ndarray
    log_epsilon: np.ndarray
    min_steps: np.ndarray


def numbers_of(rule: ExitRule) -> Numbers:
    k0, k1, fields = (np.asarray(n, np.uint32) for n in (rule.seed & MASK, rule.seed >> 32, rule.draw << 16))
    q, log_epsilon = np.asarray(float(rule.q)), np.asarray(math.log(rule.epsilon))
    max_steps, min_steps = (np.asarray(n, np.int32) for n in (rule.max_steps, rule.min_steps))
    return Numbers(k0, k1, fields, max_steps, q, log_epsilon, min_steps)


class Memory(NamedTuple):
    """What a policy remembers of the examples in the slots, `[slots]` each: see `fresh_memory`."""

    ids: jax.Array
    n: jax.Array
    left: jax.Array
    top: jax.Array
    mass: jax.Array


class Blending(NamedTuple):
    """How a step enters the expected answer, `[slots]`: blend ← scale·blend + weight·ŷ; the answer is blend / mass."""

    scale: jax.Array
    weight: jax.Array
    mass: jax.Array


def fresh_memory(ids: jax.Array, remainder: str, dtype) -> Memory:
    """Of examples before their first step: n = 0; left is Σ log(1 − λ), top and mass are those of "normalize"."""
    zeros = jnp.zeros(ids.shape, dtype)
    top = jnp.full(ids.shape, -math.inf, dtype) if remainder == "normalize" else zeros
    return Memory(ids.astype(jnp.uint32), jnp.zeros(ids.shape, jnp.int32), zeros, top, zeros)


def decide(
    policy: str, remainder: str, numbers: Numbers, memory: Memory, z: jax.Array
) -> tuple[Memory, jax.Array, Blending | None]:
    """Which slots leave after a step with logits z, `[slots]`; and how it is blended, for "expected"."""
    n = memory.n + 1
    memory, forced = memory._replace(n=n), n >= numbers.max_steps
    if policy == "fixed":
        return memory, forced, None
    (z,) = as_float(z)
    if policy == "sample":
        u = uniforms_at(memory.ids, numbers.k0, numbers.k1, numbers.fields + n.astype(jnp.uint32))
        return memory, (u < jax.nn.sigmoid(z)) | forced, None  # a NaN is not greater
    reached, left = memory.left, memory.left + log_sigmoid(-z)
    memory = memory._replace(left=left)
    if policy == "quantile":
        return memory, (-jnp.expm1(left) >= numbers.q.astype(z.dtype)) | forced, None
    halts = ((left < numbers.log_epsilon.astype(z.dtype)) & (n >= numbers.min_steps)) | forced
    log_p = reached + log_sigmoid(z)
    if remainder == "last":  # the mass left belongs to the last step (H2)
        weight = jnp.exp(jnp.where(halts, reached, log_p))
        return memory, halts, Blending(jnp.ones_like(weight), weight, jnp.ones_like(weight))
    top = jnp.maximum(memory.top, log_p)  # weights relative to the largest so far (H3)
    scale, weight = jnp.exp(memory.top - top), jnp.exp(log_p - top)
    memory = memory._replace(top=top, mass=memory.mass * scale + weight)
    return memory, halts, Blending(scale, weight, memory.mass)
