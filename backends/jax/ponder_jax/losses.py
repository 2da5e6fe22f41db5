"""Expected loss, KL divergence and their total (spec L1 to L4; paper §2.4, eq. 3)."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from ponder_jax.arrays import as_float, expand_right, jitted
from ponder_ref import checks
from ponder_ref.base import PonderLoss


@jitted
def expected_loss(log_p: jax.Array, step_losses: jax.Array) -> jax.Array:
    """Σₙ pₙ·ℓₙ for each example, `[...batch]` (L1; first term of eq. 3). Both arguments are `[N, ...batch]`."""
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    log_p, step_losses = as_float(log_p, step_losses)
    return (jnp.exp(log_p) * jnp.where(log_p == -math.inf, 0.0, step_losses)).sum(0)


@jitted
def kl_divergence(log_p: jax.Array, log_prior: jax.Array) -> jax.Array:
    """KL(p ‖ prior) = Σₙ pₙ·(log pₙ − log priorₙ) for each example, `[...batch]` (L2; second term of eq. 3).

    Args:
      log_p: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`; no gradient flows into it.
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_log_prior(log_prior, log_p)
    log_p, log_prior = as_float(log_p, jax.lax.stop_gradient(log_prior))
    log_prior = expand_right(log_prior, log_p.ndim)
    impossible = log_p == -math.inf
    excluded = (log_prior == -math.inf) & ~impossible
    ratio = jnp.where(impossible | excluded, 0.0, log_p - log_prior)
    return jnp.where(excluded, math.inf, jnp.exp(log_p) * ratio).sum(0)


@jitted
def weighted_mean(values: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """Σ wᵢvᵢ / Σ wᵢ over the whole batch; an example of weight 0 is left out, not multiplied (L3)."""
    checks.check_floating("values", values)
    checks.check_batch("values", values.shape)
    checks.check_weights(weights, values.shape)
    weights = jnp.ones_like(values) if weights is None else weights
    values, weights = as_float(values, weights)
    return (weights * jnp.where(weights == 0, 0.0, values)).sum() / weights.sum()


def ponder_loss(
    log_p: jax.Array,
    step_losses: jax.Array,
    log_prior: jax.Array,
    *,
    beta: float | jax.Array,
    weights: jax.Array | None = None,
) -> PonderLoss:
    """The training loss of PonderNet, and its parts.

        loss = mean Σₙ pₙℓₙ + β · mean KL(p ‖ prior)                            (L4; paper eq. 3)

    Args:
      log_p, step_losses: `[N, ...batch]`.
      log_prior: `[N]` or `[N, ...batch]`.
      beta: weight of the KL.
      weights: `[...batch]`, non-negative; padding has weight 0 and no influence (L3).
    """
    checks.check_scalar("beta", beta, "[0, inf)")
    factor = beta if isinstance(beta, jax.Array) else np.asarray(beta)  # an array: not compiled again for another β
    return _ponder_loss(log_p, step_losses, log_prior, beta=factor, weights=weights)


@jitted
def _ponder_loss(log_p, step_losses, log_prior, *, beta, weights=None) -> PonderLoss:
    checks.check_steps_first("log_p", log_p)
    checks.check_like("step_losses", step_losses, log_p)
    checks.check_weights(weights, log_p.shape[1:])
    live = jnp.ones(log_p.shape[1:], bool) if weights is None else weights.astype(bool)
    # Selected before, so that no NaN of a dead row enters a gradient, and after, so that its values are 0.
    log_p, step_losses = jnp.where(live, log_p, 0.0), jnp.where(live, step_losses, 0.0)
    rec = jnp.where(live, expected_loss(log_p, step_losses), 0.0)
    reg = jnp.where(live, kl_divergence(log_p, log_prior), 0.0)
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    dtype = jnp.promote_types(loss_rec.dtype, loss_reg.dtype)
    loss = loss_rec.astype(dtype) + beta.astype(dtype) * loss_reg.astype(dtype)
    return PonderLoss(loss, loss_rec, loss_reg, rec, reg)
