"""Priors over the number of steps, as tensors of logarithms (spec P1 to P4; paper §2.4).

They are made from Python numbers, so the reference makes them, in float64; here they become tensors, constants to
a compiler.
"""

import functools

import torch

from ponder_ref import priors as reference


@functools.lru_cache(maxsize=64, typed=True)
def _made(maker: str, *args, **kwargs) -> tuple[float, ...]:
    """Numbers, not tensors, are kept: they belong to no device, no mode and no trace."""
    return tuple(getattr(reference, maker)(*args, **kwargs).tolist())


@torch.compiler.assume_constant_result
def _numbers(maker: str, args: tuple, kwargs: dict) -> tuple[float, ...]:
    try:
        return _made(maker, *args, **kwargs)
    except TypeError:  # an argument that is no number and has no hash: let the reference complain of it
        return _made.__wrapped__(maker, *args, **kwargs)


def _constant(maker: str, *args, dtype: str, **kwargs) -> torch.Tensor:
    return torch.tensor(_numbers(maker, args, {"dtype": dtype, **kwargs}), dtype=getattr(torch, dtype))


def geometric_log_prior(
    lambda_p: float, max_steps: int, *, remainder: str = "normalize", dtype: str = "float32"
) -> torch.Tensor:
    """The geometric prior truncated at N, `[N]`: normalised (P1), or with its tail on N ("last", P2)."""
    return _constant("geometric_log_prior", lambda_p, max_steps, remainder=remainder, dtype=dtype)


def uniform_log_prior(max_steps: int, *, dtype: str = "float32") -> torch.Tensor:
    """−log N for every n, `[N]` (P3)."""
    return _constant("uniform_log_prior", max_steps, dtype=dtype)


def poisson_log_prior(
    rate: float, max_steps: int, *, remainder: str = "normalize", dtype: str = "float32"
) -> torch.Tensor:
    """The prior under which n − 1 is Poisson with mean `rate`, truncated at N, `[N]` (P4)."""
    return _constant("poisson_log_prior", rate, max_steps, remainder=remainder, dtype=dtype)


def named_log_prior(name: str, lambda_p: float, max_steps: int, *, dtype: str = "float32") -> torch.Tensor:
    """The prior of that name over 1..N, `[N]` (`ponder_ref.priors.PRIORS`)."""
    return _constant("named_log_prior", name, lambda_p, max_steps, dtype=dtype)
