"""No example depends on its batch mates, and a NaN stays at home (spec B5, B6)."""

import numpy as np

from ponder_ref.conformance.axes import AXES, batch_axis, result_axis
from ponder_ref.conformance.check_gradients import ponder_arguments
from ponder_ref.conformance.compare import Violation, assert_close, describe, quantity
from ponder_ref.conformance.makers import MAKERS, every_kind
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import INTEGER_FIELDS, terms
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to

BATCH = 3


def _take(function: str, name: str, array: np.ndarray, rows) -> np.ndarray:
    """Some examples of an argument; a prior that all examples share stays as it is."""
    axis = batch_axis(function, name, array.ndim)
    return array if axis is None else np.take(array, rows, axis)


def _by_example(function: str, result: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The fields that belong to single examples, with the batch axis first."""
    axes = {field: result_axis(function, field) for field in result}
    return {field: np.moveaxis(result[field], axis, 0) for field, axis in axes.items() if axis is not None}


def _made(
    trial: Trial, function: str, shape: tuple = (6, (BATCH,)), *, finite: bool = False
) -> list[tuple[dict, dict]]:
    """Arguments in which every two options meet, but for weights: an example alone must not have weight 0."""

    def make(source) -> tuple[dict, dict]:
        source.without = (*source.without, "L3") if function == "ponder_loss" else source.without
        arrays, arguments = MAKERS[function](source)
        return {name: round_to(trial.dtype, array) for name, array in arrays.items()}, arguments

    return every_kind(trial, make, shape, finite=finite)


def _register_mates(function: str) -> None:
    @check("B5", "independence", function, name=f"{function} has no batch mates")
    def run(trial: Trial) -> None:
        for arrays, arguments in _made(trial, function):
            whole = _by_example(function, trial.subject.call(function, arrays, arguments, trial.dtype))
            sizes = _by_example(function, terms(function, arrays, arguments)) if function != "weighted_mean" else {}
            groups = {f"alone (example {i})": [i] for i in range(BATCH)}
            groups |= {"in reverse order": [2, 1, 0], "beside itself": [0, 0, 1]}
            for what, rows in groups.items():
                some = {name: _take(function, name, array, rows) for name, array in arrays.items()}
                got = _by_example(function, trial.subject.call(function, some, arguments, trial.dtype))
                for field, value in got.items():
                    kind = "exact" if INTEGER_FIELDS.get(function) == field else quantity(function, field)
                    size = sizes[field][rows] if field in sizes else None
                    given = {"kind": kind, "dtype": trial.dtype, "terms": size, "arguments": {**some, **arguments}}
                    want = whole[field][rows].astype(np.float64)
                    assert_close("B5", f"{function}.{field} {what}", value, want, **given)


def _hurt(function: str, arrays: dict, example: tuple[int, ...], bad: float, only: str | None = None) -> dict:
    """The arrays with every float of one example replaced, in all of them or in one."""
    hurt = {name: array.copy() for name, array in arrays.items()}
    for name, array in hurt.items():
        axis = batch_axis(function, name, array.ndim)
        if array.dtype.kind == "f" and axis is not None and only in (None, name):
            array[(slice(None),) * axis + example] = bad
    return hurt


def _others(function: str, result: dict[str, np.ndarray], example: tuple[int, ...]) -> dict[str, np.ndarray]:
    """What belongs to the other examples, as a list of them."""
    left = {}
    for field, value in result.items():
        axis = result_axis(function, field)
        if axis is not None:
            others = np.ones(value.shape[axis : axis + len(example)], bool)
            others[example] = False
            left[field] = value[(slice(None),) * axis + (others,)]
    return left


def _register_nan(function: str) -> None:
    @check("B6", "independence", function, name=f"a NaN stays at home in {function}")
    def run(trial: Trial) -> None:
        for shape, example in (((6, (BATCH,)), (1,)), ((3, (2, 2)), (0, 1))):
            for arrays, arguments in _made(trial, function, shape, finite=True):
                if "lengths" in arrays:
                    arrays["lengths"][example] = shape[0]  # a short example would hide the NaN
                _keeps_to_itself(trial, function, arrays, arguments, example)


def _keeps_to_itself(trial: Trial, function: str, arrays: dict, arguments: dict, example: tuple[int, ...]) -> None:
    """Whatever stands in one example, the others are the same bit for bit."""
    clean = _others(function, trial.subject.call(function, arrays, arguments, trial.dtype), example)
    trials = [(bad, None) for bad in (np.nan, np.inf, -np.inf, 7.0)] + [(np.nan, name) for name in arrays]
    for bad, only in trials:
        hurt = _hurt(function, arrays, example, bad, only)
        got = _others(function, trial.subject.call(function, hurt, arguments, trial.dtype), example)
        for field, value in got.items():
            if not np.array_equal(value, clean[field], equal_nan=True):
                what = f"{bad} in {only or 'the arrays'} of example {example} changed another example"
                given = describe({**hurt, **arguments})
                raise Violation("B6", f"{function}[{trial.dtype}].{field}: {what}; inputs: {given}")


for _function in AXES:
    _register_mates(_function)
    _register_nan(_function)


@check("B5", "independence", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad")
def gradients_have_no_batch_mates(trial: Trial) -> None:
    """An example's gradient alone is its gradient in the batch, times the size of the batch."""
    source = trial.seeded(6, (3,))
    arrays, arguments = ponder_arguments(source, weights=False)
    arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}

    def gradients(some: dict) -> list[np.ndarray]:
        objective = OBJECTIVES["grad_ponder_loss"].make(trial.subject, some, arguments, trial.dtype)
        wrt = [some[key] for key in objective.wrt]
        return trial.subject.gradients(objective.fn, wrt, trial.dtype, objective.constants)[1]

    noise = OBJECTIVES["grad_ponder_loss"].make(trial.subject, arrays, arguments, trial.dtype).magnitudes
    whole = gradients(arrays)
    for i in range(3):
        some = {name: _take("ponder_loss", name, array, [i]) for name, array in arrays.items()}
        for got, want, size in zip(gradients(some), whole, noise, strict=True):
            scale = {"kind": "gradient", "dtype": trial.dtype, "terms": 3 * size[:, [i]], "arguments": some}
            assert_close("B5", f"the gradient of example {i} alone", got, 3.0 * want[:, [i]], **scale)


