"""What goes in by `from_numpy` comes out of `to_numpy`: without it no other complaint could be believed (spec B3)."""

from collections.abc import Iterator

import numpy as np

from ponder_ref.conformance.compare import Violation, describe
from ponder_ref.conformance.registry import ALL_DTYPES, Trial, check
from ponder_ref.conformance.subject import round_to

# Digits after the first that a number of the dtype has, its largest exponent and its smallest of a normal number.
FORMATS = {
    "float64": (52, 1023, -1022),
    "float32": (23, 127, -126),
    "bfloat16": (7, 127, -126),
    "float16": (10, 15, -14),
}
WORDS = ("threefry2x32", "halting_uniforms", "draw_steps")  # they are given 32-bit words, or ids as large as those
INTEGERS = {"int32": [0, 1, -1, 2**31 - 1, -(2**31), 65537], "uint32": [0, 1, 2**31, 2**32 - 1, 2**24 + 1]}


def floats(dtype: str) -> np.ndarray:
    """Numbers that need every digit of a dtype and both ends of its range, zeros, infinities and NaN, in float64."""
    digits, top, bottom = FORMATS[dtype]
    last = 2.0**-digits
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 9984.0, -9984.0]
    edges = [1 + last, -1 - last, 2 - last, (2 - last) * 2.0**top, -(2 - last) * 2.0**top, 2.0**bottom, -(2.0**bottom)]
    spread = np.random.default_rng(0).normal(size=32) * 2.0 ** np.arange(-8, 8).repeat(2)
    return np.concatenate([special, edges, round_to(dtype, spread)])


def layouts(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The same numbers in several shapes and orders of memory, `array` having 48 entries."""
    frozen = array.copy()
    frozen.setflags(write=False)
    yield "[48]", array
    yield "[], a scalar", array[9].reshape(())
    yield "[2, 1, 24]", array.reshape(2, 1, 24)
    yield "[6, 8] of a transposed array", array.reshape(8, 6).T
    yield "[6, 8] in Fortran's order", np.asfortranarray(array.reshape(6, 8))
    yield "[24], every second entry", array[::2]
    yield "[48] backwards", array[::-1]
    yield "[48] that cannot be written to", frozen
    yield "[4, 48] that is one row", np.broadcast_to(array, (4, 48))
    yield "[3, 0], empty", np.zeros((3, 0), array.dtype)


def _same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal in value; NaN equals NaN, and zero has no sign."""
    return (got == want) | ((got != got) & (want != want))


def _round_trip(trial: Trial, array: np.ndarray, dtype: str, what: str, kinds: str) -> None:
    call = f"to_numpy(from_numpy(x, {dtype!r})) of x {what}"
    try:
        got = np.asarray(trial.subject.backend.to_numpy(trial.subject.backend.from_numpy(array, dtype)))
    except Exception as error:
        raise Violation("B3", f"{call} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}") from None
    if got.shape != array.shape:
        raise Violation("B3", f"{call} has shape {got.shape}, should be {array.shape}")
    allowed = (dtype, "float32") if dtype == "bfloat16" else (dtype,)
    if got.dtype.kind not in kinds or (kinds == "f" and got.dtype.name not in allowed):
        raise Violation("B3", f"{call} has dtype {got.dtype}, should be {' or '.join(allowed)}")
    with np.errstate(invalid="ignore"):
        wide = got.astype(np.float64 if kinds == "f" else array.dtype)
        wrong = ~_same(wide, array)
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        lost = f"{describe(array[index].item())} came back as {describe(wide[index].item())}"
        raise Violation("B3", f"{call}{list(index)} is not x: {lost}; every other result would be wrong by it")


@check("B3", "arrays", dtypes=ALL_DTYPES)
def arrays_come_back_as_they_went(trial: Trial) -> None:
    """Floats with all their digits, integers, 32-bit words and truths, in any shape and order of memory."""
    for what, array in layouts(floats(trial.dtype)):
        _round_trip(trial, array, trial.dtype, what, "f")
    words = any(map(trial.subject.offers, WORDS))
    for dtype in ("int32", "uint32") if words else ("int32",):
        for what, array in layouts(np.resize(np.array(INTEGERS[dtype], np.int64), 48)):
            _round_trip(trial, array, dtype, what, "iu")
    for what, array in layouts(np.resize([True, False, False], 48)):
        _round_trip(trial, array, "bool", what, "b")
