"""Scalar functions whose gradients are judged, with what the gradients should be (spec H9, L5, A5)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ponder_ref
from ponder_ref import gradients
from ponder_ref.conformance.oracle import _mean, expected, terms
from ponder_ref.conformance.subject import Subject


class Objective(NamedTuple):
    """A scalar of backend arrays, the names of its arguments, and what its gradients should be, on what scale."""

    fn: Callable
    wrt: tuple[str, ...]
    wanted: tuple[np.ndarray, ...]
    magnitudes: tuple[np.ndarray, ...]
    size: np.ndarray  # magnitude of the terms of the value


def _options(arrays: dict, arguments: dict) -> dict[str, Any]:
    return {"remainder": arguments.get("remainder", "last"), "lengths": arrays.get("lengths")}


def _held(subject: Subject, arrays: dict, dtype: str, *names: str) -> dict[str, Any]:
    return {name: subject.array(name, arrays[name], dtype) if arrays.get(name) is not None else None for name in names}


def ponder_loss(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """ponder_loss(log_halting(z), ℓ).loss by z and ℓ (L5)."""
    backend, options, beta = subject.backend, _options(arrays, arguments), arguments["beta"]
    held = _held(subject, arrays, dtype, "lengths", "weights", "log_prior")

    def fn(z, losses):
        log_p = backend.log_halting(z, remainder=options["remainder"], lengths=held["lengths"])
        return backend.ponder_loss(log_p, losses, held["log_prior"], beta=beta, weights=held["weights"]).loss

    given = (arrays["halt_logits"], arrays["step_losses"], arrays["log_prior"])
    call = {**options, "beta": beta, "weights": arrays.get("weights")}
    with np.errstate(all="ignore"):
        wanted = gradients.ponder_loss_gradients(*given, **call)
        magnitudes = gradients.ponder_loss_gradients(*given, **call, magnitudes=True)
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    log_p = expected("log_halting", halting, {"remainder": options["remainder"]})["result"]
    size = terms("ponder_loss", {**arrays, "log_p": log_p}, arguments)["loss"]
    return Objective(fn, ("halt_logits", "step_losses"), wanted, magnitudes, size)


def expected_steps(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """The mean of the expected steps by z (H9)."""
    backend, options = subject.backend, _options(arrays, arguments)
    held = _held(subject, arrays, dtype, "lengths")

    def fn(z):
        log_p = backend.log_halting(z, remainder=options["remainder"], lengths=held["lengths"])
        return backend.weighted_mean(backend.expected_steps(log_p))

    z = arrays["halt_logits"]
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    p = np.exp(expected("log_halting", halting, {"remainder": options["remainder"]})["result"])
    n = np.arange(1, len(z) + 1).reshape(-1, *[1] * (z.ndim - 1))
    cotangent = n * p / max(1, p[0].size)
    wanted = gradients.log_halting_gradient(z, cotangent, **options)
    magnitude = gradients.log_halting_gradient(z, cotangent, **options, magnitudes=True)
    return Objective(fn, ("halt_logits",), (wanted,), (magnitude,), cotangent.sum())


def act(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """Σ act_cost + Σ cotangent·act_output by λ (A5)."""
    backend, tau, epsilon = subject.backend, arguments["tau"], arguments.get("epsilon", 0.01)
    y_hat, cotangent = (subject.array("", arrays[name], dtype) for name in ("y_hat", "cotangent"))

    def fn(lambdas):
        halting = backend.act_halting(lambdas, epsilon=epsilon)
        cost = backend.act_cost(halting.steps, halting.remainder, tau=tau)
        return cost.sum() + (cotangent * backend.act_output(halting.weights, y_hat)).sum()

    lam, y = arrays["lambdas"], arrays["y_hat"]
    steps = ponder_ref.act_halting(lam, epsilon=epsilon).steps
    beyond = np.arange(1, len(lam) + 1).reshape(-1, *[1] * steps.ndim) > steps
    y = np.where(beyond.reshape(*beyond.shape, *[1] * (y.ndim - beyond.ndim)), 0, y)
    inner = tuple(range(lam.ndim, y.ndim))
    by_weight = (y * arrays["cotangent"]).sum(axis=inner)
    size = (np.abs(y) * np.abs(arrays["cotangent"])).sum(axis=inner)
    wanted = gradients.act_gradient(lam, by_weight, np.full(steps.shape, tau), epsilon=epsilon)
    magnitude = gradients.act_gradient(lam, size, np.full(steps.shape, tau), epsilon=epsilon, magnitudes=True)
    return Objective(fn, ("lambdas",), (wanted,), (magnitude,), np.asarray((tau * (steps + 1)).sum() + size.sum()))


def ponder_loss_by_lambda(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """ponder_loss(log_halting_from_lambdas(λ), ℓ).loss by λ inside (0, 1) (H9)."""
    backend, options, beta = subject.backend, _options(arrays, arguments), arguments["beta"]
    held = _held(subject, arrays, dtype, "lengths", "step_losses", "log_prior")

    def fn(lambdas):
        log_p = backend.log_halting_from_lambdas(lambdas, remainder=options["remainder"], lengths=held["lengths"])
        return backend.ponder_loss(log_p, held["step_losses"], held["log_prior"], beta=beta).loss

    lam = arrays["lambdas"]
    given = (np.log(lam) - np.log1p(-lam), arrays["step_losses"], arrays["log_prior"])
    call = {**options, "beta": beta}
    slope = lam * (1 - lam)
    wanted = gradients.ponder_loss_gradients(*given, **call)[0] / slope
    magnitude = gradients.ponder_loss_gradients(*given, **call, magnitudes=True)[0] / slope
    return Objective(fn, ("lambdas",), (wanted,), (magnitude,), np.asarray(np.inf))


def expected_prediction(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """Σ cotangent·expected_prediction by z and ŷ (H8, H9)."""
    backend, options = subject.backend, _options(arrays, arguments)
    held = _held(subject, arrays, dtype, "lengths", "cotangent")

    def fn(z, y_hat):
        log_p = backend.log_halting(z, remainder=options["remainder"], lengths=held["lengths"])
        return (held["cotangent"] * backend.expected_prediction(log_p, y_hat)).sum()

    z, y, g = arrays["halt_logits"], arrays["y_hat"], arrays["cotangent"]
    halting = {name: arrays[name] for name in ("halt_logits", "lengths") if arrays.get(name) is not None}
    p = np.exp(expected("log_halting", halting, {"remainder": options["remainder"]})["result"])
    p_right = p.reshape(*p.shape, *[1] * (y.ndim - p.ndim))
    y_safe = np.where(p_right == 0, 0, y)
    inner = tuple(range(z.ndim, y.ndim))
    by_log_p, size = p * (y_safe * g).sum(axis=inner), p * np.abs(y_safe * g).sum(axis=inner)
    by_z = gradients.log_halting_gradient(z, by_log_p, **options)
    magnitude = gradients.log_halting_gradient(z, size, **options, magnitudes=True)
    return Objective(fn, ("halt_logits", "y_hat"), (by_z, p_right * g), (magnitude, p_right * np.abs(g)), size.sum())


def weighted_mean(subject: Subject, arrays: dict, arguments: dict, dtype: str) -> Objective:
    """weighted_mean by its values (L3)."""
    held = _held(subject, arrays, dtype, "weights")
    weights = np.ones(arrays["values"].shape) if arrays.get("weights") is None else arrays["weights"].astype(np.float64)
    share = weights / weights.sum()
    size = _mean(np.abs(arrays["values"]), arrays.get("weights"))
    return Objective(
        lambda values: subject.backend.weighted_mean(values, held["weights"]), ("values",), (share,), (share,), size
    )


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
