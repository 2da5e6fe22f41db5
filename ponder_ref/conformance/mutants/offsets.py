"""For every entry of tolerances.toml a backend that is ten tolerances off in that quantity and dtype alone."""

import inspect

import numpy as np

import ponder_ref as R
from ponder_ref.conformance import spec_data
from ponder_ref.conformance.compare import QUANTITIES, bound, tolerance
from ponder_ref.conformance.interface import FUNCTIONS
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.conformance.oracle import terms

TIMES = 10
SPEAKS = {
    "log_p": ("H1", ("log_halting",)),
    "log_prior": ("P1", ("geometric_log_prior",)),
    "steps": ("H7", ("expected_steps",)),
    "prediction": ("H8", ("expected_prediction",)),
    "loss": ("L1", ("expected_loss",)),
    "act": ("A4", ("act_output",)),
    "update": ("O1", ("adam_update",)),
    "optim": ("O2", ("orthogonalize",)),
}
DECISIONS = {"halting_lengths": "epsilon", "quantile_steps": "q", "act_halting": "epsilon"}


def _arrays(function: str, args: tuple, kwargs: dict) -> tuple[dict, dict]:
    given = inspect.signature(getattr(R, function)).bind(*args, **kwargs).arguments
    arrays = {name: np.real(value) for name, value in given.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in given.items() if name not in arrays}


def off_by(function: str, kind: str, dtype: str):
    """The reference's function with ten tolerances added to its first result."""
    right = getattr(R, function)

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        arrays, arguments = _arrays(function, args, kwargs)
        wide = all(a.dtype == np.float64 for a in arrays.values() if a.dtype.kind == "f")
        if kwargs.get("dtype", "float64" if wide else "float32") != dtype:
            return result
        first = result[0] if isinstance(result, tuple) else result
        scale = terms(function, arrays, arguments).get("result")
        moved = first + TIMES * bound(tolerance(kind, dtype), np.real(first).astype(np.float64), scale)
        moved = moved.astype(dtype) if function.endswith("prior") else moved
        return type(result)(moved, *result[1:]) if isinstance(result, tuple) else moved

    wrong.__signature__ = inspect.signature(right)  # type: ignore[attr-defined]
    return wrong


def gradient_off_by(dtype: str):
    entry = tolerance("gradient", dtype)

    def value_and_grad(fn, *arrays, constants=()):
        value, grads = R.value_and_grad(fn, *arrays, constants=constants)
        if any(a.dtype.name != dtype for a in arrays):
            return value, grads
        return value, tuple(
            g + TIMES * (entry["rtol"] * np.nanmax(np.abs(g), initial=0) + entry["atol"]) for g in grads
        )

    return value_and_grad


def threshold_off_by(function: str, dtype: str):
    """A decision whose threshold lies ten tolerances too low."""
    right, name = getattr(R, function), DECISIONS[function]

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        if (args[0] if args else next(iter(kwargs.values()))).dtype.name != dtype:
            return result
        given = kwargs.get(name, 0.01)
        margin = TIMES * tolerance("cdf", dtype)["atol"]
        size = 1 + abs(np.log(given) if function == "halting_lengths" else given)
        moved = given * np.exp(-margin * size) if function == "halting_lengths" else given - margin * size
        return right(*args, **{**kwargs, name: moved})

    wrong.__signature__ = inspect.signature(right)  # type: ignore[attr-defined]
    return wrong


NOT_JUDGED = ("training",)  # an entry for two backends' trainings, which are compared with each other


def _mutants() -> list[Mutant]:
    made = []
    for kind, entries in spec_data.tolerances().items():
        if kind in NOT_JUDGED:
            continue
        for dtype in entries:
            both = ("float64",) if dtype == "float64" else ("float32",)
            defect, label = f"{kind} in {dtype} is ten tolerances off", f"off-{kind}-{dtype}"
            if kind == "gradient" and dtype == "bfloat16":
                continue  # NumPy has no bfloat16; the entry is tried on torch
            if kind == "gradient":
                replaced = {"value_and_grad": gradient_off_by(dtype)}
                requirement = "B8" if dtype == "float16" else "L5"
                made.append(Mutant(label, defect, requirement, replaced, (dtype,)))
            elif kind == "cdf":
                for function in DECISIONS:
                    requirement = FUNCTIONS[function][0]
                    replaced = {function: threshold_off_by(function, dtype)}
                    made.append(Mutant(f"{label}-{function}", defect, requirement, replaced, both))
            elif kind == "exact":
                made.append(Mutant(label, "sampled steps are one off", "S3", {"sample_steps": _one_more}, both))
            else:
                requirement, functions = SPEAKS[kind]
                made.append(Mutant(label, defect, requirement, {f: off_by(f, kind, dtype) for f in functions}, both))
    return made


def _one_more(lambdas, uniforms, *, lengths=None):
    return np.minimum(len(lambdas), R.sample_steps(lambdas, uniforms, lengths=lengths) + 1)


assert {kind for fields in QUANTITIES.values() for kind in fields.values()} <= set(SPEAKS)
MUTANTS = tuple(_mutants())
