"""Canonical models under canonical names: what depends on the kind, and the RNN of parity (spec M8; paper app. B)."""

import numpy as np

from ponder_ref.pairs import pairs_matrices, pairs_shapes
from ponder_ref.settings import AnyModel, PairTransformer, Transformer
from ponder_ref.transformer import transformer_matrices, transformer_shapes

# Matrices are `[in, out]` (y = x·W); those that Muon trains where it is chosen (O3).
RNN_MATRICES = ("rnn.w_x", "rnn.w_h")


def parameter_shapes(model: AnyModel) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the model's parameters, in canonical order."""
    if isinstance(model, Transformer):
        return transformer_shapes(model)
    if isinstance(model, PairTransformer):
        return pairs_shapes(model)
    return {
        "rnn.w_x": (model.inputs, model.hidden),
        "rnn.w_h": (model.hidden, model.hidden),
        "rnn.b": (model.hidden,),
        "output.w": (model.hidden, model.outputs),
        "output.b": (model.outputs,),
        "halt.w": (model.hidden, 1),
        "halt.b": (1,),
    }


def matrices(model: AnyModel) -> tuple[str, ...]:
    """The parameters that Muon trains."""
    if isinstance(model, Transformer):
        return transformer_matrices(model)
    return pairs_matrices(model) if isinstance(model, PairTransformer) else RNN_MATRICES


def check_parameters(model: AnyModel, params) -> None:
    """Names and shapes are the model's, no more and no fewer."""
    wanted = parameter_shapes(model)
    if set(params) != set(wanted):
        missing, unknown = sorted(set(wanted) - set(params)), sorted(set(params) - set(wanted))
        raise ValueError(f"params must have the names of the model: missing {missing}, unknown {unknown}")
    for name, shape in wanted.items():
        if tuple(params[name].shape) != shape:
            raise ValueError(f"params[{name!r}] must have the shape {shape}, got {tuple(params[name].shape)}")


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
