"""Defects that show in a second call or in the caller's hands: things remembered, arguments changed, nothing accepted.

Where a mutant calls the right function without using its result, it is for its complaints about bad arguments.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import ponder_ref as R
from ponder_ref.base import MuonState
from ponder_ref.conformance.mutants.base import Mutant, around, changed
from ponder_ref.optim import bias_correction, muon_scale
from ponder_ref.trees import leaves_of


def _accumulating() -> Callable:
    """Gradients are added to those that an array had before, as `backward` does."""
    held: dict[int, tuple[Any, Any]] = {}

    def value_and_grad(fn, *arrays, constants=()):
        value, grads = R.value_and_grad(fn, *arrays, constants=constants)
        for array, grad in zip(arrays, grads, strict=True):
            held[id(array)] = array, grad + (held[id(array)][1] if id(array) in held else 0)
        return value, tuple(held[id(array)][1] for array in arrays)

    return value_and_grad


def _first_answers(fn: Callable, *, optimize: bool = False) -> Callable:
    """What the first call gave is given for ever."""
    kept: list[Any] = []

    def call(*args):
        if not kept:
            kept.append(fn(*args))
        return kept[0]

    return call


def _constant_integers(fn: Callable, *, optimize: bool = False) -> Callable:
    """Integer arrays of the first call (lengths, ids) are built into the code."""
    kept: dict[str, Any] = {}

    def frozen(place: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: frozen(f"{place}.{name}", part) for name, part in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(frozen(f"{place}.{k}", part) for k, part in enumerate(value))
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            return kept.setdefault(place, value)
        return value

    return lambda *args: fn(*(frozen(str(k), arg) for k, arg in enumerate(args)))


def _compiled(compiled: Callable) -> dict[str, Any]:
    return {"compiled": compiled, "NOT_OFFERED": ("vmapped",)}


def _cleaned(function: str, name: str) -> dict[str, Callable]:
    """NaN and infinities of an argument are replaced by 0 in the caller's array."""

    def body(right, given):
        array, result = given[name], right(**given)
        if not np.iscomplexobj(array):
            array[~np.isfinite(array)] = 0
        return result

    return changed(function, body)


def _lengths_from_zero(function: str) -> dict[str, Callable]:
    """Lengths are turned into indices where they are."""

    def body(right, given):
        result = right(**given)
        if given["lengths"] is not None:
            np.subtract(given["lengths"], 1, out=given["lengths"])
        return result

    return changed(function, body)


def _weights_normalised(values, weights=None):
    result = R.weighted_mean(values, weights)
    if weights is not None and weights.dtype.kind == "f":
        weights /= weights.sum()
    return result


def _predictions_cleaned(out, targets, criterion, **options):
    """Predictions beyond Nᵢ are set to 0 in the caller's array."""
    result = R.training_loss(out, targets, criterion, **options)
    if out.log_p is not None and not np.iscomplexobj(out.y_hat):
        out.y_hat[np.real(out.log_p) == -np.inf] = 0
    return result


def _states_overwritten(step, x, state, **options):
    """The initial state is overwritten by the last one."""
    out = R.ponder(step, x, state, **options)
    if isinstance(state, dict) and not np.iscomplexobj(out.y_hat):
        for name in state:
            np.copyto(state[name], out.state[name])
    return out


def _by_step_network() -> Callable:
    """What was computed for a step network is kept, and given for every input of its shape."""
    kept: dict[Any, Any] = {}

    def ponder(step, x, state, **options):
        out = R.ponder(step, x, state, **options)
        if np.iscomplexobj(out.y_hat):
            return out
        key = id(step), repr(options), out.y_hat.shape
        return kept.setdefault(key, (step, out))[1]

    return ponder


