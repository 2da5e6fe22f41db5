"""What is lost between NumPy and a backend is named as such, before anything else is tried."""

import numpy as np
import pytest

import ponder_ref
from ponder_ref.conformance.mutants.base import Mutant, backend
from ponder_ref.conformance.mutants.options import from_numpy as halves
from ponder_ref.conformance.run import judge


def flushed(array, dtype):
    array = np.array(array, dtype)
    tiny = np.finfo(array.dtype).tiny if array.dtype.kind == "f" else 0
    return np.where(np.abs(array) < tiny, array * 0, array) if array.dtype.kind == "f" else array


def narrow(array, dtype):
    return np.array(array, "float32" if dtype == "float64" else dtype).astype(dtype)


def short_words(array, dtype):
    return np.array(array, "float32").astype(np.int64) if dtype == "uint32" else np.array(array, dtype)


def wrapped_words(array, dtype):
    return np.array(array, np.int64).astype(np.int32) if dtype == "uint32" else np.array(array, dtype)


def truths_as_numbers(array, dtype):
    return np.array(array, np.int32 if dtype == "bool" else dtype)


def at_least_one_axis(array, dtype):
    return np.atleast_1d(np.array(array, dtype))


def memory_order(array, dtype):
    return np.array(array, dtype, order="K").ravel("K").reshape(np.shape(array))


def no_negative_strides(array, dtype):
    if any(stride < 0 for stride in array.strides):
        raise ValueError("some of the strides are negative")
    return np.array(array, dtype)


def no_infinities(array, dtype):
    return np.nan_to_num(np.array(array, dtype)) if np.dtype(dtype).kind == "f" else np.array(array, dtype)


@pytest.mark.parametrize(
    ("from_numpy", "said"),
    [
        (narrow, "1.0000000000000002 came back as 1.0"),
        (short_words, "'uint32'"),
        (wrapped_words, "2147483648 came back as -2147483648"),
        (truths_as_numbers, "has dtype int32, should be bool"),
        (at_least_one_axis, "a scalar has shape (1,), should be ()"),
        (memory_order, "of a transposed array"),
        (no_negative_strides, "backwards raised ValueError: some of the strides are negative"),
        (no_infinities, "inf came back as 1.797"),
    ],
)
@pytest.mark.parametrize("only", [None, {"L2"}], ids=["all", "L2"])
def test_what_is_lost_on_the_way_is_named_and_nothing_else_is_blamed(from_numpy, said, only):
    verdicts = judge(backend(Mutant("lossy", "", "", {"from_numpy": from_numpy})), examples=2, only=only)
    assert {v.requirement for v in verdicts.values() if v.status == "failed"} == {"B3"}
    (sentence,) = verdicts["B3"].failures
    assert said in sentence and sentence.startswith("to_numpy(from_numpy(x, ")
    assert verdicts["L2"].status == "not tried"


@pytest.mark.parametrize("from_numpy", [flushed, ponder_ref.from_numpy])
def test_subnormal_numbers_may_be_flushed(from_numpy):
    verdicts = judge(backend(Mutant("flushed", "", "", {"from_numpy": from_numpy})), examples=2, only={"B3"})
    assert verdicts["B3"].failures == []


def test_words_are_not_asked_of_a_backend_that_draws_nothing():
    def no_words(array, dtype):
        if dtype == "uint32":
            raise TypeError("no such dtype")
        return np.array(array, dtype)

    missing = ("compiled", "vmapped", "threefry2x32", "halting_uniforms", "sample_steps", "draw_steps", "predict")
    replaced = {"from_numpy": no_words, "NOT_OFFERED": missing}
    assert judge(backend(Mutant("mild", "", "", replaced)), examples=2, only={"B3"})["B3"].failures == []


def test_bfloat16_may_come_back_as_float32():
    verdicts = judge(backend(Mutant("half", "", "", {"from_numpy": halves}, ("bfloat16",))), examples=2, only={"B3"})
    assert verdicts["B3"].failures == []
