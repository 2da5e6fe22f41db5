"""Small step networks for the level `module`: written with operators alone, so that they run on any backend's arrays.

The same function is run on NumPy arrays by the reference and on the backend's arrays by the backend.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

HIDDEN, OUTPUTS, INPUTS = 3, 2, 2


class Network(NamedTuple):
    """Weights by name, an input `[batch, INPUTS]`, targets, and the initial state."""

    weights: dict[str, np.ndarray]
    x: np.ndarray
    h: np.ndarray
    targets: np.ndarray


def make_network(rng: np.random.Generator, batch: int = 4, *, halting: float = 0.0) -> Network:
    """A network whose states stay small for a dozen steps; `halting` shifts the halting logits."""
    weights = {
        "a": rng.normal(size=(HIDDEN, HIDDEN)) * 0.3,
        "b": rng.normal(size=(INPUTS, HIDDEN)) * 0.5,
        "v": rng.normal(size=(HIDDEN, OUTPUTS)),
        "u": rng.normal(size=(HIDDEN,)),
        "c": np.array(halting),
    }
    x, h = rng.normal(size=(batch, INPUTS)), rng.normal(size=(batch, HIDDEN)) * 0.3
    rounded = [v.astype(np.float32).astype(np.float64) for v in (x, h)]
    weights = {k: v.astype(np.float32).astype(np.float64) for k, v in weights.items()}
    return Network(weights, *rounded, rng.integers(0, OUTPUTS, batch))


def step_with(weights: dict[str, Any]) -> Callable:
    """hₙ = h·A + x·B + 0.1·h², ŷ = hₙ·V, z = u·hₙ + c; the state also counts its steps, per example and in all."""

    def step(x, state):
        h = state["h"] @ weights["a"] + x @ weights["b"] + state["h"] * state["h"] * 0.1
        y_hat, z = h @ weights["v"], (h * weights["u"]).sum(-1) + weights["c"]
        return y_hat, {"h": h, "taken": state["taken"] + 1, "calls": state["calls"] + 1}, z

    return step


def step_without_input(weights: dict[str, Any]) -> Callable:
    """The same with the input inside the state, as after an encoder."""
    step = step_with(weights)

    def alone(state):
        y_hat, after, z = step(state["x"], state["rest"])
        return y_hat, {"x": state["x"], "rest": after}, z

    return alone
