"""Defects of the losses."""

import numpy as np

import ponder_ref as R
from ponder_ref.base import PonderLoss
from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.halting import as_float


def divided_by_p(log_p, step_losses):
    return (np.exp(as_float(log_p)) * step_losses).sum(axis=0) / np.exp(as_float(log_p)).sum(axis=0) / len(log_p) * 2


def plain_mean(log_p, step_losses):
    return as_float(step_losses).mean(axis=0)


def mixture(log_p, step_losses):
    return -np.log((np.exp(as_float(log_p)) * np.exp(-as_float(step_losses))).sum(axis=0))


def loss_by_multiplication(log_p, step_losses):
    return (np.exp(as_float(log_p)) * step_losses).sum(axis=0)


def _ratio(log_p, log_prior):
    prior = np.real(as_float(log_prior))
    return as_float(log_p) - prior.reshape(*prior.shape, *[1] * (log_p.ndim - prior.ndim))


def reversed_kl(log_p, log_prior):
    ratio = _ratio(log_p, log_prior)
    prior = np.exp(as_float(log_p) - ratio)
    return np.where(prior == 0, 0, -prior * ratio).sum(axis=0)


def log_zero(log_p, log_prior):
    p = np.exp(as_float(log_p))
    prior = np.exp(as_float(log_p) - _ratio(log_p, log_prior))
    return (p * (np.log(p) - np.log(prior))).sum(axis=0)


def kl_epsilon(log_p, log_prior):
    p = np.exp(as_float(log_p))
    prior = np.exp(as_float(log_p) - _ratio(log_p, log_prior))
    return (p * (np.log(p + 1e-8) - np.log(prior + 1e-8))).sum(axis=0)


def gradient_into_prior(log_p, log_prior):
    right = R.kl_divergence(log_p, log_prior)
    leak = 1j * np.imag(log_prior) if np.iscomplexobj(log_prior) else np.zeros(log_prior.shape)
    return right - (np.exp(as_float(log_p)) * leak.reshape(*leak.shape, *[1] * (log_p.ndim - leak.ndim))).sum(axis=0)


def excluded_is_nan(log_p, log_prior):
    right = R.kl_divergence(log_p, log_prior)
    return np.where(np.isinf(np.real(right)), np.nan, right)


def weights_ignored(values, weights=None):
    return R.weighted_mean(np.where(np.isnan(np.real(values)), 0, as_float(values)))


def sum_instead_of_mean(values, weights=None):
    return R.weighted_mean(values, weights) * (values.size if weights is None else np.sum(weights))


def padding_counted(values, weights=None):
    total = values.size if weights is None else weights.size
    return (
        R.weighted_mean(values, weights)
        * (1 if weights is None else np.sum(weights))
        / (1 if weights is None else total)
    )


def padding_multiplied(values, weights=None):
    weights = np.ones(values.shape) if weights is None else np.asarray(weights, np.float64)
    return (weights * as_float(values)).sum() / weights.sum()


def _parts(log_p, step_losses, log_prior, beta, weights, rec=None, reg=None, total=None):
    right = R.ponder_loss(log_p, step_losses, log_prior, beta=beta, weights=weights)
    rec = right.loss_rec if rec is None else rec
    reg = right.loss_reg if reg is None else reg
    total = (lambda rec, reg: rec + beta * reg) if total is None else total
    return PonderLoss(total(rec, reg), rec, reg, right.example_rec, right.example_reg)


def averaged_before_weighting(log_p, step_losses, log_prior, *, beta, weights=None):
    if weights is not None or log_p.ndim < 2:
        return R.ponder_loss(log_p, step_losses, log_prior, beta=beta, weights=weights)
    axes = tuple(range(1, log_p.ndim))
    p = np.exp(as_float(log_p)).mean(axis=axes)
    losses = np.where(np.isnan(np.real(step_losses)), 0, as_float(step_losses)).mean(axis=axes)
    return _parts(log_p, step_losses, log_prior, beta, weights, rec=(p * losses).sum())


def beta_missing(log_p, step_losses, log_prior, *, beta, weights=None):
    return _parts(log_p, step_losses, log_prior, beta, weights, total=lambda rec, reg: rec + reg)


