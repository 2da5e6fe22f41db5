"""What a golden case is, how its inputs are rounded, and how a file of cases is written.

Nothing here knows any mathematics of halting: ``vector_maths*.py`` do, and ``vector_cases_*.py`` have the cases.
"""

import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mpmath import mp

SPEC_VERSION = "2.0.0"
DIGITS = 60
# At import, because the modules of cases round inputs at theirs.
mp.dps = DIGITS
FLOATS = ("float64", "float32")
# A constant array longer than this is written as {"fill": value}, to keep the files small.
FILL_FROM = 64
# Half precision is about values of array arguments (B8). Gradients come back in the half dtype itself, and the
# optimisers and the integer functions are not defined in half precision, so these functions never get "half".
HALF_FUNCTIONS = {
    "log_halting",
    "log_halting_from_lambdas",
    "halting_lengths",
    "expected_steps",
    "expected_prediction",
    "expected_loss",
    "kl_divergence",
    "weighted_mean",
    "ponder_loss",
    "sample_steps",
    "quantile_steps",
    "act_halting",
    "act_cost",
    "act_output",
}


@dataclass(frozen=True)
class Array:
    """A typed array as the files store it: flat, in C order. Entries are float, int, Fraction or mpf."""

    dtype: str
    shape: tuple[int, ...]
    data: tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """The input of one golden case, with what a human worked out for it."""

    id: str
    spec: tuple[str, ...]
    paper: str
    comment: str
    arrays: dict[str, Array]
    arguments: dict[str, Any]
    dtypes: tuple[str, ...] | None = None
    stated: dict[str, Any] = field(default_factory=dict)


class Book:
    """The cases of one function, in order, with the requirement ids and paper section most of them share."""

    def __init__(self, function: str, spec: Sequence[str], paper: str) -> None:
        self.function, self.spec, self.paper = function, tuple(spec), paper
        self.cases: list[Case] = []

    def add(
        self,
        name: str,
        comment: str,
        arrays: dict[str, Array] | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        spec: Sequence[str] | None = None,
        paper: str | None = None,
        dtypes: Sequence[str] | None = None,
        **stated: Any,
    ) -> None:
        """Add a case; ``stated`` are results worked out by hand (fields to 1e-6), checked when the files are made."""
        self.cases.append(
            Case(
                f"{self.function}/{name}",
                tuple(spec or self.spec),
                paper or self.paper,
                comment,
                arrays or {},
                arguments or {},
                tuple(dtypes) if dtypes else None,
                stated,
            )
        )


def _shape(nested: Any) -> tuple[int, ...]:
    return (len(nested), *_shape(nested[0])) if isinstance(nested, (list, tuple)) else ()


def _flat(nested: Any) -> Iterable[Any]:
    if isinstance(nested, (list, tuple)):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


def array(dtype: str, nested: Any, shape: Sequence[int] | None = None) -> Array:
    """An array from nested lists, or from a flat list and a shape."""
    data = tuple(_flat(nested))
    shape = _shape(nested) if shape is None else tuple(shape)
    if math.prod(shape) != len(data):
        raise ValueError(f"{len(data)} entries do not make shape {shape}")
    return Array(dtype, shape, data)


def floats(nested: Any, shape: Sequence[int] | None = None) -> Array:
    """A float64 array of inputs."""
    made = array("float64", nested, shape)
    return Array(made.dtype, made.shape, tuple(float(x) for x in made.data))


def ints(nested: Any, shape: Sequence[int] | None = None) -> Array:
    """An int32 array."""
    return array("int32", nested, shape)


def words(nested: Any, shape: Sequence[int] | None = None) -> Array:
    """A uint32 array."""
    return array("uint32", nested, shape)


def columns(a: Array) -> list[list[Any]]:
    """For each example of an array [N, ...batch], its N entries, converted to mpf or int."""
    size = math.prod(a.shape[1:])
    return [[number(a, n * size + b) for n in range(a.shape[0])] for b in range(size)]


def number(a: Array, index: int) -> Any:
    """Entry ``index`` as an exact mpf (floats) or int."""
    return mp.mpf(a.data[index]) if a.dtype.startswith("float") else int(a.data[index])


def from_columns(cols: Sequence[Sequence[Any]], shape: Sequence[int], dtype: str = "float64") -> Array:
    """The inverse of :func:`columns`."""
    return Array(dtype, tuple(shape), tuple(col[n] for n in range(shape[0]) for col in cols))


