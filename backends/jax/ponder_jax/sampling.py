"""Counter-based uniforms, sampled steps and the quantile exit (spec S1 to S6; paper §2.5)."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from ponder_jax.arrays import as_float, jitted, length_array, step_numbers
from ponder_ref import checks
from ponder_ref.sampling import MASK, PARITY, ROTATIONS, check_counter


@jax.jit
def _rounds(k0, k1, x0, x1) -> tuple[jax.Array, jax.Array]:
    """The block function on uint32, which wraps."""
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def threefry2x32(key, counter) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds (S1): two pairs of 32-bit words to a pair of 32-bit words, in uint32."""
    return _rounds(*(jnp.asarray(word, jnp.uint32) for word in (*key, *counter)))


def halting_uniforms(seed: int, example_ids: jax.Array, *, max_steps: int, draw: int = 0, domain: int = 0) -> jax.Array:
    """Uniforms in [0, 1) for each step and example, `[max_steps, ...ids]`, float32 (S2).

    key = (seed mod 2³², seed div 2³²), counter = (id mod 2³², domain·2²⁸ + draw·2¹⁶ + n), u = (word >> 8)·2⁻²⁴.
    """
    check_counter(seed, example_ids, max_steps, draw, domain)
    numbers = (seed & MASK, seed >> 32, (domain << 28) + (draw << 16))
    return _uniforms(jnp.asarray(example_ids), *(np.uint32(number) for number in numbers), max_steps)


@functools.partial(jax.jit, static_argnums=4)
def _uniforms(example_ids, k0, k1, fields, max_steps: int) -> jax.Array:
    """Not compiled again for another seed or draw."""
    ids = example_ids[None]
    steps = jnp.arange(1, max_steps + 1, dtype=jnp.uint32).reshape(-1, *[1] * (ids.ndim - 1))
    return uniforms_at(ids, k0, k1, fields + steps)


def uniforms_at(example_ids, k0, k1, fields) -> jax.Array:
    """The uniforms of some example ids at some steps, arrays that are broadcast to each other (S2)."""
    ids = example_ids.astype(jnp.uint32)
    word, _ = threefry2x32((k0, k1), jnp.broadcast_arrays(ids, fields))
    return (word >> jnp.uint32(8)).astype(jnp.float32) * 2**-24


@jitted
def sample_steps(lambdas: jax.Array, uniforms: jax.Array, *, lengths: jax.Array | None = None) -> jax.Array:
    """The first n with uₙ < λₙ, forced at Nᵢ; integers `[...batch]` (S3; paper §2.5)."""
    checks.check_steps_first("lambdas", lambdas)
    checks.check_like("uniforms", uniforms, lambdas, "lambdas")
    lam, uniforms = as_float(lambdas, uniforms)
    n = step_numbers(lam)
    halts = (uniforms < lam) | (n >= length_array(lengths, lam))
    return jnp.where(halts, n, lam.shape[0]).min(0)


def draw_steps(
    lambdas: jax.Array, seed: int, example_ids: jax.Array, *, draw: int = 0, lengths: jax.Array | None = None
) -> jax.Array:
    """Steps sampled with the uniforms that (seed, example id, draw) name (S4, S5).

    lambdas: `[N, ...batch]`; example_ids: `[...batch]` integers, an example's own wherever it stands.
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_integer("example_ids", example_ids)
    checks.check_shape("example_ids", example_ids, lambdas.shape[1:], "the batch")
    uniforms = halting_uniforms(seed, example_ids, max_steps=lambdas.shape[0], draw=draw)
    return sample_steps(lambdas, uniforms, lengths=lengths)


def quantile_steps(log_p: jax.Array, *, q: float) -> jax.Array:
    """The first n with Σ_{j≤n} pⱼ ≥ q; integers `[...batch]` (S6)."""
    checks.check_steps_first("log_p", log_p)
    checks.check_number("q", q, "(0, 1]")
    return _quantile_steps(log_p, np.asarray(float(q)))


@jitted
def _quantile_steps(log_p, q) -> jax.Array:
    """Not compiled again for another q."""
    (log_p,) = as_float(jax.lax.stop_gradient(log_p))
    n = step_numbers(log_p)
    last = jnp.where(log_p > -math.inf, n, 1).max(0)  # where rounding leaves the sum below q
    return jnp.where(jnp.cumsum(jnp.exp(log_p), 0) >= q.astype(log_p.dtype), n, last).min(0)
