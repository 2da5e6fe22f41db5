"""Defects of the halting distribution and of the priors."""

import numpy as np

import ponder_ref as R
from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.halting import as_float, log_sigmoid, step_numbers


def _sigmoid(z):
    return np.exp(log_sigmoid(as_float(z)))


def _products(lambdas):
    """λₙ and ∏_{j<n}(1 − λⱼ), in probability space."""
    reached = np.concatenate([np.ones_like(lambdas[:1]), np.cumprod(1 - lambdas, axis=0)[:-1]])
    return lambdas, reached


def remainder_squared(halt_logits, *, remainder="last", lengths=None):
    log_p = R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    return np.concatenate([log_p[:-1], 2 * log_p[-1:]]) if remainder == "last" and len(log_p) > 1 else log_p


def remainder_dropped(halt_logits, *, remainder="last", lengths=None):
    z = as_float(halt_logits)
    reached = np.concatenate([np.zeros_like(z[:1]), np.cumsum(log_sigmoid(-z), axis=0)[:-1]])
    right = R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    return right if remainder == "normalize" or lengths is not None else log_sigmoid(z) + reached


def sum_unguarded(halt_logits, *, remainder="last", lengths=None):
    if remainder == "last" or lengths is not None:
        return R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    lam, reached = _products(_sigmoid(halt_logits))
    return np.log(lam * reached / (lam * reached).sum(axis=0))


def half_precision_products(halt_logits, *, remainder="last", lengths=None):
    if halt_logits.dtype != np.float16:
        return R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    lam = _sigmoid(halt_logits).astype(np.float16)
    lam, reached = _products(lam)
    p = lam * reached
    p[-1] = reached[-1]
    return np.log(p).astype(np.float32)


def longest_grid(halt_logits, *, remainder="last", lengths=None):
    if lengths is None:
        return R.log_halting(halt_logits, remainder=remainder)
    n, longest = step_numbers(halt_logits), np.max(lengths)
    log_p = R.log_halting(np.where(n > lengths, -1e4, halt_logits)[:longest], remainder="normalize")
    tail = np.full((len(halt_logits) - longest, *log_p.shape[1:]), -np.inf)
    return np.concatenate([log_p, tail])


def last_logit_used(halt_logits, *, remainder="last", lengths=None):
    if remainder == "last" and lengths is None:
        return R.log_halting(halt_logits, remainder="normalize")
    return R.log_halting(halt_logits, remainder=remainder, lengths=lengths)


def survival_inclusive(halt_logits, *, remainder="last", lengths=None):
    log_p = R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    if remainder == "normalize" or lengths is not None or len(log_p) < 3:
        return log_p
    return np.concatenate([log_p[:1], log_p[1:-1] + log_sigmoid(-as_float(halt_logits)[1:-1]), log_p[-1:]])


def logits_clamped(halt_logits, *, remainder="last", lengths=None):
    z = as_float(halt_logits)
    return R.log_halting(
        np.where(np.abs(np.real(z)) > 30, np.sign(np.real(z)) * 30, z), remainder=remainder, lengths=lengths
    )


def epsilon_in_the_log(halt_logits, *, remainder="last", lengths=None):
    return np.log(np.exp(R.log_halting(halt_logits, remainder=remainder, lengths=lengths)) + 1e-8)


def detached(halt_logits, *, remainder="last", lengths=None):
    return R.log_halting(detach(halt_logits), remainder=remainder, lengths=lengths)


def cut_by_multiplication(halt_logits, *, remainder="last", lengths=None):
    if lengths is None:
        return R.log_halting(halt_logits, remainder=remainder)
    beyond = np.where(step_numbers(halt_logits) > lengths, as_float(halt_logits), 0)
    return R.log_halting(halt_logits, remainder=remainder, lengths=lengths) + 0 * beyond.sum(axis=0)


def zero_over_zero(lambdas, *, remainder="last", lengths=None):
    log_p = R.log_halting_from_lambdas(lambdas, remainder=remainder, lengths=lengths)
    never = (np.real(lambdas) == 0).all(axis=0)
    return np.where(never & (remainder == "normalize"), np.nan, log_p)


def one_short(halt_logits, *, epsilon, min_steps=1):
    lengths = R.halting_lengths(halt_logits, epsilon=epsilon, min_steps=min_steps)
    return np.maximum(min_steps, lengths - (lengths < len(halt_logits)))


def not_strict(halt_logits, *, epsilon, min_steps=1):
    return R.halting_lengths(halt_logits, epsilon=epsilon * (1 + 1e-14), min_steps=min_steps)


def min_steps_ignored(halt_logits, *, epsilon, min_steps=1):
    return R.halting_lengths(halt_logits, epsilon=epsilon)