def beta_twice(log_p, step_losses, log_prior, *, beta, weights=None):
    return _parts(log_p, step_losses, log_prior, beta, weights, total=lambda rec, reg: rec + beta * beta * reg)


def beta_on_the_other(log_p, step_losses, log_prior, *, beta, weights=None):
    return _parts(log_p, step_losses, log_prior, beta, weights, total=lambda rec, reg: beta * rec + reg)


def p_detached_in_reconstruction(log_p, step_losses, log_prior, *, beta, weights=None):
    rec = R.ponder_loss(detach(log_p), step_losses, log_prior, beta=beta, weights=weights).loss_rec
    return _parts(log_p, step_losses, log_prior, beta, weights, rec=rec)


def kl_detached(log_p, step_losses, log_prior, *, beta, weights=None):
    reg = R.ponder_loss(detach(log_p), detach(step_losses), log_prior, beta=detach(beta), weights=weights).loss_reg
    return _parts(log_p, step_losses, log_prior, beta, weights, reg=reg)


def weights_only_in_reconstruction(log_p, step_losses, log_prior, *, beta, weights=None):
    if weights is None:
        return R.ponder_loss(log_p, step_losses, log_prior, beta=beta)
    live = np.where(np.isnan(np.real(log_p)), 0, as_float(log_p))
    return _parts(log_p, step_losses, log_prior, beta, weights, reg=R.weighted_mean(R.kl_divergence(live, log_prior)))


MUTANTS = (
    Mutant("loss-divided", "the weighted loss is divided by a sum of weights", "L1", {"expected_loss": divided_by_p}),
    Mutant("loss-unweighted", "p cancels: the plain mean over steps", "L1", {"expected_loss": plain_mean}),
    Mutant("loss-of-the-mixture", "−log of the mixture instead of the expected loss", "L1", {"expected_loss": mixture}),
    Mutant(
        "loss-by-multiplication",
        "an impossible step's NaN loss is multiplied by 0",
        "L1",
        {"expected_loss": loss_by_multiplication},
    ),
    Mutant("kl-reversed", "KL(prior ‖ p)", "L2", {"kl_divergence": reversed_kl}),
    Mutant("kl-log-zero", "log of p itself: NaN where a unit is saturated", "L2", {"kl_divergence": log_zero}),
    Mutant("kl-epsilon", "epsilons of 1e-8 inside the logarithms", "L2", {"kl_divergence": kl_epsilon}),
    Mutant("kl-into-the-prior", "a gradient flows into the prior", "L2", {"kl_divergence": gradient_into_prior}),
    Mutant("kl-excluded-nan", "NaN where the prior excludes a step", "L2", {"kl_divergence": excluded_is_nan}),
    Mutant("weights-ignored", "example weights have no effect", "L3", {"weighted_mean": weights_ignored}),
    Mutant("sum-instead-of-mean", "the batch is summed, not averaged", "L3", {"weighted_mean": sum_instead_of_mean}),
    Mutant(
        "padding-counted",
        "the mean divides by the size of the batch, padding included",
        "L3",
        {"weighted_mean": padding_counted},
    ),
    Mutant("padding-multiplied", "a NaN of weight 0 is multiplied by 0", "L3", {"weighted_mean": padding_multiplied}),
    Mutant(
        "averaged-before-weighting", "mean loss a step times mean p", "L4", {"ponder_loss": averaged_before_weighting}
    ),
    Mutant("beta-missing", "β has no effect", "L4", {"ponder_loss": beta_missing}),
    Mutant("beta-twice", "β applied twice", "L4", {"ponder_loss": beta_twice}),
    Mutant("beta-on-the-other", "β multiplies the reconstruction", "L4", {"ponder_loss": beta_on_the_other}),
    Mutant(
        "p-detached", "p is detached in the reconstruction term", "L5", {"ponder_loss": p_detached_in_reconstruction}
    ),
    Mutant("kl-detached", "the KL has no gradient", "L5", {"ponder_loss": kl_detached}),
    Mutant(
        "kl-not-weighted",
        "weights reach the reconstruction only",
        "L4",
        {"ponder_loss": weights_only_in_reconstruction},
    ),
)
