"""The backend on trial, seen through NumPy: arrays go in by name, results come out by field."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ponder_ref import base
from ponder_ref.conformance import interface
from ponder_ref.conformance.compare import LOW_PRECISION, Violation, describe

PRIORS = ("geometric_log_prior", "uniform_log_prior", "poisson_log_prior")
RESULTS = {
    "ponder_loss": base.PonderLoss,
    "act_halting": base.ActHalting,
    "adam_update": base.AdamState,
    "muon_update": base.MuonState,
    "clip_by_global_norm": base.Clipped,
}
PAIRS = ("key", "counter")  # arguments of two words, given as arrays whose first axis has length 2


def round_to(dtype: str, array: np.ndarray) -> np.ndarray:
    """The nearest values of the dtype, in float64; the backend is then given numbers it can hold exactly."""
    if array.dtype.kind != "f" or dtype == "float64":
        return array
    if dtype == "bfloat16":
        bits = array.astype(np.float32).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(array), array, rounded.astype(np.float64))
    with np.errstate(over="ignore"):
        return array.astype(dtype).astype(np.float64)


def options_used(function: str, arrays: dict, arguments: dict) -> set[str]:
    """The requirements that the options of a call belong to; a backend may offer the function without them."""
    used = set()
    if "halting" in function or function.startswith("grad_"):
        used |= {"H3"} if arguments.get("remainder", "last") != "last" else set()
    if arrays.get("lengths") is not None:
        used.add("H4")
    if arrays.get("weights") is not None and function != "act_output":
        used.add("L3")
    if function == "geometric_log_prior" and arguments.get("remainder", "normalize") != "normalize":
        used.add("P2")
    return used


def most_exact(dtypes: Iterable[str]) -> str | None:
    """The widest of some dtypes."""
    return next((d for d in ("float64", "float32", *LOW_PRECISION) if d in dtypes), None)


class CallFailed(Violation):
    """The backend raised where it should not have; the requirement is the one the check speaks for."""

    def __init__(self, sentence: str):
        super().__init__("", sentence)


class Subject:
    """A backend and what it offers."""

    def __init__(self, backend: Any, label: str, *, annex: bool = True):
        self.backend, self.label, self.annex = backend, label, annex
        self.not_offered = tuple(getattr(backend, "NOT_OFFERED", ()))
        self.dtypes = tuple(getattr(backend, "DTYPES", None) or ())
        self.unwritten: tuple[str, ...] = ()  # functions that are there but raise NotImplementedError

    def offers(self, name: str) -> bool:
        """Whether a function, an adapter or a requirement is offered; the annex is not where it is not judged."""
        if name in self.not_offered or name in self.unwritten or (name in interface.ANNEX and not self.annex):
            return False
        return name not in interface.OPTIONAL or hasattr(self.backend, name)

    def takes(self, function: str, arrays: dict, arguments: dict) -> bool:
        """Whether the function and every option of the call are offered."""
        return self.offers(function) and all(map(self.offers, options_used(function, arrays, arguments)))

    def array(self, name: str, value: np.ndarray, dtype: str) -> Any:
        """A backend array: floats in the dtype on trial, integers as int32 (or uint32 words), bool as bool."""
        kind = value.dtype.kind
        if name in PAIRS:
            return tuple(self.backend.from_numpy(word, "uint32") for word in value)
        if kind == "b":
            return self.backend.from_numpy(value, "bool")
        if kind in "iu":
            return self.backend.from_numpy(value, "uint32" if value.size and value.max() >= 2**31 else "int32")
        return self.backend.from_numpy(value, "float32" if name == "uniforms" else dtype)

    def arguments(self, function: str, arrays: dict, arguments: dict, dtype: str) -> dict[str, Any]:
        converted, grads = dict(arguments), {}
        for name, value in arrays.items():
            if name.startswith("grads."):
                grads[name.removeprefix("grads.")] = self.array(name, value, dtype)
            else:
                converted[name] = self.array(name, value, dtype)
        if grads:
            converted["grads"] = grads
        if function in PRIORS:
            converted.setdefault("dtype", result_dtype(dtype))
        return converted

    def fields(self, function: str, result: Any) -> dict[str, np.ndarray]:
        """A result as NumPy arrays by field; one without fields is called "result"."""
        if function == "schedule":
            return {"result": np.asarray(result)}
        if function == "threefry2x32":
            return {"result": np.stack([self.numpy(function, word) for word in result])}
        if not hasattr(result, "_fields"):
            return {"result": self.numpy(function, result)}
        wanted = RESULTS.get(function)
        if wanted is not None and tuple(result._fields) != wanted._fields:
            raise Violation(
                "B3", f"{function}: fields {tuple(result._fields)}, should be {wanted._fields} in this order"
            )
        named = {}
        for field, value in zip(result._fields, result, strict=True):
            if isinstance(value, dict):
                named |= {f"{field}.{name}": self.numpy(function, part) for name, part in value.items()}
            else:
                named[field] = self.numpy(function, value)
        return named

    def numpy(self, function: str, value: Any) -> np.ndarray:
        try:
            return np.asarray(self.backend.to_numpy(value))
        except Exception as error:
            raise Violation("B3", f"{function}: the result {value!r} cannot be read by to_numpy ({error})") from error

    def call(self, function: str, arrays: dict, arguments: dict, dtype: str, *, via: Callable | None = None) -> dict:
        """function(**arrays, **arguments), or what `via` makes of it, as NumPy arrays by field."""
        fn = getattr(self.backend, function)
        converted = self.arguments(function, arrays, arguments, dtype)
        with self.blamed(function, arrays, arguments, dtype):
            return self.fields(function, via(fn, converted) if via else fn(**converted))

    @contextlib.contextmanager
    def blamed(self, function: str, arrays: dict, arguments: dict, dtype: str) -> Iterator[None]:
        """What the backend raises becomes a complaint that names the function and its inputs."""
        try:
            yield
        except Violation:
            raise
        except Exception as error:
            given, sentence = describe({**arrays, **arguments}), " ".join(str(error).split())[:200]
            raise CallFailed(
                f"{function}[{dtype}] raised {type(error).__name__}: {sentence}; inputs: {given}"
            ) from error

    def most_exact(self) -> str:
        """The dtype for what need not be said in two: the widest offered; of a backend that says none, B1 speaks."""
        return most_exact(self.dtypes) or "float32"

    def remainders(self) -> tuple[str, ...]:
        """The remainder rules it offers."""
        return ("last", "normalize") if self.offers("H3") else ("last",)

    def gradients(
        self, fn: Callable, arrays: list[np.ndarray], dtype: str, constants: tuple = ()
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Value and gradients, as NumPy arrays, of a scalar function of backend arrays and constants."""
        given = [self.array("", array, dtype) for array in arrays]
        value, grads = self.backend.value_and_grad(fn, *given, constants=constants)
        return self.numpy("value_and_grad", value), [self.numpy("value_and_grad", grad) for grad in grads]


def result_dtype(dtype: str) -> str:
    """Half precision comes back in float32 (B8)."""
    return "float32" if dtype in LOW_PRECISION else dtype
