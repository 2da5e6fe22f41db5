"""Newton-Schulz works on the shorter side of a matrix (spec O2, O3)."""

from typing import Any

import numpy as np

from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.registry import Trial, check

# A matrix of LONG² numbers does not fit into the address space of any process: code that makes one fails at once.
LONG = 2**23

ONE_STEP = (3.4445 - 4.7750 + 2.0315) / LONG**0.5  # an entry of a row of ones after one step


def _compare(trial: Trial, requirement: str, what: str, got: Any, want: float) -> None:
    """Every entry of a constant matrix, roughly: sums of so many terms are rounded much, and the law is of cost."""
    got = trial.subject.numpy(what, got)
    low, high = float(got.min()), float(got.max())
    if not (abs(low - want) <= 0.1 * abs(want) and abs(high - want) <= 0.1 * abs(want)):
        raise Violation(requirement, f"{what}: {low!r} to {high!r}, should be about {want!r}")


def _shapes(trial: Trial, requirement: str, function: str, shapes: tuple, call: Any) -> None:
    if trial.dtype == "float64" and "float32" in trial.subject.dtypes:
        return  # the side is the same in every dtype, and float32 needs half the memory
    for shape in shapes:
        what = f"{function}[{trial.dtype}] of a matrix of ones of shape {shape}"
        try:
            call(what, shape)
        except Violation:
            raise
        except Exception as error:
            sentence = " ".join(str(error).split())[:120]
            raise Violation(
                requirement, f"{what} raised {type(error).__name__}: {sentence}; A has min(rows, columns)² entries"
            ) from None


@check("O2", "laws", "orthogonalize")
def the_shorter_side(trial: Trial) -> None:
    """A row and a column of very many entries: the products are those of single numbers."""

    def call(what: str, shape: tuple[int, int]) -> None:
        matrix = trial.subject.array("matrix", np.ones(shape), trial.dtype)
        got = trial.subject.backend.orthogonalize(matrix, ns_steps=1)
        _compare(trial, "O2", what, got, ONE_STEP)

    _shapes(trial, "O2", "orthogonalize", ((1, LONG), (LONG, 1)), call)


@check("O3", "laws", "muon_update")
def the_shorter_side_of_an_update(trial: Trial) -> None:
    def call(what: str, shape: tuple[int, int]) -> None:
        ones = trial.subject.array("param", np.ones(shape), trial.dtype)
        options = {"step": 1, "learning_rate": 1.0, "ns_steps": 1}
        got = trial.subject.backend.muon_update(ones, ones, ones, **options).param
        scale = max(1.0, shape[1] / shape[0]) ** 0.5
        _compare(trial, "O3", what, got, 1 - scale * ONE_STEP)

    _shapes(trial, "O3", "muon_update", ((1, LONG),), call)
