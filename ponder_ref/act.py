"""Adaptive computation time, the baseline (spec A1 to A4; paper app. A; Graves 2016)."""

import numpy as np

from ponder_ref import checks
from ponder_ref.base import ActHalting
from ponder_ref.halting import as_float, step_numbers


def act_halting(lambdas, *, epsilon: float = 0.01) -> ActHalting:
    """Steps, weights and remainder of ACT for λ `[N, ...batch]`.

        Nᵢ = first n with Σ_{j≤n} λⱼ ≥ 1 − ε, else N                              (A1)
        wₙ = λₙ for n < Nᵢ,  w_{Nᵢ} = R = 1 − Σ_{n<Nᵢ} λₙ,  0 beyond              (A2)

    >>> act_halting(np.full(6, 0.4)).weights.round(12)
    array([0.4, 0.4, 0.2, 0. , 0. , 0. ])
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_number("epsilon", epsilon, "(0, 1)")
    lam = as_float(lambdas)
    n = step_numbers(lam)
    enough = np.cumsum(np.real(lam), axis=0) >= 1 - epsilon
    steps = np.where(enough, n, lam.shape[0]).min(axis=0)
    return act_weights(lam, steps)


def act_weights(lam, steps) -> ActHalting:
    """Weights and remainder of λ `[N, ...batch]` for steps `[...batch]` that are known (A2)."""
    n = step_numbers(lam)
    before = np.where(n < steps, lam, 0)
    remainder = 1 - before.sum(axis=0)
    return ActHalting(np.where(n == steps, remainder, before), steps, remainder)


def act_cost(steps, remainder, *, tau) -> np.ndarray:
    """τ·(N + R) for each example, `[...batch]` (A3); the gradient reaches λ through R alone."""
    checks.check_integer("steps", steps)
    checks.check_floating("remainder", remainder)
    checks.check_shape("steps", steps, remainder.shape, "remainder")
    checks.check_batch("remainder", remainder.shape)
    checks.check_scalar("tau", tau, "[0, inf)")
    return tau * (np.asarray(steps) + as_float(remainder))


def act_output(weights, y_hat) -> np.ndarray:
    """Σₙ wₙ·ŷₙ, `[...batch, ...]`, for y_hat `[N, ...batch, ...]`; steps of weight 0 are left out (A4)."""
    checks.check_steps_first("weights", weights)
    checks.check_predictions(y_hat, weights.shape, "weights")
    weights, y_hat = as_float(weights), as_float(y_hat)
    weights = weights.reshape(*weights.shape, *[1] * (y_hat.ndim - weights.ndim))
    return (weights * np.where(weights == 0, 0, y_hat)).sum(axis=0)
