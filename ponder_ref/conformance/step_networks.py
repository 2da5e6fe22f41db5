"""Small step networks for the level `module`: written with +, *, @ and indexing, which all arrays know.

The same function is run on NumPy arrays by the reference and on the backend's arrays by the backend.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

HIDDEN, OUTPUTS, INPUTS = 3, 2, 2


class Network(NamedTuple):
    """Weights by name, an input `[...batch, INPUTS]`, the initial state, and targets `[...batch]`."""

    weights: dict[str, np.ndarray]
    x: np.ndarray
    h: np.ndarray
    targets: np.ndarray


def make_network(rng: np.random.Generator, batch: tuple[int, ...] = (4,), *, halting: float = 0.0) -> Network:
    """A network whose states stay small for a dozen steps; `halting` shifts the halting logits."""
    weights = {
        "a": rng.normal(size=(HIDDEN, HIDDEN)) * 0.3,
        "b": rng.normal(size=(INPUTS, HIDDEN)) * 0.5,
        "v": rng.normal(size=(HIDDEN, OUTPUTS)),
        "u": rng.normal(size=(HIDDEN, 1)),
        "c": np.array(halting),
    }
    x, h = rng.normal(size=(*batch, INPUTS)), rng.normal(size=(*batch, HIDDEN)) * 0.3
    x, h = (v.astype(np.float32).astype(np.float64) for v in (x, h))
    weights = {k: v.astype(np.float32).astype(np.float64) for k, v in weights.items()}
    return Network(weights, x, h, rng.integers(0, OUTPUTS, batch))


def transition(weights: dict[str, Any], x: Any, h: Any) -> Any:
    """hₙ = h·A + x·B + 0.1·h²."""
    return h @ weights["a"] + x @ weights["b"] + h * h * 0.1


def readout(weights: dict[str, Any], h: Any) -> tuple[Any, Any]:
    """ŷ = h·V, z = h·u + c."""
    return h @ weights["v"], (h @ weights["u"])[..., 0] + weights["c"]


def step_with(weights: dict[str, Any]) -> Callable:
    """A step whose state is a dict; it also counts its steps, per example ("taken") and in all ("calls")."""

    def step(x, state):
        h = transition(weights, x, state["h"])
        y_hat, z = readout(weights, h)
        return y_hat, {"h": h, "taken": state["taken"] + 1, "calls": state["calls"] + 1}, z

    return step


def step_without_input(weights: dict[str, Any]) -> Callable:
    """The same with the input inside the state, as after an encoder; the state is a tuple with a list inside."""
    step = step_with(weights)

    def alone(state):
        x, (rest,) = state
        y_hat, after, z = step(x, rest)
        return y_hat, (x, [after]), z

    return alone
