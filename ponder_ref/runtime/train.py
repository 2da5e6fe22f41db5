"""What every backend's trainer shares, without a framework: learning rates, names of a state's arrays."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from ponder_ref import checks
from ponder_ref.optim import schedule
from ponder_ref.runtime.settings import Optimiser

# What `Trainer.train_steps` measures of every update.
TRAIN_KEYS = ("loss", "loss_rec", "loss_reg", "accuracy", "expected_steps", "steps_run", "grad_norm")
REST = "rest."  # of the names of variables that are not trained: running statistics, counts of random numbers
PARTS = ("params.", "m.", "v.", REST)
Shapes = Mapping[str, tuple[int, ...]]


def learning_rates(optimiser: Optimiser, first: int, count: int) -> dict[str, np.ndarray]:
    """Learning rates `[count]` of Adam and of Muon from update `first` on (O5, with `hold`), in float64."""
    held: dict[str, Any] = {"total": optimiser.updates, "warmup": optimiser.warmup}
    falling = {"total": optimiser.updates - optimiser.hold, "decay": optimiser.decay}
    falling["warmup"] = 0 if optimiser.hold else optimiser.warmup
    matrices = optimiser.matrix_learning_rate
    tops = {"adam": optimiser.learning_rate, "muon": optimiser.learning_rate if matrices is None else matrices}
    return {
        name: np.array(
            [
                schedule(t, learning_rate=top, **held)
                if t <= optimiser.hold
                else schedule(t - optimiser.hold, learning_rate=top, **falling)
                for t in range(first, first + count)
            ]
        )
        for name, top in tops.items()
    }


class TrainState(NamedTuple):
    """Parameters, moments and other variables by name, in a backend's arrays, and the number of updates made."""

    params: dict[str, Any]
    m: dict[str, Any]
    v: dict[str, Any]
    rest: dict[str, Any]
    update: int


def flatten_state(params: Mapping, m: Mapping, v: Mapping, update: int, rest: Mapping | None = None) -> dict[str, Any]:
    """A state's arrays by the names of a checkpoint: "params.rnn.b", "m.rnn.b", "v.rnn.b", "rest.mean", "update"."""
    parts = zip(PARTS, (params, m, v, rest or {}), strict=True)
    return {f"{part}{name}": x for part, xs in parts for name, x in xs.items()} | {"update": np.array(update, np.int64)}


def split_state(arrays: Mapping[str, np.ndarray], params: Shapes, rest: Shapes, by_muon: Collection[str]) -> TrainState:
    """The inverse of `flatten_state`; ValueError if the arrays are not those of the variables and the optimiser."""
    by_adam = {name: shape for name, shape in params.items() if name not in by_muon}
    parts = dict(zip(PARTS, (params, params, by_adam, rest), strict=True))
    wanted = {f"{part}{name}": shape for part, shapes in parts.items() for name, shape in shapes.items()}
    checks.check_arrays("the state of the model", arrays, {"update": (), **wanted})
    held = ({name: arrays[f"{part}{name}"] for name in shapes} for part, shapes in parts.items())
    return TrainState(*held, update=int(arrays["update"]))