# Rounding. struct rounds to nearest even, and int / int in Python is correctly rounded, subnormals included.


def to_float(x: Any) -> float:
    """The nearest float64 of an mpf, Fraction, int or float; a zero is always +0."""
    if isinstance(x, float):
        return x + 0.0
    if isinstance(x, mp.mpf):
        if not mp.isfinite(x):
            return math.nan if mp.isnan(x) else math.inf if x > 0 else -math.inf
        sign, mantissa, exponent, _ = x._mpf_
        x = Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)
    return float(Fraction(x)) + 0.0


def f32(x: Any) -> float:
    """The nearest float32, as a float64 of the same value."""
    if isinstance(x, float) and not math.isfinite(x):
        return x
    return struct.unpack("<f", struct.pack("<f", to_float(x)))[0]


def bf16(x: Any) -> float:
    """The nearest bfloat16 of a finite number, as a float64 of the same value."""
    bits = struct.unpack("<I", struct.pack("<f", to_float(x)))[0]
    bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def logit(share: str) -> float:
    """The float32 nearest to the logit of an exact fraction such as "3/10"."""
    exact = Fraction(share)
    return f32(mp.log(mp.mpf(exact.numerator) / (exact.denominator - exact.numerator)))


def log(share: str) -> float:
    """The float32 nearest to the logarithm of an exact fraction; "0" gives -inf."""
    exact = Fraction(share)
    return f32(mp.log(mp.mpf(exact.numerator) / exact.denominator)) if exact else -math.inf


def is_half(x: float) -> bool:
    """Whether bfloat16 and float16 both hold this float exactly, as a normal number, zero or not finite."""
    return not math.isfinite(x) or x == 0 or (bf16(x) == x and 2.0**-14 <= abs(x) <= 65504 and _is_f16(x))


def _is_f16(x: float) -> bool:
    return struct.unpack("<e", struct.pack("<e", x))[0] == x


# Writing.


def _plain(x: Any, dtype: str) -> Any:
    if not dtype.startswith("float"):
        return int(x)
    x = to_float(x)
    return x if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"


def encode_array(a: Array) -> dict[str, Any]:
    """The JSON form of an array."""
    data = [_plain(x, a.dtype) for x in a.data]
    constant = len(data) > FILL_FROM and all(x == data[0] for x in data)
    return {"dtype": a.dtype, "shape": list(a.shape), "data": {"fill": data[0]} if constant else data}


def encode_case(function: str, case: Case, expected: dict[str, Array]) -> dict[str, Any]:
    """The JSON form of a case; refuses inputs that a dtype it is run in cannot hold."""
    inputs = [x for a in case.arrays.values() if a.dtype == "float64" for x in a.data]
    if "float32" in (case.dtypes or FLOATS):
        wrong = [x for x in inputs if not math.isnan(x) and f32(x) != x]
        if wrong:
            raise ValueError(f"{case.id}: {wrong[0]!r} is not a float32")
    made: dict[str, Any] = {"id": case.id, "spec": list(case.spec), "paper": case.paper, "comment": case.comment}
    if case.dtypes:
        made["dtypes"] = list(case.dtypes)
    elif function in HALF_FUNCTIONS and inputs and all(is_half(x) for x in inputs):
        made["half"] = True
    made["arrays"] = {name: encode_array(a) for name, a in case.arrays.items()}
    made["arguments"] = dict(case.arguments)
    made["expected"] = {name: encode_array(a) for name, a in expected.items()}
    return made


def _lines(value: Any, indent: int) -> str:
    """JSON with a line for each array and plain value, so that a diff shows the arrays that changed."""
    pad = "  " * (indent + 1)
    if (
        isinstance(value, dict)
        and value
        and not {"dtype", "fill"} & set(value)
        and any(isinstance(v, (dict, list)) for v in value.values())
    ):
        inner = ",\n".join(f"{pad}{json.dumps(k)}: {_lines(v, indent + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n" + "  " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(pad + _lines(v, indent + 1) for v in value) + "\n" + "  " * indent + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def encode_file(function: str, cases: list[dict[str, Any]]) -> str:
    """The text of one vector file."""
    return _lines({"function": function, "spec_version": SPEC_VERSION, "cases": cases}, 0) + "\n"
