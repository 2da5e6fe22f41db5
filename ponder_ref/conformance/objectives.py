"""Scalar functions whose gradients are judged, with what the gradients should be (spec H9, L5, A5).

The functions take every array as an argument and are made once for each set of options, so that compilers know them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ponder_ref
from ponder_ref import gradients
from ponder_ref.conformance.oracle import _mean, expected, terms
from ponder_ref.conformance.subject import Subject, result_dtype


class Objective(NamedTuple):
    """A scalar of backend arrays, the names of its arguments, and what its gradients should be, on what scale."""

    fn: Callable  # of the arrays named by `wrt`, then of the constants
    wrt: tuple[str, ...]
    constants: tuple
    wanted: tuple[np.ndarray, ...]
    magnitudes: tuple[np.ndarray, ...]
    size: np.ndarray  # magnitude of the terms of the value


def _options(arrays: dict, arguments: dict) -> dict[str, Any]:
    return {"remainder": arguments.get("remainder", "last"), "lengths": arrays.get("lengths")}


def _held(subject: Subject, arrays: dict, dtype: str, *names: str) -> tuple:
    """Backend arrays by name; an argument that is not given is not held."""
    return tuple(subject.array(name, arrays[name], dtype) for name in names if arrays.get(name) is not None)


def _named(arrays: dict, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if arrays.get(name) is not None)


@functools.lru_cache(maxsize=256)
def _ponder_fn(subject: Subject, remainder: str, optional: tuple[str, ...]) -> Callable:
    backend = subject.backend

    def fn(z, losses, beta, log_prior, *rest):
        held = dict(zip(optional, rest, strict=True))
        log_p = backend.log_halting(z, remainder=remainder, lengths=held.get("lengths"))
        return backend.ponder_loss(log_p, losses, log_prior, beta=beta, weights=held.get("weights")).loss

    return fn


def ponder_loss(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """ponder_loss(log_halting(z), ℓ).loss by z and ℓ (L5)."""
    options, beta = _options(arrays, arguments), arguments["beta"]
    fn = _ponder_fn(subject, options["remainder"], _named(arrays, "lengths", "weights"))
    held = {**arrays, "beta": np.asarray(beta, np.float64)}  # an array: not to be compiled again for another β
    constants = _held(subject, held, result_dtype(dtype), "beta")
    constants += _held(subject, arrays, dtype, "log_prior", "lengths", "weights")

    given = (arrays["halt_logits"], arrays["step_losses"], arrays["log_prior"])
    call = {**options, "beta": beta, "weights": arrays.get("weights")}
    with np.errstate(all="ignore"):
        wanted = gradients.ponder_loss_gradients(*given, **call)
        magnitudes = gradients.ponder_loss_gradients(*given, **call, magnitudes=True)
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    log_p = expected("log_halting", halting, {"remainder": options["remainder"]})["result"]
    size = terms("ponder_loss", {**arrays, "log_p": log_p}, arguments)["loss"]
    return Objective(fn, ("halt_logits", "step_losses"), constants, wanted, magnitudes, size)


@functools.lru_cache(maxsize=256)
def _steps_fn(subject: Subject, remainder: str) -> Callable:
    backend = subject.backend

    def fn(z, lengths=None):
        log_p = backend.log_halting(z, remainder=remainder, lengths=lengths)
        return backend.weighted_mean(backend.expected_steps(log_p))

    return fn


def expected_steps(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """The mean of the expected steps by z (H9)."""
    options = _options(arrays, arguments)
    fn, constants = _steps_fn(subject, options["remainder"]), _held(subject, arrays, dtype, "lengths")
    z = arrays["halt_logits"]
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    p = np.exp(expected("log_halting", halting, {"remainder": options["remainder"]})["result"])
    n = np.arange(1, len(z) + 1).reshape(-1, *[1] * (z.ndim - 1))
    cotangent = n * p / max(1, p[0].size)
    wanted = gradients.log_halting_gradient(z, cotangent, **options)
    magnitude = gradients.log_halting_gradient(z, cotangent, **options, magnitudes=True)
    return Objective(fn, ("halt_logits",), constants, (wanted,), (magnitude,), cotangent.sum())


@functools.lru_cache(maxsize=256)
def _act_fn(subject: Subject, tau: float, epsilon: float) -> Callable:
    backend = subject.backend

    def fn(lambdas, y_hat, cotangent):
        halting = backend.act_halting(lambdas, epsilon=epsilon)
        cost = backend.act_cost(halting.steps, halting.remainder, tau=tau)
        return cost.sum() + (cotangent * backend.act_output(halting.weights, y_hat)).sum()

    return fn


def act(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """Σ act_cost + Σ cotangent·act_output by λ (A5)."""
    tau, epsilon = arguments["tau"], arguments.get("epsilon", 0.01)
    fn, constants = _act_fn(subject, tau, epsilon), _held(subject, arrays, dtype, "y_hat", "cotangent")
    lam, y = arrays["lambdas"], arrays["y_hat"]
    steps = ponder_ref.act_halting(lam, epsilon=epsilon).steps
    beyond = np.arange(1, len(lam) + 1).reshape(-1, *[1] * steps.ndim) > steps
    y = np.where(beyond.reshape(*beyond.shape, *[1] * (y.ndim - beyond.ndim)), 0, y)
    inner = tuple(range(lam.ndim, y.ndim))
    by_weight = (y * arrays["cotangent"]).sum(axis=inner)
    size = (np.abs(y) * np.abs(arrays["cotangent"])).sum(axis=inner)
    wanted = gradients.act_gradient(lam, by_weight, np.full(steps.shape, tau), epsilon=epsilon)
    magnitude = gradients.act_gradient(lam, size, np.full(steps.shape, tau), epsilon=epsilon, magnitudes=True)
    total = np.asarray((tau * (steps + 1)).sum() + size.sum())
    return Objective(fn, ("lambdas",), constants, (wanted,), (magnitude,), total)


@functools.lru_cache(maxsize=256)
def _lambda_fn(subject: Subject, remainder: str, beta: float) -> Callable:
    backend = subject.backend

    def fn(lambdas, losses, log_prior, lengths=None):
        log_p = backend.log_halting_from_lambdas(lambdas, remainder=remainder, lengths=lengths)
        return backend.ponder_loss(log_p, losses, log_prior, beta=beta).loss

    return fn


def ponder_loss_by_lambda(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """ponder_loss(log_halting_from_lambdas(λ), ℓ).loss by λ inside (0, 1) (H9)."""
    options, beta = _options(arrays, arguments), arguments["beta"]
    fn = _lambda_fn(subject, options["remainder"], beta)
    constants = _held(subject, arrays, dtype, "step_losses", "log_prior", "lengths")
    lam = np.where(np.isnan(arrays["lambdas"]), 0.5, arrays["lambdas"])  # NaN stands only where nothing looks
    given = (np.log(lam) - np.log1p(-lam), arrays["step_losses"], arrays["log_prior"])
    call = {**options, "beta": beta}
    slope = lam * (1 - lam)
    wanted = gradients.ponder_loss_gradients(*given, **call)[0] / slope
    magnitude = gradients.ponder_loss_gradients(*given, **call, magnitudes=True)[0] / slope
    return Objective(fn, ("lambdas",), constants, (wanted,), (magnitude,), np.asarray(np.inf))


@functools.lru_cache(maxsize=256)
def _prediction_fn(subject: Subject, remainder: str) -> Callable:
    backend = subject.backend

    def fn(z, y_hat, cotangent, lengths=None):
        log_p = backend.log_halting(z, remainder=remainder, lengths=lengths)
        return (cotangent * backend.expected_prediction(log_p, y_hat)).sum()

    return fn


def expected_prediction(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """Σ cotangent·expected_prediction by z and ŷ (H8, H9)."""
    options = _options(arrays, arguments)
    fn, constants = _prediction_fn(subject, options["remainder"]), _held(subject, arrays, dtype, "cotangent", "lengths")
    z, y, g = arrays["halt_logits"], arrays["y_hat"], arrays["cotangent"]
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    p = np.exp(expected("log_halting", halting, {"remainder": options["remainder"]})["result"])
    p_right = p.reshape(*p.shape, *[1] * (y.ndim - p.ndim))
    y_safe = np.where(p_right == 0, 0, y)
    inner = tuple(range(z.ndim, y.ndim))
    by_log_p, size = p * (y_safe * g).sum(axis=inner), p * np.abs(y_safe * g).sum(axis=inner)
    by_z = gradients.log_halting_gradient(z, by_log_p, **options)
    magnitude = gradients.log_halting_gradient(z, size, **options, magnitudes=True)
    wanted, magnitudes = (by_z, p_right * g), (magnitude, p_right * np.abs(g))
    return Objective(fn, ("halt_logits", "y_hat"), constants, wanted, magnitudes, size.sum())


@functools.lru_cache(maxsize=256)
def _mean_fn(subject: Subject) -> Callable:
    return lambda values, weights=None: subject.backend.weighted_mean(values, weights)


def weighted_mean(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """weighted_mean by its values (L3)."""
    weights = np.ones(arrays["values"].shape) if arrays.get("weights") is None else arrays["weights"].astype(np.float64)
    share = weights / weights.sum()
    size = _mean(np.abs(arrays["values"]), arrays.get("weights"))
    constants = _held(subject, arrays, dtype, "weights")
    return Objective(_mean_fn(subject), ("values",), constants, (share,), (share,), size)


class Recipe(NamedTuple):
    """A maker of objectives, and the functions a backend must offer for it."""

    make: Callable[..., Objective]
    needs: tuple[str, ...]


OBJECTIVES = {
    "grad_ponder_loss": Recipe(ponder_loss, ("log_halting", "ponder_loss")),
    "grad_expected_steps": Recipe(expected_steps, ("log_halting", "expected_steps", "weighted_mean")),
    "grad_act": Recipe(act, ("act_halting", "act_cost", "act_output")),
    "grad_ponder_loss_by_lambda": Recipe(ponder_loss_by_lambda, ("log_halting_from_lambdas", "ponder_loss")),
    "grad_expected_prediction": Recipe(expected_prediction, ("log_halting", "expected_prediction")),
    "grad_weighted_mean": Recipe(weighted_mean, ("weighted_mean",)),
}
