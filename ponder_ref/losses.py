"""Expected loss, KL divergence and their total (spec L1 to L4; paper §2.4, eq. 3)."""

import numpy as np

from ponder_ref import checks
from ponder_ref.base import PonderLoss
from ponder_ref.halting import as_float


def expected_loss(log_p, step_losses) -> np.ndarray:
    """Σₙ pₙ·ℓₙ for each example, `[...batch]` (L1; first term of eq. 3). Both arguments are `[N, ...batch]`.

    >>> round(float(expected_loss(np.log([0.9, 0.1]), np.array([1.0, 5.0]))), 12)
    1.4
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    log_p, step_losses = as_float(log_p), as_float(step_losses)
    return (np.exp(log_p) * np.where(np.real(log_p) == -np.inf, 0, step_losses)).sum(axis=0)


def kl_divergence(log_p, log_prior) -> np.ndarray:
    """KL(p ‖ prior) = Σₙ pₙ·(log pₙ − log priorₙ) for each example, `[...batch]` (L2; second term of eq. 3).

    Args:
      log_p: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`; no gradient flows into it.
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_log_prior(log_prior, log_p)
    log_p, log_prior = as_float(log_p), np.real(as_float(log_prior))
    log_prior = log_prior.reshape(*log_prior.shape, *[1] * (log_p.ndim - log_prior.ndim))
    impossible = np.real(log_p) == -np.inf
    excluded = (log_prior == -np.inf) & ~impossible
    with np.errstate(invalid="ignore"):
        ratio = np.where(impossible | excluded, 0, log_p - log_prior)
    return np.where(excluded, np.inf, np.exp(log_p) * ratio).sum(axis=0)


def weighted_mean(values, weights=None):
    """Σ wᵢvᵢ / Σ wᵢ over the whole batch; an example of weight 0 is left out, not multiplied (L3).

    >>> float(weighted_mean(np.array([1.0, 3.0, np.nan]), np.array([1.0, 3.0, 0.0])))
    2.5
    """
    checks.check_floating("values", values)
    checks.check_batch("values", values.shape)
    checks.check_weights(weights, values.shape)
    values = as_float(values)
    weights = np.ones(values.shape) if weights is None else np.asarray(weights, np.float64)
    if weights.min() < 0 or weights.sum() == 0:
        raise ValueError(f"weights must be non-negative with a positive sum, got {weights}")
    return (weights * np.where(weights == 0, 0, values)).sum() / weights.sum()


def ponder_loss(log_p, step_losses, log_prior, *, beta, weights=None) -> PonderLoss:
    """The training loss of PonderNet, and its parts.

        loss = mean Σₙ pₙℓₙ + β · mean KL(p ‖ prior)                            (L4; paper eq. 3)

    Args:
      log_p, step_losses: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`.
      beta: weight of the KL.
      weights: `[...batch]`, non-negative; padding has weight 0 and no influence (L3).
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_scalar("beta", beta, "[0, inf)")
    checks.check_weights(weights, log_p.shape[1:])
    left_out = np.zeros(log_p.shape[1:], bool) if weights is None else np.asarray(weights) == 0
    rec = np.where(left_out, 0, expected_loss(log_p, step_losses))
    reg = np.where(left_out, 0, kl_divergence(log_p, log_prior))
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, rec, reg)
