"""One maker of arguments for each function: (source) -> (arrays, arguments)."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.cases import (
    SHAPES,
    batch_weights,
    beyond,
    halting_arguments,
    log_distribution,
    log_prior,
    maybe,
    prior_remainder,
)

Made = tuple[dict[str, np.ndarray], dict]


def halting_from(name: str) -> Callable[..., Made]:
    def make(source) -> Made:
        steps, batch = source.shape()
        draw = source.logits if name == "halt_logits" else source.lambdas
        return halting_arguments(source, name, draw((steps, *batch)))

    return make


def halting_lengths(source) -> Made:
    steps, batch = source.shape()
    arguments = {"epsilon": source.choose(0.05, 0.5), "min_steps": source.choose(1, (steps + 1) // 2, steps)}
    return {"halt_logits": source.logits((steps, *batch))}, arguments


def expected_steps(source) -> Made:
    return {"log_p": log_distribution(source, *source.shape())}, {}


def expected_prediction(source) -> Made:
    steps, batch = source.shape()
    log_p = log_distribution(source, steps, batch)
    y_hat = source.values((steps, *batch, *source.choose((), (2, 2), (2, 1, 2))))
    impossible = (log_p == -np.inf).reshape(*log_p.shape, *[1] * (y_hat.ndim - log_p.ndim))
    return {"log_p": log_p, "y_hat": np.where(impossible, np.nan, y_hat)}, {}


def geometric_log_prior(source) -> Made:
    lambda_p = source.choose(source.number(0.001, 1.0), 1.0, 0.9, 1e-8, 1e-12, 1 - 1e-9)
    return {}, {
        "lambda_p": lambda_p,
        "max_steps": source.choose(1, 2, 5, 20, 1000),
        "remainder": prior_remainder(source),
    }


def uniform_log_prior(source) -> Made:
    return {}, {"max_steps": source.choose(1, 2, 5, 20, 1000, 5000)}


def poisson_log_prior(source) -> Made:
    return {}, {
        "rate": source.choose(source.number(0.01, 60.0), 1e-6, 900.0),
        "max_steps": source.choose(1, 2, 5, 20, 200),
        "remainder": source.option("prior remainder", "normalize", "last"),
    }


def expected_loss(source) -> Made:
    steps, batch = source.shape()
    log_p = log_distribution(source, steps, batch)
    return {"log_p": log_p, "step_losses": np.where(log_p == -np.inf, np.nan, source.values((steps, *batch)))}, {}


def kl_divergence(source) -> Made:
    steps, batch = source.shape()
    return {"log_p": log_distribution(source, steps, batch), "log_prior": log_prior(source, steps, batch)}, {}


def weighted_mean(source) -> Made:
    _, batch = source.shape()
    values, weights = source.values(batch), batch_weights(source, batch)
    if weights is None:
        return {"values": values}, {}
    return {"values": np.where(weights == 0, np.nan, values), "weights": weights}, {}


def ponder_loss(source) -> Made:
    steps, batch = source.shape()
    log_p, losses = log_distribution(source, steps, batch), source.values((steps, *batch))
    prior, weights = log_prior(source, steps, batch), batch_weights(source, batch)
    losses = np.where(log_p == -np.inf, np.nan, losses)
    arrays = {"log_p": log_p, "step_losses": losses, "log_prior": prior}
    if weights is not None:
        left_out = weights == 0
        arrays["log_p"] = np.where(left_out, np.nan, log_p)
        arrays["log_prior"] = np.where(left_out, np.nan, prior) if prior.ndim > 1 else prior
        arrays["step_losses"] = np.where(left_out, source.choose(np.nan, np.inf), losses)
        arrays["weights"] = weights
    return arrays, {"beta": source.choose(0.01, 1.0, 50.0)}


def threefry2x32(source) -> Made:
    words = source.integers(0, 2**32 - 1, (2, 2, 3)).astype(np.uint64)
    return {"key": words[0], "counter": words[1]}, {}


def halting_uniforms(source) -> Made:
    steps, batch = source.shape()
    arguments = {
        "seed": source.count(0, 2**64 - 1),
        "max_steps": steps,
        "draw": source.count(0, 2**12 - 1),
        "domain": source.count(0, 15),
    }
    return {"example_ids": source.integers(-(2**31), 2**31 - 1, batch)}, arguments


def _with_lengths(source, arrays: dict, steps: int, batch: tuple[int, ...]) -> dict:
    if maybe(source, "H4"):
        lengths = source.integers(1, steps, batch)
        arrays = {**arrays, "lambdas": beyond(arrays["lambdas"], lengths, np.nan), "lengths": lengths}
    return arrays


def sample_steps(source) -> Made:
    steps, batch = source.shape()
    lambdas, uniforms = source.lambdas((steps, *batch)), source.lambdas((steps, *batch))
    uniforms = np.floor(uniforms * 256) / 256  # on a grid that every dtype holds, so that u == λ does happen
    uniforms = np.where(uniforms == 1, 0, uniforms)
    lambdas = np.round(lambdas * 256) / 256
    kind = source.integers(0, 3, lambdas.shape)
    if getattr(source, "exact", False):  # a λ just above u halts: neither may be rounded to the other's dtype
        lambdas = np.where(kind == 1, uniforms + 2.0**-40, lambdas)
    uniforms = np.where((kind == 2) & (lambdas > 0), lambdas - 2.0**-20, uniforms)
    arrays = {"lambdas": lambdas, "uniforms": uniforms}
    return _with_lengths(source, arrays, steps, batch), {}


def draw_steps(source) -> Made:
    steps, batch = source.shape()
    lambdas, ids = source.lambdas((steps, *batch)), source.integers(-(2**31), 2**31 - 1, batch)
    arguments = {"seed": source.count(0, 2**64 - 1), "draw": source.count(0, 2**12 - 1)}
    # Some λ are the uniforms themselves, or just above them: neither may be rounded before they are compared.
    uniforms = ponder_ref.halting_uniforms(example_ids=ids, max_steps=steps, **arguments).astype(np.float64)
    near = uniforms + 2.0**-40 if getattr(source, "exact", False) else uniforms
    lambdas = np.where(source.integers(0, 3, lambdas.shape) == 1, near, lambdas)
    return _with_lengths(source, {"lambdas": lambdas, "example_ids": ids}, steps, batch), arguments


def quantile_steps(source) -> Made:
    return {"log_p": log_distribution(source, *source.shape())}, {"q": source.choose(0.5, 0.9, 1.0, 0.001)}


def act_halting(source) -> Made:
    steps, batch = source.shape()
    return {"lambdas": source.lambdas((steps, *batch))}, {"epsilon": source.choose(0.01, 0.3, 1e-5)}


def act_cost(source) -> Made:
    _, batch = source.shape()
    arrays = {"steps": source.integers(1, 20, batch), "remainder": source.inside(batch)}
    return arrays, {"tau": source.choose(0.0, 0.001, 1.5)}


def act_output(source) -> Made:
    steps, batch = source.shape()
    weights = source.lambdas((steps, *batch))
    y_hat = source.values((steps, *batch, *source.choose((), (2, 2), (2, 1, 2))))
    unused = (weights == 0).reshape(*weights.shape, *[1] * (y_hat.ndim - weights.ndim))
    return {"weights": weights, "y_hat": np.where(unused, np.nan, y_hat)}, {}


def _optimiser(source, shape, moments: tuple[str, ...]) -> Made:
    arrays = {"param": source.values(shape), "grad": source.values(shape)}
    for name in moments:
        arrays[name] = np.abs(source.values(shape)) if name == "v" else source.values(shape)
    # An Adam step where g and v vanish divides by eps alone; keep v away from 0 so that rounding is not magnified.
    if "v" in arrays:
        arrays["v"] = arrays["v"] + 0.5
    return arrays, {
        "step": source.choose(1, 2, 10, 1000),
        "learning_rate": source.choose(3e-4, 0.1),
        "weight_decay": source.option("weight decay", 0.0, 0.1),
    }


def adam_update(source) -> Made:
    arrays, arguments = _optimiser(source, source.choose((), (3,), (2, 3), (2, 1, 2)), ("m", "v"))
    if source.option("moments", True, False):
        arguments |= {
            "beta1": source.choose(0.0, 0.8),
            "beta2": source.choose(0.9, 0.99),
            "eps": source.choose(1e-8, 0.1),
        }
    return arrays, arguments


def _matrix(source) -> tuple[int, int]:
    return source.choose((1, 1), (2, 3), (3, 2), (3, 3), (4, 8), (8, 2))


def orthogonalize(source) -> Made:
    matrix = source.values(_matrix(source))
    matrix = matrix if np.abs(matrix).max() > 0.01 else matrix + 1.0
    return {"matrix": matrix}, {"ns_steps": source.choose(1, 3, 5)}


def muon_update(source) -> Made:
    arrays, arguments = _optimiser(source, _matrix(source), ("m",))
    arrays["grad"] = np.where(np.abs(arrays["grad"]).max() > 0.01, arrays["grad"], 1.0)
    # The momentum must not cancel against the gradient: Newton-Schulz would magnify what is left of the rounding.
    arrays["m"] = np.abs(arrays["m"]) * np.sign(arrays["grad"])
    return arrays, {
        **arguments,
        "nesterov": source.option("nesterov", True, False),
        "beta": source.choose(0.95, 0.9),
        "ns_steps": source.choose(3, 5),
    }


def clip_by_global_norm(source) -> Made:
    size, max_norm = source.option("norm", (1.0, 0.5), (1.0, 3.0), (1.0, 1e4), (2.0**-14, 2.0**-16))
    return {"grads.w": size * source.values((2, 3)), "grads.b": size * source.values((3,))}, {"max_norm": max_norm}


def schedule(source) -> Made:
    total = source.choose(source.count(1, 100), 10_000)
    return {}, {
        "update": source.choose(source.count(1, 120), source.count(1, 12_000)),
        "learning_rate": source.number(0.001, 1.0),
        "total": total,
        "warmup": source.count(0, total - 1),
        "decay": source.option("decay", "constant", "linear", "cosine", "polynomial"),
        "end": source.choose(0.0, 1e-4, 2.0),
        "power": source.choose(1.0, 0.5, 3.0),
    }


MAKERS: dict[str, Callable[..., Made]] = {
    "log_halting": halting_from("halt_logits"),
    "log_halting_from_lambdas": halting_from("lambdas"),
    "halting_lengths": halting_lengths,
    "expected_steps": expected_steps,
    "expected_prediction": expected_prediction,
    "geometric_log_prior": geometric_log_prior,
    "uniform_log_prior": uniform_log_prior,
    "poisson_log_prior": poisson_log_prior,
    "expected_loss": expected_loss,
    "kl_divergence": kl_divergence,
    "weighted_mean": weighted_mean,
    "ponder_loss": ponder_loss,
    "threefry2x32": threefry2x32,
    "halting_uniforms": halting_uniforms,
    "sample_steps": sample_steps,
    "draw_steps": draw_steps,
    "quantile_steps": quantile_steps,
    "act_halting": act_halting,
    "act_cost": act_cost,
    "act_output": act_output,
    "adam_update": adam_update,
    "orthogonalize": orthogonalize,
    "muon_update": muon_update,
    "clip_by_global_norm": clip_by_global_norm,
    "schedule": schedule,
}


def kind_of(made: Made, *, finite: bool = False) -> frozenset:
    """What decides which code runs: the rank and kind of each array, words and truths, and which numbers are 0."""
    arrays, arguments = made
    ranks = {(name, a.ndim, a.dtype.kind, finite and bool(np.isfinite(a).all())) for name, a in arrays.items()}
    others = {(name, value if isinstance(value, (str, bool)) else value == 0) for name, value in arguments.items()}
    absent = {(name, "absent") for name in ("lengths", "weights") if name not in arrays}
    return frozenset(ranks | others | absent)


def every_kind(
    trial: Any, make: Callable[[Any], Made], shape: tuple = SHAPES[-1], *, finite: bool = False
) -> list[Made]:
    """Arguments of one shape in which every two options meet, whatever is drawn: code may depend on both of them.

    With `finite`, arrays in which NaN or an infinity stands and those in which none does are told apart.
    """
    made: list[Made] = []
    trial.every(lambda source: made.append(make(source)), (shape,))
    pairs = [set(itertools.product(kind_of(one, finite=finite), repeat=2)) for one in made]
    chosen: list[Made] = []
    met: set[tuple] = set()
    while not all(some <= met for some in pairs):
        best = max(range(len(made)), key=lambda k: len(pairs[k] - met))
        met |= pairs[best]
        chosen.append(made[best])
    return chosen
