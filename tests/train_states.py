"""Trains the parity RNN at the paper's sizes in each way that is asked for, and writes the states: run as a script.

python tests/train_states.py BACKEND DTYPE UPDATES FILE.npz [WAY ...]
"""

import sys

import numpy as np

from tasks.parity import Parity, ParityConfig
from tasks.trainers import make_trainer

WAYS = {
    f"{method}-{optimiser}{'' if epsilon is None else '-epsilon'}": {
        "method": method,
        "optimiser": optimiser,
        "epsilon": epsilon,
        "learning_rate": 3e-4,
        "matrix_learning_rate": 4e-3,
    }
    for method, optimiser, epsilon in (
        ("ponder", "adam", None),
        ("ponder", "adam", 0.05),
        ("ponder", "muon", None),
        ("ponder", "muon", 0.05),
        ("act", "adam", None),
        ("act", "muon", None),
        ("repeat", "adam", None),
        ("repeat", "muon", None),
    )
}
CHUNK = 50


def states(backend: str, dtype: str, updates: int, ways: list[str]) -> dict[str, np.ndarray]:
    """Arrays by "way/name": the trained state, and the metrics of every update."""
    arrays = {}
    for way in ways:
        task = Parity(ParityConfig(bits=64, hidden=128, max_steps=20, batch_size=128, dtype=dtype, **WAYS[way]))
        trainer = make_trainer(backend, task, 1)
        state, history = trainer.init(task.initial_parameters()), []
        for first in range(0, updates, CHUNK):
            state, metrics = trainer.train_steps(state, task.batches("train", range(first, first + CHUNK)))
            history.append(metrics)
        arrays |= {f"{way}/{name}": array for name, array in trainer.dump(state).items()}
        arrays |= {f"{way}/metrics.{name}": np.concatenate([m[name] for m in history]) for name in history[0]}
    return arrays


if __name__ == "__main__":
    backend, dtype, updates, file, *ways = sys.argv[1:]
    np.savez(file, **states(backend, dtype, int(updates), ways or list(WAYS)))
