"""Step networks for the level `infer`: exits laid down in a table, predictions exact in every precision.

Predictions are sums of eighths and the table is read by products with 0 and 1, so that an example's numbers are the
same bit for bit in a batch of any size. Steps are counted in the state and shown in the prediction.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import ponder_ref
from ponder_ref.conformance.pondered import on_backend
from ponder_ref.conformance.registry import Trial
from ponder_ref.sampling import uniforms_at

EXAMPLES, STEPS, OUTPUTS = 11, 8, 2  # few shapes: every other one is compiled anew
COUNT = 64.0  # what a step adds to every prediction
SHIFT = np.eye(STEPS, k=1)


class Table(NamedTuple):
    """Examples: logits `[M, STEPS]`, increments of the prediction `[M, OUTPUTS]`, ids `[M]`."""

    z: np.ndarray
    a: np.ndarray
    ids: np.ndarray

    def rows(self, which: Any) -> "Table":
        return Table(*(part[which] for part in self))

    def inputs(self) -> dict[str, np.ndarray]:
        return {"z": self.z, "a": self.a}

    def start(self) -> dict[str, Any]:
        """h₀: which column is read first, and nothing summed or counted yet; a tree with a tuple and a list inside."""
        at = np.zeros_like(self.z)
        at[:, 0] = 1
        return {"at": at, "rest": (np.zeros_like(self.a), [np.zeros(len(self.z))])}


def step_by(shift: Any) -> Callable:
    """ŷₙ = halved sums of a, plus 64 for each step; zₙ from the table."""

    def step(x, state):
        total, (taken,) = state["rest"]
        total, taken = total * 0.5 + x["a"], taken + 1.0
        z = (x["z"] * state["at"]).sum(-1)
        return total + taken[..., None] * COUNT, {"at": state["at"] @ shift, "rest": (total, [taken])}, z

    return step


_STEPS: dict[tuple[int, str], Callable] = {}


def step_on(trial: Trial) -> Callable:
    """The step on the backend's arrays; always the same function, which a compiler then knows already."""
    key = id(trial.subject.backend), trial.dtype
    if key not in _STEPS:
        _STEPS[key] = step_by(trial.subject.array("", SHIFT, trial.dtype))
    return _STEPS[key]


def ids_on(trial: Trial, ids: np.ndarray) -> Any:
    return trial.subject.backend.from_numpy(ids, "uint32")


def predict_both(trial: Trial, table: Table, **options: Any) -> tuple[Any, Any]:
    """The table's examples by the backend and by the reference."""
    options = {"max_steps": STEPS, **options}
    given = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    got = trial.subject.backend.predict(step_on(trial), *given, example_ids=ids_on(trial, table.ids), **options)
    options = {name: value for name, value in options.items() if name != "slots"}
    want = ponder_ref.predict(step_by(SHIFT), table.inputs(), table.start(), example_ids=table.ids, **options)
    return got, want


def logit(lam: np.ndarray) -> np.ndarray:
    """log λ − log(1 − λ), in numbers of float32; −1e4 for λ = 0."""
    with np.errstate(divide="ignore"):
        z = np.maximum(np.log(lam) - np.log1p(-lam), -1e4)
    return z.astype(np.float32).astype(np.float64)


def sampled_table(source: Any, *, seed: int, draw: int = 0, count: int = EXAMPLES) -> Table:
    """Examples that leave at drawn steps: λ far below u before, far above it there, anything after."""
    ids = source.integers(0, 2**31 - 1, (count,)) + np.arange(count)
    exits = source.integers(1, STEPS, (count,))[:, None]
    n = np.arange(1, STEPS + 1)
    u = uniforms_at(seed, ids[:, None], n, draw=draw).astype(np.float64)
    below, above = np.where(u < 1e-3, 0.0, u * source.number(0.0, 0.7)), (1 + u) / 2
    lam = np.where(n < exits, below, np.where(n == exits, above, source.rng.random(u.shape)))
    return Table(logit(lam), eighths(source, count), ids)


def summed_table(source: Any, count: int = EXAMPLES) -> Table:
    """Examples whose mass passes 0.5, and all but 0.05, at a drawn step: small λ before, one near 1 there."""
    exits = source.integers(1, STEPS, (count,))[:, None]
    n = np.arange(1, STEPS + 1)
    low, high = -2.5 - 1.5 * source.rng.random((count, STEPS)), 3.5 + 2.5 * source.rng.random((count, STEPS))
    z = np.where(n < exits, low, np.where(n == exits, high, -3.0)).astype(np.float32).astype(np.float64)
    return Table(z, eighths(source, count), np.arange(count))


def eighths(source: Any, count: int) -> np.ndarray:
    """Increments that keep all sums exact."""
    return source.integers(-40, 40, (count, OUTPUTS)) / 8


def model_on(trial: Trial) -> SimpleNamespace:
    """The network as a model of a stream, whose examples are those of `Table.inputs` and the first column's mark."""
    zero = trial.subject.array("", np.zeros(()), trial.dtype)

    def start(x: Any) -> tuple[Any, Any]:
        taken = x["a"][..., 0] * zero
        return {"z": x["z"], "a": x["a"]}, {"at": x["first"], "rest": (x["a"] * zero, [taken])}

    return SimpleNamespace(step=step_on(trial), start=_first_one("start", trial, start), max_steps=STEPS)


def _first_one(name: str, trial: Trial, function: Callable) -> Callable:
    """The first function of that name for a backend and dtype."""
    return _STEPS.setdefault((id(trial.subject.backend), f"{trial.dtype} {name}"), function)


def examples_of(trial: Trial, table: Table) -> list[Any]:
    """The table's examples one by one, without a batch axis."""
    first = table.start()["at"]
    return [on_backend(trial, {"z": z, "a": a, "first": at}) for z, a, at in zip(table.z, table.a, first, strict=True)]
