"""What a mutant is made of: the reference, widened to float32 and float16, with some functions replaced."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.interface import ALL_FUNCTIONS, FUNCTIONS, OPTIMISERS


@dataclass(frozen=True)
class Mutant:
    """A backend that differs from the reference in one thing."""

    name: str
    defect: str
    requirement: str
    replaced: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float64",)


def _narrow(value: Any, dtype: str) -> Any:
    if isinstance(value, dict):
        return {name: _narrow(part, dtype) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_narrow(part, dtype) for part in value])
    value = np.asarray(value)
    return value.astype(dtype) if value.dtype == np.float64 else value


def in_any_precision(function: Callable) -> Callable:
    """The function in float64 inside, with results in the dtype the standard asks for; tangents pass through."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        arrays = [x for x in (*args, *kwargs.values()) if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
        for x in (*args, *kwargs.values()):
            arrays += list(x.values()) if isinstance(x, dict) else []
        result = function(*args, **kwargs)
        wide = not arrays or any(x.dtype.name in ("float64", "complex128") for x in arrays)
        return result if wide else _narrow(result, "float32")

    return call


def backend(mutant: Mutant) -> SimpleNamespace:
    """The mutant as a backend."""
    members = {name: getattr(ponder_ref, name) for name in (*ALL_FUNCTIONS, "from_numpy", "to_numpy", "value_and_grad")}
    members |= {"NAME": mutant.name, "DTYPES": mutant.dtypes, "NOT_OFFERED": ("compiled", "vmapped")}
    members |= mutant.replaced
    host = ("schedule", "threefry2x32", "halting_uniforms")
    for name in (*FUNCTIONS, *OPTIMISERS):
        if name in members and members[name] is not None and not name.endswith("prior") and name not in host:
            members[name] = in_any_precision(members[name])
    return SimpleNamespace(**{name: value for name, value in members.items() if value is not None})


def detach(x) -> np.ndarray:
    """x without its tangent: what `.detach()` and `stop_gradient` do."""
    return np.real(x).astype(np.float64)


def again(right: Callable, given: dict[str, Any]) -> Any:
    """right(**given), positional parameters in their place."""
    parameters = inspect.signature(right).parameters
    keywords = {name for name in given if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY}
    plain = [value for name, value in given.items() if name not in keywords]
    return right(*plain, **{name: given[name] for name in keywords})


def changed(function: str, body: Callable[[Callable, dict[str, Any]], Any]) -> dict[str, Callable]:
    """The reference's function replaced by body(function, its arguments by name), with the same signature."""
    right = getattr(ponder_ref, function)

    @functools.wraps(right)
    def call(*args, **kwargs):
        bound = inspect.signature(right).bind(*args, **kwargs)
        bound.apply_defaults()
        return body(right, dict(bound.arguments))

    return {function: call}


def around(function: str, body: Callable) -> dict[str, Callable]:
    """The reference's function replaced by body, which takes the same arguments as it likes, under its signature."""
    return {function: functools.wraps(getattr(ponder_ref, function))(body)}
