"""Small networks of the paper with inputs, and runs of them in folders: for the tests of both backends."""

from pathlib import Path
from typing import Any

import numpy as np
import pair_checks
import train_pairs
import train_transformer
import transformer_checks

from ponder_ref.base import SPEC_VERSION
from ponder_ref.models._attention import with_masks
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting, Optimiser

MODELS: dict[str, Any] = {
    "rnn": Rnn(inputs=5, hidden=7),
    "rnn, classes": Rnn(inputs=5, hidden=7, outputs=3, output="classes"),
    "transformer": train_transformer.MODEL,
    "pairs": train_pairs.MODEL,
    "pairs, xl": train_pairs.XL,
}
STEPS = {
    name: (train_pairs if model.kind == "pairs" else train_transformer).MAX_STEPS for name, model in MODELS.items()
}
WAYS: dict[str, dict[str, Any]] = {
    "ponder": {"prior": "poisson"},
    "epsilon": {"epsilon": 0.3},
    "epsilon, normalize": {"epsilon": 0.1, "remainder": "normalize", "min_steps": 1},
    "act": {"method": "act", "act_epsilon": 0.3},
    "repeat": {"method": "repeat"},
    "once": {"method": "once"},
}


def inputs(name: str, *, dropout: bool = False) -> Any:
    """NumPy inputs of a model, with the masks of dropout if they are asked for; examples differ in their steps."""
    model = MODELS[name]
    if model.kind == "rnn":
        return np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32) * 2
    if model.kind == "transformer":
        given: dict[str, np.ndarray] = train_transformer.make_inputs(3)
    else:
        given = train_pairs.make_inputs(3)
        given["images"] = given["images"].astype(np.float32)
    return with_masks(model, given, 5, 0, STEPS[name]) if dropout else given


def parameters(name: str) -> dict[str, np.ndarray]:
    """Parameters with which halting logits differ between steps and examples."""
    model = MODELS[name]
    if model.kind == "rnn":
        params = model.initial_parameters(1)
        return {**params, "halt.w": params["halt.w"] * 3}
    return (transformer_checks if model.kind == "transformer" else pair_checks).parameters(model)


def make_run(package: Any, folder: Path, name: str, **halting: Any) -> Path:
    """The folder of a run as a training leaves it, by a backend's `train` module."""
    network = Network(MODELS[name], Halting(max_steps=STEPS[name], **halting))
    trainer = package.make_trainer(network, Optimiser())
    arrays = trainer.dump(trainer.init(parameters(name)))
    about = {"spec": SPEC_VERSION, "task": "test", "config": {}, "update": 0, "network": network.to_json()}
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint.save(folder / "checkpoints", checkpoint.Checkpoint(arrays, about), 10)
    return folder
