"""What every backend's trainer shares, without a framework: learning rates, names of a state's arrays."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ponder_ref.optim import schedule
from ponder_ref.runtime.settings import Optimiser

# What `Trainer.train_steps` measures of every update.
TRAIN_KEYS = ("loss", "loss_rec", "loss_reg", "accuracy", "expected_steps", "steps_run", "grad_norm")
PARTS = ("params", "m", "v")
REST = "rest."  # of the names of variables that are not trained: running statistics, counts of random numbers


def learning_rates(optimiser: Optimiser, first: int, count: int) -> dict[str, np.ndarray]:
    """Learning rates `[count]` of Adam and of Muon from update `first` on (O5, with `hold`), in float64."""
    held: dict[str, Any] = {"total": optimiser.updates, "warmup": optimiser.warmup}
    falling: dict[str, Any] = {
        "total": optimiser.updates - optimiser.hold,
        "decay": optimiser.decay,
    }
    if not optimiser.hold:
        falling["warmup"] = optimiser.warmup
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


def flatten_state(params: Mapping, m: Mapping, v: Mapping, update: int) -> dict[str, Any]:
    """A state's arrays by the names of a checkpoint: "params.rnn.b", "m.rnn.b", "v.rnn.b", "update"."""
    parts = zip(PARTS, (params, m, v), strict=True)
    return {f"{part}.{name}": x for part, xs in parts for name, x in xs.items()} | {
        "update": np.array(update, np.int64)
    }


def split_state(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], by_muon: Collection[str]
) -> tuple[dict, dict, dict, int]:
    """The inverse of `flatten_state`; ValueError if the arrays are not those of the parameters and the optimiser."""
    wanted = {"update": ()}
    for part in PARTS:
        wanted |= {f"{part}.{k}": shape for k, shape in shapes.items() if part != "v" or k not in by_muon}
    missing, unknown = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
    if missing or unknown:
        raise ValueError(f"the state must have the arrays of the model: missing {missing}, unknown {unknown}")
    for name, shape in wanted.items():
        if tuple(arrays[name].shape) != shape:
            raise ValueError(f"{name} must have the shape {shape} of the model, got {tuple(arrays[name].shape)}")
    params, m, v = ({k: arrays[f"{part}.{k}"] for k in shapes if f"{part}.{k}" in arrays} for part in PARTS)
    return params, m, v, int(arrays["update"])
