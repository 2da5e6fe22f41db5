"""Priors over the number of steps, as arrays of logarithms (spec P1 to P4; paper §2.4).

Made on the host from Python numbers, in float64, and rounded once: backends convert these arrays.
"""

import math
from collections.abc import Callable

import numpy as np

from ponder_ref import checks


def _log_sum(x: np.ndarray) -> float:
    """log Σ exp(x), accurately for any finite x."""
    top = float(x.max())
    return top + math.log(math.fsum(np.exp(x - top)))


def geometric_log_prior(lambda_p: float, max_steps: int, *, remainder: str = "normalize", dtype: str = "float32"):
    """The geometric prior truncated at N, `[N]`.

        log λ_p + (n−1)·log1p(−λ_p) − log(−expm1(N·log1p(−λ_p)))                (P1, "normalize")

    With "last" nothing is divided and the tail (1−λ_p)^(N−1) stands on N (P2).

    >>> np.exp(geometric_log_prior(0.5, 3, remainder="last", dtype="float64"))
    array([0.5 , 0.25, 0.25])
    """
    checks.check_number("lambda_p", lambda_p, "(0, 1]")
    checks.check_count("max_steps", max_steps, 1)
    checks.check_remainder(remainder)
    checks.check_dtype(dtype)
    if lambda_p == 1:
        return np.array([0.0] + [-np.inf] * (max_steps - 1), dtype)
    log_continue = math.log1p(-lambda_p)
    log_prior = math.log(lambda_p) + np.arange(max_steps) * log_continue
    if remainder == "last":
        log_prior[-1] = (max_steps - 1) * log_continue
    else:
        log_prior -= math.log(-math.expm1(max_steps * log_continue))
    return log_prior.astype(dtype)


def uniform_log_prior(max_steps: int, *, dtype: str = "float32"):
    """−log N for every n, `[N]` (P3)."""
    checks.check_count("max_steps", max_steps, 1)
    checks.check_dtype(dtype)
    return np.full(max_steps, -math.log(max_steps), dtype)


def poisson_log_prior(rate: float, max_steps: int, *, remainder: str = "normalize", dtype: str = "float32"):
    """The prior under which n − 1 is Poisson with mean `rate`, truncated at N, `[N]` (P4).

    log P(n) = (n−1)·log rate − log (n−1)! − rate, divided by the mass of 1..N; with "last" the tail is on N.
    """
    checks.check_number("rate", rate, "(0, inf)")
    checks.check_count("max_steps", max_steps, 1)
    checks.check_remainder(remainder)
    checks.check_dtype(dtype)
    # Far enough for the tail to be negligible: beyond both N and the mean, terms fall faster than geometrically.
    size = max_steps + math.ceil(2 * rate) + 60 if remainder == "last" else max_steps
    ratios = math.log(rate) - np.log(np.arange(1, size))  # log of P(n+1)/P(n)
    log_weights = np.concatenate([[0.0], np.cumsum(ratios)])
    if remainder == "normalize" or max_steps == 1:
        return (log_weights[:max_steps] - _log_sum(log_weights[:max_steps])).astype(dtype)
    # The tail's share as 1/(1 + head/tail), which is accurate whether it is nearly nothing or nearly everything.
    head, tail = _log_sum(log_weights[: max_steps - 1]), _log_sum(log_weights[max_steps - 1 :])
    return np.append(log_weights[: max_steps - 1] - rate, -np.logaddexp(0, head - tail)).astype(dtype)


def _poisson(lambda_p: float, max_steps: int, *, dtype: str) -> np.ndarray:
    checks.check_number("lambda_p", lambda_p, "(0, 1)")  # a rate of 0 leaves one step alone
    return poisson_log_prior(1 / lambda_p - 1, max_steps, dtype=dtype)


# A prior by its name, as a function of (lambda_p, max_steps, dtype), normalised over 1..N. λ_p is 1/mean steps before
# N cuts them: the geometric distribution's own parameter, for Poisson's a rate of 1/λ_p − 1; the uniform one has none.
PRIORS: dict[str, Callable[..., np.ndarray]] = {
    "geometric": lambda lambda_p, max_steps, *, dtype: geometric_log_prior(lambda_p, max_steps, dtype=dtype),
    "uniform": lambda lambda_p, max_steps, *, dtype: uniform_log_prior(max_steps, dtype=dtype),
    "poisson": _poisson,
}


def named_log_prior(name: str, lambda_p: float, max_steps: int, *, dtype: str = "float32") -> np.ndarray:
    """The prior of that name over 1..N, `[N]` (P1, P3, P4).

    >>> np.exp(named_log_prior("uniform", 0.2, 4, dtype="float64"))
    array([0.25, 0.25, 0.25, 0.25])
    """
    checks.check_choice("prior", name, tuple(PRIORS))
    return PRIORS[name](lambda_p, max_steps, dtype=dtype)
