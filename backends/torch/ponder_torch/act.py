"""Adaptive computation time, the baseline (spec A1 to A4; paper app. A; Graves 2016)."""

import torch

from ponder_ref import checks
from ponder_ref.base import ActHalting
from ponder_torch.arrays import as_float, expand_right, step_numbers


def act_halting(lambdas: torch.Tensor, *, epsilon: float = 0.01) -> ActHalting:
    """Steps, weights and remainder of ACT for λ `[N, ...batch]`.

    Nᵢ = first n with Σ_{j≤n} λⱼ ≥ 1 − ε, else N                              (A1)
    wₙ = λₙ for n < Nᵢ,  w_{Nᵢ} = R = 1 − Σ_{n<Nᵢ} λₙ,  0 beyond              (A2)
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_number("epsilon", epsilon, "(0, 1)")
    (lam,) = as_float(lambdas)
    n = step_numbers(lam)
    enough = torch.cumsum(lam.detach(), 0) >= 1 - epsilon
    steps = torch.where(enough, n, lam.shape[0]).amin(0)
    return act_weights(lam, steps)


def act_weights(lam: torch.Tensor, steps: torch.Tensor) -> ActHalting:
    """Weights and remainder of λ `[N, ...batch]` for steps `[...batch]` that are known (A2)."""
    n = step_numbers(lam)
    before = torch.where(n < steps, lam, 0.0)
    remainder = 1 - before.sum(0)
    return ActHalting(torch.where(n == steps, remainder, before), steps, remainder)


def act_cost(steps: torch.Tensor, remainder: torch.Tensor, *, tau: float | torch.Tensor) -> torch.Tensor:
    """τ·(N + R) for each example, `[...batch]` (A3); the gradient reaches λ through R alone."""
    checks.check_integer("steps", steps)
    checks.check_floating("remainder", remainder)
    checks.check_shape("steps", steps, tuple(remainder.shape), "remainder")
    checks.check_batch("remainder", tuple(remainder.shape))
    checks.check_scalar("tau", tau, "[0, inf)")
    (remainder,) = as_float(remainder)
    return tau * (steps + remainder)


def act_output(weights: torch.Tensor, y_hat: torch.Tensor) -> torch.Tensor:
    """Σₙ wₙ·ŷₙ, `[...batch, ...]`, for y_hat `[N, ...batch, ...]`; steps of weight 0 are left out (A4)."""
    checks.check_steps_first("weights", weights)
    checks.check_predictions(y_hat, tuple(weights.shape), "weights")
    weights, y_hat = as_float(weights, y_hat)
    weights = expand_right(weights, y_hat.ndim)
    return (weights * torch.where(weights == 0, 0.0, y_hat)).sum(0)
