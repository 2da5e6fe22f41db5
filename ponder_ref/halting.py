"""The halting distribution (spec H1 to H8; paper §2.2 and §2.3)."""

import warnings

import numpy as np

from ponder_ref import checks


class ValueWarning(RuntimeWarning):
    """An array holds values without meaning: NaN logits, or λ outside [0, 1]."""


def as_float(x) -> np.ndarray:
    """float64, or complex128 where tangents ride in the imaginary part (see `ponder_ref.adapter.value_and_grad`)."""
    x = np.asarray(x)
    return x if np.iscomplexobj(x) else x.astype(np.float64)


def step_numbers(x: np.ndarray) -> np.ndarray:
    """n = 1..N along the first axis of x, `[N, 1, ...]`."""
    return np.arange(1, x.shape[0] + 1).reshape(-1, *[1] * (x.ndim - 1))


def log_sigmoid(z: np.ndarray) -> np.ndarray:
    """log σ(z), written so that exp never overflows: min(z, 0) − log1p(exp(−|z|))."""
    positive = np.real(z) > 0
    return np.where(positive, 0, z) - np.log1p(np.exp(np.where(positive, -z, z)))


def _length_array(lengths, x: np.ndarray) -> np.ndarray:
    """Nᵢ for each example, `[...batch]`; N without `lengths`."""
    checks.check_lengths(lengths, x.shape[1:])
    if lengths is None:
        return np.full(x.shape[1:], x.shape[0])
    lengths = np.asarray(lengths)
    if lengths.min() < 1 or lengths.max() > x.shape[0]:
        raise ValueError(f"lengths must lie in 1..{x.shape[0]}, got {lengths.min()}..{lengths.max()}")
    return lengths


def _used(x: np.ndarray, lengths: np.ndarray, remainder: str) -> np.ndarray:
    """Which entries the distribution uses: n < Nᵢ ("last" does not use λ_N), or n ≤ Nᵢ."""
    n = step_numbers(x)
    return n < lengths if remainder == "last" else n <= lengths


def _report(name: str, bad: np.ndarray, what: str) -> None:
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        warnings.warn(f"{name}: {bad.sum()} of {bad.size} values {what}, first at {first}", ValueWarning, stacklevel=3)


def _log_halting(log_halt: np.ndarray, log_continue: np.ndarray, lengths: np.ndarray, remainder: str) -> np.ndarray:
    """log pₙ from log λₙ and log(1 − λₙ), both `[N, ...batch]` (H1 to H4)."""
    n = step_numbers(log_halt)
    reached = np.concatenate([np.zeros_like(log_continue[:1]), np.cumsum(log_continue[:-1], axis=0)])  # Σ_{j<n}
    log_p = log_halt + reached
    if remainder == "last":
        log_p = np.where(n == lengths, reached, log_p)
    log_p = np.where(n > lengths, -np.inf, log_p)
    if remainder == "normalize":
        never = (np.real(log_p) == -np.inf).all(axis=0)  # every λ is 0: uniform by definition
        log_p = np.where(never & (n <= lengths), 0, log_p)
        log_p = log_p - np.real(log_p).max(axis=0)
        log_p = log_p - np.log(np.exp(log_p).sum(axis=0))
        log_p = np.where(n > lengths, -np.inf, log_p)
    return log_p


def log_halting(halt_logits, *, remainder: str = "last", lengths=None) -> np.ndarray:
    """Log-probability of halting at each step, from logits.

        log pₙ = logsigmoid(zₙ) + Σ_{j<n} logsigmoid(−zⱼ)                       (H1; paper eq. 1 and 2)

    Args:
      halt_logits: `[N, ...batch]`, zₙ.
      remainder: "last" gives the mass left after N to step N (H2), "normalize" divides it out (H3).
      lengths: `[...batch]` integers Nᵢ, cuts example i at its own number of steps (H4).

    Returns:
      `[N, ...batch]`; the exponentials sum to 1 over the first axis.

    >>> np.exp(log_halting(np.array([0.0, 0.0, 0.0])))
    array([0.5 , 0.25, 0.25])
    """
    checks.check_steps_first("halt_logits", halt_logits)
    checks.check_remainder(remainder)
    z = as_float(halt_logits)
    lengths = _length_array(lengths, z)
    z = np.where(_used(z, lengths, remainder), z, 0)
    _report("halt_logits", np.isnan(z), "are NaN")
    return _log_halting(log_sigmoid(z), log_sigmoid(-z), lengths, remainder)


def log_halting_from_lambdas(lambdas, *, remainder: str = "last", lengths=None) -> np.ndarray:
    """Log-probability of halting at each step, from λₙ in [0, 1] (H5; paper eq. 2).

        log pₙ = log λₙ + Σ_{j<n} log1p(−λⱼ)

    Arguments and result as for `log_halting`.

    >>> np.exp(log_halting_from_lambdas(np.array([0.5, 1.0, 0.5])))
    array([0.5, 0.5, 0. ])
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_remainder(remainder)
    lam = as_float(lambdas)
    lengths = _length_array(lengths, lam)
    lam = np.where(_used(lam, lengths, remainder), lam, 0.5)
    _report("lambdas", ~((np.real(lam) >= 0) & (np.real(lam) <= 1)), "are outside [0, 1]")
    with np.errstate(divide="ignore", invalid="ignore"):
        log_halt = np.where(np.real(lam) == 0, -np.inf, np.log(lam))  # constants: no gradient at λ = 0 and λ = 1
        log_continue = np.where(np.real(lam) == 1, -np.inf, np.log1p(-lam))
        return _log_halting(log_halt, log_continue, lengths, remainder)


def halting_lengths(halt_logits, *, epsilon: float, min_steps: int = 1) -> np.ndarray:
    """Nᵢ from ε: the smallest n ≥ min_steps with Σ_{j≤n} logsigmoid(−zⱼ) < log ε, else N (H6; paper §2.3).

    >>> int(halting_lengths(np.full(20, np.log(0.2 / 0.8)), epsilon=0.05))
    14
    """
    checks.check_steps_first("halt_logits", halt_logits)
    checks.check_number("epsilon", epsilon, "(0, 1)")
    checks.check_count("min_steps", min_steps, 1, halt_logits.shape[0])
    z = np.real(as_float(halt_logits))
    n = step_numbers(z)
    left = np.cumsum(log_sigmoid(-z), axis=0)
    return np.where((left < np.log(epsilon)) & (n >= min_steps), n, z.shape[0]).min(axis=0)


def expected_steps(log_p) -> np.ndarray:
    """Σₙ n·pₙ, `[...batch]` (H7; paper app. A)."""
    checks.check_steps_first("log_p", log_p)
    log_p = as_float(log_p)
    return (step_numbers(log_p) * np.exp(log_p)).sum(axis=0)


def expected_prediction(log_p, y_hat) -> np.ndarray:
    """Σₙ pₙ·ŷₙ, `[...batch, ...]`, for y_hat `[N, ...batch, ...]`; impossible steps are left out (H8; paper §2.2)."""
    checks.check_steps_first("log_p", log_p)
    checks.check_predictions(y_hat, log_p.shape, "log_p")
    log_p, y_hat = as_float(log_p), as_float(y_hat)
    log_p = log_p.reshape(*log_p.shape, *[1] * (y_hat.ndim - log_p.ndim))
    return (np.exp(log_p) * np.where(np.real(log_p) == -np.inf, 0, y_hat)).sum(axis=0)
