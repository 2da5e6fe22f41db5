"""The RNN of the parity experiment (spec M8; paper app. B): hₙ = tanh(x·W_x + b + hₙ₋₁·W_h)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.models._init import draw_parameters, generator


@dataclass(frozen=True)
class Rnn:
    """The RNN of the parity experiment (M8)."""

    kind: str = "rnn"
    inputs: int = 64
    hidden: int = 128
    outputs: int = 1
    output: str = "binary"  # or "classes"

    def __post_init__(self):
        checks.check_choice("kind", self.kind, ("rnn",))
        checks.check_choice("output", self.output, ("binary", "classes"))
        for name in ("inputs", "hidden", "outputs"):
            checks.check_count(name, getattr(self, name), 1)
        if self.output == "classes" and self.outputs == 1:
            raise ValueError('outputs must be at least 2 where output is "classes", got 1')

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in canonical order; matrices are `[in, out]` (y = x·W)."""
        return {
            "rnn.w_x": (self.inputs, self.hidden),
            "rnn.w_h": (self.hidden, self.hidden),
            "rnn.b": (self.hidden,),
            "output.w": (self.hidden, self.outputs),
            "output.b": (self.outputs,),
            "halt.w": (self.hidden, 1),
            "halt.b": (1,),
        }

    def matrices(self) -> tuple[str, ...]:
        """The parameters that Muon trains where it is chosen (O3)."""
        return ("rnn.w_x", "rnn.w_h")

    def initial_parameters(
        self,
        seed: int,
        *,
        input_scale: float | None = None,
        input_connections: int | None = None,
        recurrent_scale: float = 1.0,
        bias_scale: float = 0.0,
    ) -> dict[str, np.ndarray]:
        """Parameters by canonical name, float64.

        `input_scale` replaces the deviation of the input weights, of which all but `input_connections` per unit are 0;
        `recurrent_scale` multiplies the deviation of the recurrent weights, and `bias_scale` is that of the units'
        biases.
        """
        if input_scale is not None:
            checks.check_number("input_scale", input_scale, "(0, inf)")
        if input_connections is not None:
            checks.check_count("input_connections", input_connections, 1)
        checks.check_number("recurrent_scale", recurrent_scale, "(0, inf)")
        checks.check_number("bias_scale", bias_scale, "[0, inf)")
        deviations = {"rnn.w_h": recurrent_scale * (1 / np.sqrt(self.hidden)), "rnn.b": bias_scale}
        if input_scale is not None:
            deviations["rnn.w_x"] = input_scale
        params = draw_parameters(self.shapes(), seed, deviations)
        if input_connections is not None:
            params["rnn.w_x"] *= connections(seed, self.inputs, self.hidden, input_connections)
        return params

    def with_masks(self, inputs: Any, seed: int, updates: Sequence[int], steps: int) -> Any:
        """The inputs as they are: this network has no dropout."""
        return inputs


SETTINGS = Rnn


def connections(seed: int, inputs: int, hidden: int, rounds: int) -> np.ndarray:
    """Which input reaches which unit, `[inputs, hidden]` of 0 and 1: in each round every unit is given one input.

    Inputs are dealt out like cards: each is given once before any is given again.
    """
    cards = generator(seed, "rnn.w_x.connections")
    mask = np.zeros((inputs, hidden))
    for _ in range(rounds):
        dealt = np.concatenate([cards.permutation(inputs) for _ in range(-(-hidden // inputs))])[:hidden]
        mask[dealt, np.arange(hidden)] = 1
    return mask


def rnn_project(params, x) -> np.ndarray:
    """x·W_x + b, `[...batch, hidden]`: the input's share of every step, computed once."""
    return x @ params["rnn.w_x"] + params["rnn.b"]


def rnn_transition(params, projected, h) -> np.ndarray:
    """hₙ = tanh(x·W_x + b + hₙ₋₁·W_h), `[...batch, hidden]`."""
    return np.tanh(projected + h @ params["rnn.w_h"])


def rnn_readout(params, h) -> tuple[np.ndarray, np.ndarray]:
    """Prediction `[...]` (`[..., outputs]` for several) and halting logit `[...]` of states `[..., hidden]`."""
    y_hat = h @ params["output.w"] + params["output.b"]
    z = h @ params["halt.w"] + params["halt.b"]
    return (y_hat[..., 0] if y_hat.shape[-1] == 1 else y_hat), z[..., 0]


def rnn_initial_state(params, projected) -> np.ndarray:
    """h₀ = 0, of the projected input's shape."""
    return np.zeros_like(projected)


class Step:
    """The RNN as a step network: x `[...batch, inputs]`, state `[...batch, hidden]`."""

    def __init__(self, settings: Rnn, params):
        self.settings, self.params = settings, params

    def project(self, x) -> np.ndarray:
        return rnn_project(self.params, x)

    def initial_state(self, x) -> np.ndarray:
        return rnn_initial_state(self.params, x)

    def __call__(self, x, h) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        h = rnn_transition(self.params, x, h)
        y_hat, z = rnn_readout(self.params, h)
        return y_hat, h, z