@check("B6", "independence", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad")
def a_nan_stays_at_home_in_gradients(trial: Trial) -> None:
    source = trial.seeded(6, (3,))
    arrays = {
        "halt_logits": source.logits((6, 3)),
        "step_losses": source.values((6, 3)),
        "log_prior": np.full(6, -np.log(6.0)),
    }
    arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
    held = trial.subject.array("", arrays["log_prior"], trial.dtype)
    backend = trial.subject.backend
    for remainder in trial.subject.remainders():

        def fn(z, losses, remainder=remainder):
            parts = backend.ponder_loss(backend.log_halting(z, remainder=remainder), losses, held, beta=0.3)
            return parts.example_rec[0] + parts.example_reg[0] + parts.example_rec[2] + parts.example_reg[2]

        clean = trial.subject.gradients(fn, [arrays["halt_logits"], arrays["step_losses"]], trial.dtype)[1]
        for name in ("halt_logits", "step_losses"):
            hurt = {key: value.copy() for key, value in arrays.items()}
            hurt[name][1, 1] = np.nan
            got = trial.subject.gradients(fn, [hurt["halt_logits"], hurt["step_losses"]], trial.dtype)[1]
            for one, other in zip(got, clean, strict=True):
                if not np.array_equal(one[:, [0, 2]], other[:, [0, 2]]):
                    sentence = f"a NaN in {name} of example 1 changed the gradient of another example"
                    raise Violation(
                        "B6", f"ponder_loss of log_halting: {sentence}; {describe({**hurt, 'remainder': remainder})}"
                    )
