"""Trains a small Transformer in each way that is asked for, and writes the states: run as a script.

python tests/train_transformer.py BACKEND DTYPE UPDATES FILE.npz
"""

import sys
from typing import Any

import nets
import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models._attention import with_masks
from ponder_ref.models.transformer import Transformer
from ponder_ref.runtime.settings import Halting, Optimiser

SIZES: dict[str, Any] = {
    "vocabulary": 9,
    "outputs": 4,
    "tokens": 3,
    "sentences": 8,
    "embedding": 8,
    "attention": 8,
    "transition": 12,
}
MODEL = Transformer(**SIZES, heads=2, steps=3, dropout=0.2)
SHAPES = {3: 4, 9: 3}
MAX_STEPS, CHUNK = 4, 5
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "ponder-muon": ({}, "muon"),
    "ponder-adam": ({"epsilon": 0.2, "remainder": "normalize"}, "adam"),
    "act-adam": ({"method": "act", "act_epsilon": 0.1}, "adam"),
    "act-muon": ({"method": "act", "act_epsilon": 0.1}, "muon"),
    "ut-act-adam": ({"method": "ut-act", "act_epsilon": 0.1}, "adam"),
}


def stories(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Words `[count, length, 3]`, some rows in front and some words behind missing."""
    words = rng.integers(1, MODEL.vocabulary + 1, (count, length, MODEL.tokens)).astype(np.int16)
    words[:, 0, 1:] = 0
    for row in words:
        row[: rng.integers(0, length - 1)] = 0
    return words


def make_inputs(index: int) -> dict[str, np.ndarray]:
    """The words of one update, without dropout."""
    rng = np.random.default_rng(index)
    return {f"words.{length}": stories(rng, count, length) for length, count in SHAPES.items()}


def make_chunk(first: int, count: int, model: Transformer = MODEL) -> Batch:
    """The batches of `count` updates from `first` on. The target is the first word of the question."""
    made = [make_inputs(index) for index in range(first, first + count)]
    targets = [np.concatenate([words[:, -1, 0] for words in one.values()]) % MODEL.outputs for one in made]
    made = [with_masks(model, one, 7, first + k, MAX_STEPS) for k, one in enumerate(made)]
    weights = np.random.default_rng([first, 1]).random((count, sum(SHAPES.values())))
    inputs = {name: np.stack([one[name] for one in made]) for name in made[0]}
    return Batch(inputs, np.stack(targets).astype(np.int64), weights, None)


def make_trainer(package: str, way: str, dtype: str, model: Transformer = MODEL) -> Any:
    settings, optimiser = WAYS[way]
    halting = Halting(**{"max_steps": MAX_STEPS, "lambda_p": 0.4, "beta": 0.05, "tau": 0.01, **settings})
    rates: dict[str, Any] = {"learning_rate": 1e-2, "matrix_learning_rate": 1e-2, "clip": 1.0}
    return nets.make_trainer(package, model, halting, Optimiser(optimiser=optimiser, **rates), dtype=dtype, threads=1)


def states(package: str, dtype: str, updates: int) -> dict[str, np.ndarray]:
    """Arrays by "way/name": the trained state, the metrics of every update, and once an unroll without dropout."""
    arrays = {}
    for way in WAYS:
        trainer = make_trainer(package, way, dtype)
        state, history = trainer.init(MODEL.initial_parameters(1)), []
        for first in range(0, updates, CHUNK):
            state, metrics = trainer.train_steps(state, make_chunk(first, CHUNK))
            history.append(metrics)
        arrays |= {f"{way}/{name}": array for name, array in trainer.dump(state).items()}
        arrays |= {f"{way}/metrics.{name}": np.concatenate([m[name] for m in history]) for name in history[0]}
        if way == "ponder-muon":
            y_hat, z = trainer.unroll(state, make_inputs(1000))
            arrays |= {f"{way}/y_hat": y_hat, f"{way}/halt_logits": z}
    return arrays


if __name__ == "__main__":
    backend, dtype, updates, file = sys.argv[1:]
    made: dict[str, Any] = states(f"ponder_{backend}", dtype, int(updates))
    np.savez(file, **made)
