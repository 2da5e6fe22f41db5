"""Analytic gradients with respect to the logits and to λ (spec H9, L5, A5): what backends' gradients are judged by.

Each function can also return the sum of the *magnitudes* of its terms (`magnitudes=True`), the scale against which
rounding is measured where the terms cancel.
"""

import numpy as np

from ponder_ref.act import act_halting
from ponder_ref.halting import _length_array, _used, log_halting, step_numbers


def _sigmoid(z: np.ndarray) -> np.ndarray:
    """σ(z) without overflow; 1 − σ(z) is σ(−z)."""
    e = np.exp(-np.abs(z))
    return np.where(z > 0, 1, e) / (1 + e)


def _after(x: np.ndarray) -> np.ndarray:
    """Σ_{m>n} x_m along the first axis, summed from the end so that no difference is taken."""
    total = np.cumsum(x[::-1], axis=0)[::-1]
    return np.concatenate([total[1:], np.zeros_like(x[:1])])


def log_halting_gradient(halt_logits, cotangent, *, remainder="last", lengths=None, magnitudes=False) -> np.ndarray:
    """∂/∂z of Σ gₙ·log pₙ, `[N, ...batch]`, for the cotangent g = ∂L/∂ log p (H9).

    "last": (1−λₙ)gₙ − λₙ Σ_{m>n} g_m for n < Nᵢ;  "normalize": the same with g − p·Σg, for n ≤ Nᵢ
    """
    z, g = np.asarray(halt_logits, np.float64), np.asarray(cotangent, np.float64)
    lengths = _length_array(lengths, z)
    used = _used(z, lengths, remainder)
    silent = (g == 0).all(axis=0)  # a row without cotangent has gradient 0, even if its logits are NaN
    z = np.where(used & ~silent, z, 0)
    g = np.where(step_numbers(z) <= lengths, g, 0)
    sign = 1.0 if magnitudes else -1.0
    if magnitudes:
        g = np.abs(g)
    if remainder == "normalize":
        g = g + sign * np.exp(log_halting(z, remainder=remainder, lengths=lengths)) * g.sum(axis=0)
    return np.where(used, _sigmoid(-z) * g + sign * _sigmoid(z) * _after(g), 0)


def ponder_loss_gradients(
    halt_logits, step_losses, log_prior, *, beta, remainder="last", lengths=None, weights=None, magnitudes=False
) -> tuple[np.ndarray, np.ndarray]:
    """∂loss/∂z and ∂loss/∂ℓ, both `[N, ...batch]`, of `ponder_loss(log_halting(z), ℓ, log_prior)` (L5).

    The cotangent of log pₙ is v·pₙ·cₙ with cₙ = ℓₙ + β(log pₙ − log priorₙ); a further +β cancels, being constant.
    """
    z = np.asarray(halt_logits, np.float64)
    shares = np.full(z.shape[1:], 1.0) if weights is None else np.asarray(weights, np.float64)
    shares = shares / shares.sum()
    z = np.where(shares == 0, 0, z)
    log_p = log_halting(z, remainder=remainder, lengths=lengths)
    log_prior = np.asarray(log_prior, np.float64)
    log_prior = log_prior.reshape(*log_prior.shape, *[1] * (z.ndim - log_prior.ndim))
    p = shares * np.exp(log_p)
    possible = (log_p > -np.inf) & (shares > 0)
    with np.errstate(invalid="ignore"):
        loss, surprise = np.asarray(step_losses, np.float64), beta * (log_p - log_prior)
    if magnitudes:
        loss, surprise = np.abs(loss), np.abs(surprise) + beta
    cost = np.where(possible, loss + surprise, 0)
    kwargs = {"remainder": remainder, "lengths": lengths, "magnitudes": magnitudes}
    return log_halting_gradient(z, p * cost, **kwargs), np.where(possible, p, 0)


def act_gradient(lambdas, weights_cotangent, remainder_cotangent, *, epsilon=0.01, magnitudes=False) -> np.ndarray:
    """∂/∂λ of Σ gₙwₙ + r·R, `[N, ...batch]`: gₙ − g_{Nᵢ} − r for n < Nᵢ, 0 from Nᵢ on (A5)."""
    steps = act_halting(lambdas, epsilon=epsilon).steps
    g, r = np.asarray(weights_cotangent, np.float64), np.asarray(remainder_cotangent, np.float64)
    n = step_numbers(g)
    at_last = np.where(n == steps, g, 0).sum(axis=0)
    if magnitudes:
        g, at_last, r = np.abs(g), -np.abs(at_last), -np.abs(r)
    return np.where(n < steps, g - at_last - r, 0)
