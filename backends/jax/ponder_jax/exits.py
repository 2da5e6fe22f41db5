"""When an example leaves: exit policies for examples that are at different steps (spec I1 to I4).

Everything is an array of fixed shape, `[slots]`, so that the loop is compiled once and runs on the device alone. A
policy is a class in POLICIES; what it remembers of the examples in the slots is a tree of such arrays.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
    """Of the examples in the slots: their ids and steps, `[slots]`, and what the policy remembers."""

    ids: jax.Array
    n: jax.Array
    own: Any


class Blending(NamedTuple):
    """How a step enters the expected answer, `[slots]`: blend ← scale·blend + weight·ŷ; the answer is blend / mass."""

    scale: jax.Array
    weight: jax.Array
    mass: jax.Array


@dataclass(frozen=True)
class Fixed:
    """All examples take max_steps (I3). Also the contract of the others; the compiler knows which it is."""

    blends: ClassVar[bool] = False  # whether the answer is a mean of predictions

    def start(self, zeros: jax.Array) -> Any:
        """What is remembered of examples before their first step, from zeros `[slots]` in the dtype of the logits."""
        return None

    def decide(self, numbers: Numbers, memory: Memory, z: jax.Array) -> tuple[Any, jax.Array | bool]:
        """What is remembered after steps n with logits z, `[slots]`, and which examples have had enough."""
        return memory.own, False

    def blend(self, before: Any, own: Any, z: jax.Array, halts: jax.Array) -> tuple[Any, Blending | None]:
        """How that step is blended where `halts` leave; None if the answer is the last prediction."""
        return own, None


class Sample(Fixed):
    """An example halts if uₙ < λₙ (I1)."""

    def decide(self, numbers: Numbers, memory: Memory, z: jax.Array) -> tuple[Any, jax.Array | bool]:
        u = uniforms_at(memory.ids, numbers.k0, numbers.k1, numbers.fields + memory.n.astype(jnp.uint32))
        return None, u < jax.nn.sigmoid(z)  # a NaN is not greater


class Quantile(Fixed):
    """An example halts at the first n by which it has halted with probability q (I2)."""

    def start(self, zeros: jax.Array) -> Any:
        return zeros  # Σ log(1 − λ)

    def decide(self, numbers: Numbers, memory: Memory, z: jax.Array) -> tuple[Any, jax.Array | bool]:
        left = memory.own + log_sigmoid(-z)
        return left, -jnp.expm1(left) >= numbers.q.astype(z.dtype)


class Mean(NamedTuple):
    """What "expected" remembers: Σ log(1 − λ); for "normalize" the largest log p and Σ p relative to it."""

    left: jax.Array
    top: jax.Array
    mass: jax.Array


@dataclass(frozen=True)
class Expected(Fixed):
    """An example halts when all but ε of it has, and answers Σ pₙŷₙ (I4)."""

    remainder: str
    blends: ClassVar[bool] = True

    def start(self, zeros: jax.Array) -> Mean:
        return Mean(zeros, jnp.full_like(zeros, -math.inf) if self.remainder == "normalize" else zeros, zeros)

    def decide(self, numbers: Numbers, memory: Memory, z: jax.Array) -> tuple[Any, jax.Array | bool]:
        left = memory.own.left + log_sigmoid(-z)
        enough = (left < numbers.log_epsilon.astype(z.dtype)) & (memory.n >= numbers.min_steps)
        return memory.own._replace(left=left), enough

    def blend(self, before: Mean, own: Mean, z: jax.Array, halts: jax.Array) -> tuple[Any, Blending | None]:
        """Weights of this step: pₙ, with the mass left at the last one (H2), or relative to the largest (H3)."""
        log_p = before.left + log_sigmoid(z)
        if self.remainder == "last":
            weight = jnp.exp(jnp.where(halts, before.left, log_p))
            return own, Blending(jnp.ones_like(weight), weight, jnp.ones_like(weight))
        top = jnp.maximum(before.top, log_p)
        scale, weight = jnp.exp(before.top - top), jnp.exp(log_p - top)
        own = own._replace(top=top, mass=before.mass * scale + weight)
        return own, Blending(scale, weight, own.mass)


POLICIES: dict[str, type[Fixed]] = {"sample": Sample, "quantile": Quantile, "fixed": Fixed, "expected": Expected}


def policy_of(rule: ExitRule) -> Fixed:
    """The policy of a rule; only one that blends knows of the remainder, so that others are compiled once."""
    kind: Any = POLICIES[rule.policy]
    return kind(rule.remainder) if kind.blends else kind()


def fresh_memory(policy: Fixed, ids: jax.Array, dtype: Any) -> Memory:
    """Of examples before their first step; `dtype` is that of the sums of their logits."""
    return Memory(ids.astype(jnp.uint32), jnp.zeros(ids.shape, jnp.int32), policy.start(jnp.zeros(ids.shape, dtype)))


def decide(policy: Fixed, numbers: Numbers, memory: Memory, z: jax.Array) -> tuple[Memory, jax.Array, Blending | None]:
    """Which slots leave after a step with logits z, `[slots]`; and how it is blended, for "expected"."""
    (z,) = as_float(z)
    memory, before = memory._replace(n=memory.n + 1), memory.own
    own, enough = policy.decide(numbers, memory, z)
    halts = enough | (memory.n >= numbers.max_steps)
    own, blending = policy.blend(before, own, z, halts)
    return memory._replace(own=own), halts, blending