def wrong_side(matrix, *, ns_steps=5):
    """X·Xᵀ of the longer side: the same in exact arithmetic, at more cost, and rounding errors grow without bound."""
    R.orthogonalize(matrix, ns_steps=ns_steps)
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrix.shape[0] < matrix.shape[1]
    x = matrix.T if wide else matrix
    x = x / (np.sqrt((x * x).sum()) + x.dtype.type(1e-8))
    for _ in range(ns_steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if wide else x


def _wrong_side_update(right, given):
    right(**given)
    param, grad, beta, step = (given[name] for name in ("param", "grad", "beta", "step"))
    m = beta * given["m"] + (1 - beta) * grad
    ahead, now = bias_correction(beta, step + 1), bias_correction(beta, step)
    direction = beta * m / ahead + (1 - beta) * grad / now if given["nesterov"] else m / now
    update = muon_scale(param) * wrong_side(direction, ns_steps=given["ns_steps"])
    return MuonState(param - given["learning_rate"] * (update + given["weight_decay"] * param), m)


def _empty(function: str) -> dict[str, Callable]:
    """A batch of no examples is answered, with nothing or with NaN."""

    def body(right, given):
        try:
            return right(**given)
        except ValueError:
            arrays = [x for x in given.values() if isinstance(x, np.ndarray)]
            if not any(x.size == 0 for x in arrays):
                raise
            return np.zeros(())

    return changed(function, body)


def _empty_module(step, x, state, **options):
    if any(leaf.size == 0 for leaf in leaves_of((x, state)) if hasattr(leaf, "size")):
        return None
    return R.ponder(step, x, state, **options)


def _empty_served(step, x, state, **options):
    if any(leaf.size == 0 for leaf in leaves_of((x, state)) if hasattr(leaf, "size")):
        return None
    return R.predict(step, x, state, **options)


EMPTY = (
    *("log_halting", "log_halting_from_lambdas", "halting_lengths", "expected_steps", "expected_prediction"),
    *("expected_loss", "kl_divergence", "weighted_mean", "ponder_loss", "halting_uniforms", "sample_steps"),
    *("draw_steps", "quantile_steps", "act_halting", "act_cost", "act_output"),
)
CLEANED = (
    ("log_halting", "halt_logits"),
    ("log_halting_from_lambdas", "lambdas"),
    ("sample_steps", "lambdas"),
    ("draw_steps", "lambdas"),
    ("expected_loss", "step_losses"),
    ("expected_prediction", "y_hat"),
    ("ponder_loss", "step_losses"),
    ("ponder_loss", "log_p"),
    ("kl_divergence", "log_p"),
    ("quantile_steps", "log_p"),
    ("act_output", "y_hat"),
    ("weighted_mean", "values"),
)
MUTANTS = (
    Mutant(
        "gradients-accumulate", "a second gradient is added to the first", "B7", {"value_and_grad": _accumulating()}
    ),
    Mutant("first-answer-for-ever", "compiled code gives what its first call gave", "B9", _compiled(_first_answers)),
    Mutant(
        "lengths-compiled-in", "compiled code has the integers of its first call", "B9", _compiled(_constant_integers)
    ),
    *(
        Mutant(f"cleaned-{function}-{name}", f"{name} is cleaned in place", "B7", _cleaned(function, name))
        for function, name in CLEANED
    ),
    *(
        Mutant(f"lengths-from-zero-{function}", "lengths are changed in place", "B7", _lengths_from_zero(function))
        for function in ("log_halting", "log_halting_from_lambdas", "sample_steps", "draw_steps")
    ),
    Mutant("weights-normalised", "weights are divided in place", "B7", around("weighted_mean", _weights_normalised)),
    Mutant(
        "predictions-cleaned",
        "training_loss cleans y_hat in place",
        "B7",
        around("training_loss", _predictions_cleaned),
    ),
    Mutant(
        "states-overwritten", "ponder leaves its last state in the first", "B7", around("ponder", _states_overwritten)
    ),
    Mutant("kept-by-step-network", "the first result is given again", "B7", around("ponder", _by_step_network())),
    Mutant("newton-schulz-wrong-side", "Newton-Schulz on the longer side", "O2", around("orthogonalize", wrong_side)),
    Mutant(
        "muon-wrong-side",
        "Muon with Newton-Schulz on the longer side",
        "O3",
        changed("muon_update", _wrong_side_update),
    ),
    *(Mutant(f"empty-{name}", f"{name} accepts an empty batch", "B4", _empty(name)) for name in EMPTY),
    Mutant("empty-ponder", "ponder accepts an empty batch", "B4", around("ponder", _empty_module)),
    Mutant("empty-predict", "predict accepts an empty batch", "B4", around("predict", _empty_served)),
)
