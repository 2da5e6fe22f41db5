"""Expected loss, KL divergence and their total (spec L1 to L4; paper §2.4, eq. 3)."""

import math

import torch

from ponder_ref import checks
from ponder_ref.base import PonderLoss
from ponder_torch.arrays import as_float, expand_right


def expected_loss(log_p: torch.Tensor, step_losses: torch.Tensor) -> torch.Tensor:
    """Σₙ pₙ·ℓₙ for each example, `[...batch]` (L1; first term of eq. 3). Both arguments are `[N, ...batch]`."""
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    log_p, step_losses = as_float(log_p, step_losses)
    return (torch.exp(log_p) * torch.where(log_p == -math.inf, 0.0, step_losses)).sum(0)


def kl_divergence(log_p: torch.Tensor, log_prior: torch.Tensor) -> torch.Tensor:
    """KL(p ‖ prior) = Σₙ pₙ·(log pₙ − log priorₙ) for each example, `[...batch]` (L2; second term of eq. 3).

    Args:
      log_p: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`; no gradient flows into it.
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_log_prior(log_prior, log_p)
    log_p, log_prior = as_float(log_p, log_prior.detach().to(log_p.device))
    log_prior = expand_right(log_prior, log_p.ndim)
    impossible = log_p == -math.inf
    excluded = (log_prior == -math.inf) & ~impossible
    ratio = torch.where(impossible | excluded, 0.0, log_p - log_prior)
    return torch.where(excluded, math.inf, torch.exp(log_p) * ratio).sum(0)


def weighted_mean(values: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Σ wᵢvᵢ / Σ wᵢ over the whole batch; an example of weight 0 is left out, not multiplied (L3)."""
    checks.check_floating("values", values)
    checks.check_batch("values", tuple(values.shape))
    checks.check_weights(weights, tuple(values.shape))
    if weights is None:
        (values,) = as_float(values)
        return values.sum() / values.numel()
    values, weights = as_float(values, weights)
    return (weights * torch.where(weights == 0, 0.0, values)).sum() / weights.sum()


def ponder_loss(
    log_p: torch.Tensor,
    step_losses: torch.Tensor,
    log_prior: torch.Tensor,
    *,
    beta: float | torch.Tensor,
    weights: torch.Tensor | None = None,
) -> PonderLoss:
    """The training loss of PonderNet, and its parts.

        loss = mean Σₙ pₙℓₙ + β · mean KL(p ‖ prior)                            (L4; paper eq. 3)

    Args:
      log_p, step_losses: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`.
      beta: weight of the KL.
      weights: `[...batch]`, non-negative; padding has weight 0 and no influence (L3).
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    checks.check_scalar("beta", beta, "[0, inf)")
    checks.check_weights(weights, tuple(log_p.shape[1:]))
    if weights is None:
        rec, reg = expected_loss(log_p, step_losses), kl_divergence(log_p, log_prior)
    else:
        # Selected before, so that no NaN of a dead row enters a gradient, and after, so that its values are 0.
        live = weights != 0
        log_p, step_losses = torch.where(live, log_p, 0.0), torch.where(live, step_losses, 0.0)
        rec = torch.where(live, expected_loss(log_p, step_losses), 0.0)
        reg = torch.where(live, kl_divergence(log_p, log_prior), 0.0)
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, rec, reg)
