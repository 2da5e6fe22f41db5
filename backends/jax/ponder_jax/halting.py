"""The halting distribution (spec H1 to H8; paper §2.2 and §2.3)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid

from ponder_jax.arrays import as_float, expand_right, jitted, length_array, step_numbers
from ponder_ref import checks


def _used(n: jax.Array, lengths: jax.Array | int, remainder: str) -> jax.Array:
    """Which entries the distribution uses: n < Nᵢ ("last" does not use λ_N), or n ≤ Nᵢ."""
    return n < lengths if remainder == "last" else n <= lengths


def _set_nan_aside(x: jax.Array, harmless: float) -> tuple[jax.Array, jax.Array]:
    """x without its NaN, and a constant that brings them back by addition.

    A NaN then reaches every value it should, but no derivative: a row whose cotangent is 0 keeps a gradient of 0 (H9).
    """
    bad = jnp.isnan(x)
    return jnp.where(bad, harmless, x), jnp.where(bad, jax.lax.stop_gradient(x), 0.0)


def _log_halting(log_halt, log_continue, n, lengths, remainder: str) -> jax.Array:
    """log pₙ from log λₙ and log(1 − λₙ), both `[N, ...batch]` (H1 to H4)."""
    reached = jnp.concatenate([jnp.zeros_like(log_continue[:1]), jnp.cumsum(log_continue[:-1], 0)])  # Σ_{j<n}
    log_p = log_halt + reached
    if remainder == "last":
        log_p = jnp.where(n == lengths, reached, log_p)
    else:
        log_p, nan = _set_nan_aside(jnp.where(n > lengths, -math.inf, log_p), 0.0)  # no NaN in softmax's derivative
        never = (log_p == -math.inf).all(0)  # every λ is 0: uniform by definition
        log_p = jax.nn.log_softmax(jnp.where(never & (n <= lengths), 0.0, log_p), 0) + nan.sum(0)
    return jnp.where(n > lengths, -math.inf, log_p)


@jitted
def log_halting(halt_logits: jax.Array, *, remainder: str = "last", lengths: jax.Array | None = None) -> jax.Array:
    """Log-probability of halting at each step, from logits.

        log pₙ = logsigmoid(zₙ) + Σ_{j<n} logsigmoid(−zⱼ)                       (H1; paper eq. 1 and 2)

    Args:
      halt_logits: `[N, ...batch]`, zₙ.
      remainder: "last" gives the mass left after N to step N (H2), "normalize" divides it out (H3).
      lengths: `[...batch]` integers Nᵢ, cuts example i at its own number of steps (H4).

    Returns:
      `[N, ...batch]`; the exponentials sum to 1 over the first axis.
    """
    checks.check_steps_first("halt_logits", halt_logits)
    checks.check_remainder(remainder)
    (z,) = as_float(halt_logits)
    n, cut = step_numbers(z), length_array(lengths, z)
    z, nan = _set_nan_aside(jnp.where(_used(n, cut, remainder), z, 0.0), 0.0)
    return _log_halting(log_sigmoid(z) + nan, log_sigmoid(-z) + nan, n, cut, remainder)


@jitted
def log_halting_from_lambdas(
    lambdas: jax.Array, *, remainder: str = "last", lengths: jax.Array | None = None
) -> jax.Array:
    """Log-probability of halting at each step, from λₙ in [0, 1] (H5; paper eq. 2).

        log pₙ = log λₙ + Σ_{j<n} log1p(−λⱼ)

    Arguments and result as for `log_halting`.
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_remainder(remainder)
    (lam,) = as_float(lambdas)
    n, cut = step_numbers(lam), length_array(lengths, lam)
    lam, nan = _set_nan_aside(jnp.where(_used(n, cut, remainder), lam, 0.5), 0.5)
    zero, one = lam == 0, lam == 1  # their logarithms are constants, so that no 1/0 enters a gradient
    log_halt = jnp.where(zero, -math.inf, jnp.log(jnp.where(zero, 1.0, lam)))
    log_continue = jnp.where(one, -math.inf, jnp.log1p(-jnp.where(one, 0.0, lam)))
    return _log_halting(log_halt + nan, log_continue + nan, n, cut, remainder)


def halting_lengths(halt_logits: jax.Array, *, epsilon: float, min_steps: int = 1) -> jax.Array:
    """Nᵢ from ε: the smallest n ≥ min_steps with Σ_{j≤n} logsigmoid(−zⱼ) < log ε, else N (H6; paper §2.3)."""
    checks.check_steps_first("halt_logits", halt_logits)
    checks.check_number("epsilon", epsilon, "(0, 1)")
    checks.check_count("min_steps", min_steps, 1, halt_logits.shape[0])
    return _halting_lengths(halt_logits, np.asarray(math.log(epsilon)), np.asarray(min_steps, np.int32))


@jitted
def _halting_lengths(halt_logits, log_epsilon, min_steps) -> jax.Array:
    """Not compiled again for another ε."""
    (z,) = as_float(jax.lax.stop_gradient(halt_logits))
    n = step_numbers(z)
    left = jnp.cumsum(log_sigmoid(-z), 0)
    return jnp.where((left < log_epsilon.astype(left.dtype)) & (n >= min_steps), n, z.shape[0]).min(0)


@jitted
def expected_steps(log_p: jax.Array) -> jax.Array:
    """Σₙ n·pₙ, `[...batch]` (H7; paper app. A)."""
    checks.check_steps_first("log_p", log_p)
    (log_p,) = as_float(log_p)
    return (step_numbers(log_p).astype(log_p.dtype) * jnp.exp(log_p)).sum(0)


@jitted
def expected_prediction(log_p: jax.Array, y_hat: jax.Array) -> jax.Array:
    """Σₙ pₙ·ŷₙ, `[...batch, ...]`, for y_hat `[N, ...batch, ...]`; impossible steps are left out (H8; paper §2.2)."""
    checks.check_steps_first("log_p", log_p)
    checks.check_predictions(y_hat, log_p.shape, "log_p")
    log_p, y_hat = as_float(log_p, y_hat)
    log_p = expand_right(log_p, y_hat.ndim)
    return (jnp.exp(log_p) * jnp.where(log_p == -math.inf, 0.0, y_hat)).sum(0)