def from_zero(log_p):
    return R.expected_steps(log_p) - 1


def by_multiplication(log_p, y_hat):
    p = np.exp(as_float(log_p))
    return (p.reshape(*p.shape, *[1] * (y_hat.ndim - p.ndim)) * y_hat).sum(axis=0)


def prior_not_normalised(lambda_p, max_steps, *, remainder="normalize", dtype="float32"):
    right = R.geometric_log_prior(lambda_p, max_steps, remainder=remainder, dtype="float64")
    if remainder == "normalize" and lambda_p < 1:
        right = right + np.log(-np.expm1(max_steps * np.log1p(-lambda_p)))
    return right.astype(dtype)


def tail_dropped(lambda_p, max_steps, *, remainder="normalize", dtype="float32"):
    right = R.geometric_log_prior(lambda_p, max_steps, remainder=remainder, dtype="float64")
    if remainder == "last" and lambda_p < 1:
        right[-1] += np.log(lambda_p)
    return right.astype(dtype)


def prior_in_probabilities(lambda_p, max_steps, *, remainder="normalize", dtype="float32"):
    return np.log(
        np.exp(R.geometric_log_prior(lambda_p, max_steps, remainder=remainder, dtype="float64")) + 1e-20
    ).astype(dtype)


def uniform_off(max_steps, *, dtype="float32"):
    return np.full(max_steps, -np.log(max_steps + 1.0), dtype)


def poisson_not_shifted(rate, max_steps, *, remainder="normalize", dtype="float32"):
    wide = R.poisson_log_prior(rate, max_steps + 1, remainder=remainder, dtype="float64")[1:]
    return (wide - np.log(np.exp(wide).sum())).astype(dtype)


MUTANTS = (
    Mutant("remainder-squared", "p_N is the survival multiplied in twice", "H2", {"log_halting": remainder_squared}),
    Mutant(
        "remainder-dropped", "neither remainder nor normalisation: Σp < 1", "H2", {"log_halting": remainder_dropped}
    ),
    Mutant(
        "sum-unguarded",
        "division by Σp in probability space: 0/0 where no step halts",
        "H3",
        {"log_halting": sum_unguarded},
    ),
    Mutant(
        "half-precision-products",
        "probability-space products in half precision",
        "B8",
        {"log_halting": half_precision_products},
        ("float32", "float16"),
    ),
    Mutant(
        "longest-grid", "cut examples renormalised on the batch's longest grid", "H4", {"log_halting": longest_grid}
    ),
    Mutant("last-logit-used", "p_N depends on λ_N", "H2", {"log_halting": last_logit_used}),
    Mutant("survival-inclusive", "the survival at n includes step n itself", "H1", {"log_halting": survival_inclusive}),
    Mutant("logits-clamped", "logits clamped to ±30", "H10", {"log_halting": logits_clamped}),
    Mutant("epsilon-in-the-log", "log(p + 1e-8)", "H1", {"log_halting": epsilon_in_the_log}),
    Mutant("halting-detached", "no gradient flows through p", "H9", {"log_halting": detached}),
    Mutant(
        "cut-by-multiplication",
        "logits beyond Nᵢ multiplied by 0, not left out",
        "H4",
        {"log_halting": cut_by_multiplication},
    ),
    Mutant("zero-over-zero", "NaN where every λ is 0", "H5", {"log_halting_from_lambdas": zero_over_zero}),
    Mutant("n-one-short", "N from ε counts the steps with Σp < 1 − ε", "H6", {"halting_lengths": one_short}),
    Mutant("n-not-strict", "N from ε with ≤ instead of <", "H6", {"halting_lengths": not_strict}),
    Mutant("min-steps-ignored", "min_steps has no effect", "H6", {"halting_lengths": min_steps_ignored}),
    Mutant("steps-from-zero", "expected steps counted from 0", "H7", {"expected_steps": from_zero}),
    Mutant(
        "blend-by-multiplication",
        "an impossible step's NaN prediction is multiplied by 0",
        "H8",
        {"expected_prediction": by_multiplication},
    ),
    Mutant(
        "prior-not-normalised", "geometric prior without log Z", "P1", {"geometric_log_prior": prior_not_normalised}
    ),
    Mutant("prior-tail-dropped", "the tail of the prior is lost", "P2", {"geometric_log_prior": tail_dropped}),
    Mutant("prior-epsilon", "log(prior + 1e-20)", "P1", {"geometric_log_prior": prior_in_probabilities}),
    Mutant("uniform-off", "−log(N + 1)", "P3", {"uniform_log_prior": uniform_off}),
    Mutant("poisson-not-shifted", "n itself is Poisson, not n − 1", "P4", {"poisson_log_prior": poisson_not_shifted}),
)
