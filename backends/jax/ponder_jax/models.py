"""Canonical models under canonical names (spec M8): the RNN of the parity experiment (paper app. B)."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp

from ponder_jax.pondering import ponder
from ponder_ref.interface import Pondered
from ponder_ref.settings import Model

Params = Mapping[str, jax.Array]


def rnn_project(params: Params, x: jax.Array) -> jax.Array:
    """x·W_x + b, `[...batch, hidden]`: the input's share of every step, computed once."""
    return x @ params["rnn.w_x"] + params["rnn.b"]


def rnn_transition(params: Params, projected: jax.Array, h: jax.Array) -> jax.Array:
    """hₙ = tanh(x·W_x + b + hₙ₋₁·W_h), `[...batch, hidden]`."""
    return jnp.tanh(projected + h @ params["rnn.w_h"])


def rnn_readout(params: Params, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prediction `[...]` (`[..., outputs]` for several) and halting logit `[...]` of states `[..., hidden]`."""
    weights = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    both = h @ weights + jnp.concatenate([params["output.b"], params["halt.b"]])  # one product for the two
    return (both[..., 0] if both.shape[-1] == 2 else both[..., :-1]), both[..., -1]


def rnn_initial_state(params: Params, projected: jax.Array) -> jax.Array:
    """h₀ = 0, of the projected input's shape."""
    return jnp.zeros_like(projected)


def run_model(model: Model, params: Params, inputs: jax.Array, **pondering) -> Pondered:
    """The model pondering over a batch, `[batch, ...]`; `pondering` goes to `ponder`."""
    projected = rnn_project(params, inputs)
    step, readout = partial(rnn_transition, params), partial(rnn_readout, params)
    return ponder(step, projected, rnn_initial_state(params, projected), readout=readout, **pondering)
