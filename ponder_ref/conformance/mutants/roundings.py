"""Backends that are right to rounding in a way of their own, and beside each of them one that is not."""

import functools
import math

import numpy as np

import ponder_ref as R
from ponder_ref.conformance.mutants.base import Mutant, again, changed
from ponder_ref.halting import as_float

SINGLE, BOTH = ("float32",), ("float64", "float32")


def _plain_sums(right, given, dtype="float32"):
    """log p by a plain running sum, one addition a step, each rounded to the dtype."""
    exact, cut = again(right, given), given["lengths"]
    z = np.real(given["halt_logits"]).astype(np.float32)
    n = np.arange(1, len(z) + 1).reshape(-1, *[1] * (z.ndim - 1))
    cut = np.full(z.shape[1:], len(z)) if cut is None else cut
    last = given["remainder"] == "last"
    z = np.where(n < cut if last else n <= cut, z, 0)
    halt, stay = -np.logaddexp(np.float32(0), -z), -np.logaddexp(np.float32(0), z)
    sums = np.cumsum(stay.astype(dtype), axis=0, dtype=dtype).astype(np.float32)
    reached = np.concatenate([np.zeros_like(z[:1]), sums[:-1]])
    log_p = np.where((n == cut) & last, reached, halt + reached)
    log_p = np.where(n > cut, np.float32(-np.inf), log_p)
    if not last:
        log_p = np.where((log_p == -np.inf).all(axis=0) & (n <= cut), 0, log_p)
        log_p = log_p - log_p.max(axis=0)
        log_p = np.where(n > cut, -np.inf, log_p - np.log(np.exp(log_p).sum(axis=0)))
    return log_p + 1j * np.imag(exact) if np.iscomplexobj(exact) else log_p


def _log_sum(x):
    return x.max() + np.log(np.exp(x - x.max()).sum())


def _poisson(right, given, dtype="float64"):
    """The Poisson prior by the logarithm of the gamma function."""
    exact, rate, steps = again(right, given), given["rate"], given["max_steps"]
    count = steps + int(rate + 40 * math.sqrt(rate)) + 60
    n = np.arange(count).astype(dtype)
    raw = np.dtype(dtype).type(-rate) + n * np.dtype(dtype).type(math.log(rate))
    raw = (raw - np.array([math.lgamma(k + 1) for k in n], dtype)).astype(dtype)
    log_prior = raw[:steps].copy()
    if given["remainder"] == "last":
        log_prior[-1] = _log_sum(raw[steps - 1 :])
    else:
        log_prior = log_prior - _log_sum(log_prior)
    return log_prior.astype(exact.dtype)


def _not_negative(right, given):
    kl = again(right, given)
    return np.where(np.real(kl) < 0, 0, kl)


def _loss_not_negative(right, given):
    parts = again(right, given)
    reg = np.where(np.real(parts.example_reg) < 0, 0, parts.example_reg)
    mean = R.weighted_mean(reg, given["weights"])
    return parts._replace(loss=parts.loss_rec + given["beta"] * mean, loss_reg=mean, example_reg=reg)


def _terms_not_negative(right, given):
    kl, log_p, prior = again(right, given), as_float(given["log_p"]), np.real(as_float(given["log_prior"]))
    prior = prior.reshape(*prior.shape, *[1] * (log_p.ndim - prior.ndim))
    gone = (np.real(log_p) == -np.inf) | ~np.isfinite(prior)
    terms = np.exp(np.where(gone, 0, log_p)) * np.where(gone, 0, log_p - np.where(gone, 0, prior))
    return np.where(np.isfinite(np.real(kl)), np.where(gone | (np.real(terms) < 0), 0, terms).sum(axis=0), kl)


def _free_nats(right, given):
    kl = again(right, given)
    return np.where(np.real(kl) < 1e-3, 1e-3, kl)


def _normalised_quantile(right, given, axis=0):
    """The quantile of p divided by its sum."""
    again(right, given)
    p = np.exp(np.asarray(given["log_p"], np.float64))
    sums = np.cumsum(p / p.sum(axis=axis, keepdims=True), axis=0)
    n = np.arange(1, len(p) + 1).reshape(-1, *[1] * (p.ndim - 1))
    possible = np.where(p > 0, n, 1).max(axis=0)
    reached = sums >= given["q"]
    return np.where(reached.any(axis=0), np.minimum(reached.argmax(axis=0) + 1, possible), possible)


def _quantile_of_the_batch(right, given):
    steps = again(right, given)
    whole = given["log_p"].ndim > 1 and given["log_p"].shape[1] > 1
    return _normalised_quantile(right, given, axis=1) if whole else steps


EQUIVALENTS = (
    Mutant("plain-sums", "a running sum in float32", "", changed("log_halting", _plain_sums), SINGLE),
    Mutant("prior-by-gamma", "the Poisson prior by lgamma", "", changed("poisson_log_prior", _poisson), BOTH),
    Mutant(
        "kl-not-negative",
        "a KL that rounding made negative is 0",
        "",
        {**changed("kl_divergence", _not_negative), **changed("ponder_loss", _loss_not_negative)},
        BOTH,
    ),
    Mutant(
        "quantile-normalised",
        "the quantile of p divided by its sum",
        "",
        changed("quantile_steps", _normalised_quantile),
        ("float64", "float32", "float16"),
    ),
)

_half_sums, _single_prior = (
    functools.partial(f, dtype=d) for f, d in ((_plain_sums, "float16"), (_poisson, "float32"))
)
MUTANTS = (
    Mutant("half-sums", "a running sum in float16", "H10", changed("log_halting", _half_sums), SINGLE),
    Mutant("single-prior", "a prior computed in float32", "P4", changed("poisson_log_prior", _single_prior), BOTH),
    Mutant(
        "kl-terms-clamped", "each term of the KL is at least 0", "L2", changed("kl_divergence", _terms_not_negative)
    ),
    Mutant("kl-free-nats", "the KL is at least 0.001", "L2", changed("kl_divergence", _free_nats), SINGLE),
    Mutant("quantile-of-the-batch", "p over the batch", "S6", changed("quantile_steps", _quantile_of_the_batch)),
)
