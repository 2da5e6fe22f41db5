"""Adaptive computation time, the baseline (spec A1 to A4; paper app. A; Graves 2016)."""

import jax
import jax.numpy as jnp
import numpy as np

from ponder_jax.arrays import as_float, expand_right, jitted, step_numbers
from ponder_ref import checks
from ponder_ref.base import ActHalting


def act_halting(lambdas: jax.Array, *, epsilon: float = 0.01) -> ActHalting:
    """Steps, weights and remainder of ACT for λ `[N, ...batch]`.

    Nᵢ = first n with Σ_{j≤n} λⱼ ≥ 1 − ε, else N                              (A1)
    wₙ = λₙ for n < Nᵢ,  w_{Nᵢ} = R = 1 − Σ_{n<Nᵢ} λₙ,  0 beyond              (A2)
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_number("epsilon", epsilon, "(0, 1)")
    return _act_halting(lambdas, np.asarray(1 - float(epsilon)))


@jitted
def _act_halting(lambdas, threshold) -> ActHalting:
    """Not compiled again for another ε."""
    (lam,) = as_float(lambdas)
    n = step_numbers(lam)
    enough = jnp.cumsum(jax.lax.stop_gradient(lam), 0) >= threshold.astype(lam.dtype)
    steps = jnp.where(enough, n, lam.shape[0]).min(0)
    return act_weights(lam, steps)


def act_weights(lam: jax.Array, steps: jax.Array) -> ActHalting:
    """Weights and remainder of λ `[N, ...batch]` for steps `[...batch]` that are known (A2)."""
    n = step_numbers(lam)
    before = jnp.where(n < steps, lam, 0.0)
    remainder = 1 - before.sum(0)
    return ActHalting(jnp.where(n == steps, remainder, before), steps, remainder)


def act_cost(steps: jax.Array, remainder: jax.Array, *, tau: float | jax.Array) -> jax.Array:
    """τ·(N + R) for each example, `[...batch]` (A3); the gradient reaches λ through R alone."""
    checks.check_integer("steps", steps)
    checks.check_floating("remainder", remainder)
    checks.check_shape("steps", steps, remainder.shape, "remainder")
    checks.check_batch("remainder", remainder.shape)
    checks.check_scalar("tau", tau, "[0, inf)")
    return _act_cost(steps, remainder, tau if isinstance(tau, jax.Array) else np.asarray(float(tau)))


@jitted
def _act_cost(steps, remainder, tau) -> jax.Array:
    """Not compiled again for another τ."""
    (remainder,) = as_float(remainder)
    return tau.astype(remainder.dtype) * (jnp.asarray(steps, remainder.dtype) + remainder)


@jitted
def act_output(weights: jax.Array, y_hat: jax.Array) -> jax.Array:
    """Σₙ wₙ·ŷₙ, `[...batch, ...]`, for y_hat `[N, ...batch, ...]`; steps of weight 0 are left out (A4)."""
    checks.check_steps_first("weights", weights)
    checks.check_predictions(y_hat, weights.shape, "weights")
    weights, y_hat = as_float(weights, y_hat)
    weights = expand_right(weights, y_hat.ndim)
    return (weights * jnp.where(weights == 0, 0.0, y_hat)).sum(0)
