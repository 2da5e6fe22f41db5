"""What the tests of attacks share: run folders of a moment, with what is wrong in them."""

import json
from pathlib import Path

import numpy as np

from ponder_ref.runtime import checkpoint, files
from ponder_ref.runtime.checkpoint import PREFIX, Checkpoint
from ponder_ref.runtime.train import flatten_state
from tasks.babi.settings import BabiConfig
from tasks.parity import Parity, ParityConfig
from tasks.runs import Run

OWN = ["--backend", "numpy_trainer"]  # not a name that a run folder may give
CONFIG = ParityConfig(bits=4, hidden=8, max_steps=3)


def parity_run(folder: Path, *, broken: float | None = None, backend: str = "jax") -> Path:
    """A run of the parity task with a checkpoint of the model's own parameters, one of them `broken`."""
    made = Run.create(folder, "parity", CONFIG, backend)
    made.make_folders()
    params = Parity(CONFIG).model().initial_parameters(0)
    if broken is not None:
        params["halt.b"] = params["halt.b"] + np.float32(broken)
    nothing = {name: np.zeros_like(x) for name, x in params.items()}
    about = made.checkpoint_about(7, "1.0.0", {})
    checkpoint.save(made.checkpoints, Checkpoint(flatten_state(params, nothing, nothing, 7), about), every=1)
    files.write_whole(made.metrics, b"")
    return folder


def babi_run(folder: Path, *, broken: float | None = None, backend: str = "jax", seed: int = 0) -> Path:
    config = BabiConfig(embedding=16, attention=16, heads=2, transition=16, max_steps=3)
    made = Run.create(folder, "babi", config, backend)
    made.make_folders()
    params = config.model_settings().initial_parameters(seed)
    if broken is not None:
        params["halt.b"] = params["halt.b"] + np.float32(broken)
    arrays = {PREFIX + name: array for name, array in params.items()}
    checkpoint.save(made.checkpoints, Checkpoint(arrays, made.checkpoint_about(40, "1.0.0", {})), 40)
    return folder


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
