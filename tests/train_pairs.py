"""Trains a small Transformer of pairs and writes the state and the metrics: run as a script.

python tests/train_pairs.py BACKEND DTYPE UPDATES FILE.npz
"""

import sys
from typing import Any

import nets
import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models._attention import with_masks
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.runtime.settings import Halting, Optimiser

SIZES: dict[str, Any] = {"width": 12, "embedding": 8, "attention": 12, "transition": 6, "heads": 2, "steps": 2}
MODEL = PairTransformer(**SIZES, layers=1, dropout=0.2)
XL = PairTransformer(**SIZES, layers=2, dropout=0.2, memory="xl")
MAX_STEPS, CHUNK, EXAMPLES, IMAGES, ROWS = 5, 10, 6, 7, 4
# One way with everything in it: each way is a program of its own, which JAX compiles for many seconds.
SETTINGS: dict[str, Any] = {"epsilon": 0.26, "remainder": "normalize"}
TRAINED = PairTransformer(**SIZES, layers=1, dropout=0.2, memory="xl")


def make_inputs(index: int) -> dict[str, np.ndarray]:
    """Images, pairs and queries of one update, without dropout."""
    rng = np.random.default_rng(index)
    return {
        "images": rng.normal(size=(EXAMPLES, IMAGES, MODEL.width)),
        "rows": rng.integers(0, IMAGES, (EXAMPLES, ROWS, 2)).astype(np.int32),
        "query": rng.integers(0, IMAGES, (EXAMPLES, 3)).astype(np.int32),
    }


def make_chunk(first: int, count: int) -> Batch:
    """The batches of `count` updates. The target is whether the first number of the left image is the larger."""
    made = [make_inputs(index) for index in range(first, first + count)]
    numbers = [np.take_along_axis(one["images"][..., 0], one["query"], 1) for one in made]
    targets = np.stack([(x[:, 1] > x[:, 2]).astype(np.int64) for x in numbers])
    made = [with_masks(TRAINED, one, 7, first + k, MAX_STEPS) for k, one in enumerate(made)]
    weights = np.random.default_rng([first, 1]).random((count, EXAMPLES))
    return Batch({name: np.stack([one[name] for one in made]) for name in made[0]}, targets, weights, None)


def make_trainer(package: str, dtype: str) -> Any:
    halting = Halting(**{"max_steps": MAX_STEPS, "lambda_p": 0.4, "beta": 0.05, "tau": 0.01, **SETTINGS})
    rates: dict[str, Any] = {"learning_rate": 1e-2, "matrix_learning_rate": 1e-2, "clip": 1.0}
    return nets.make_trainer(package, TRAINED, halting, Optimiser(optimiser="muon", **rates), dtype=dtype, threads=1)


def states(package: str, dtype: str, updates: int) -> dict[str, np.ndarray]:
    """Arrays by name: the trained state, the metrics of every update, and an unroll beyond training's steps."""
    trainer, history = make_trainer(package, dtype), []
    state = trainer.init(TRAINED.initial_parameters(1))
    for first in range(0, updates, CHUNK):
        state, metrics = trainer.train_steps(state, make_chunk(first, CHUNK))
        history.append(metrics)
    y_hat, z = trainer.unroll(state, make_inputs(1000), max_steps=MAX_STEPS + 1)
    histories = {f"metrics.{name}": np.concatenate([m[name] for m in history]) for name in history[0]}
    return {**trainer.dump(state), **histories, "y_hat": y_hat, "halt_logits": z}


if __name__ == "__main__":
    backend, dtype, updates, file = sys.argv[1:]
    made: dict[str, Any] = states(f"ponder_{backend}", dtype, int(updates))
    np.savez(file, **made)
