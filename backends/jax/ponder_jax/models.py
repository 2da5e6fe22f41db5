"""Canonical models under canonical names (spec M8): the RNN of the parity experiment (paper app. B)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ponder_jax.pairs import pairs_unroll
from ponder_jax.pondering import leaving_rule, pondered
from ponder_jax.rnn import rnn_unroll
from ponder_jax.transformer import transformer_unroll
from ponder_jax.ut_act import ut_act_unroll
from ponder_ref import checks
from ponder_ref.base import Pondered
from ponder_ref.models import Model
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.models.transformer import Transformer

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


def run_model(
    model: Model,
    params: Params,
    inputs: Any,
    *,
    max_steps: int,
    method: str = "ponder",
    min_steps: int = 1,
    epsilon: float | None = None,
    remainder: str = "last",
    act_epsilon: float = 0.01,
) -> Pondered:
    """The model pondering over a batch, as `ponder` runs it but faster; its state has no gradient.

    Inputs are `[batch, inputs]` for the RNN, a dict of buckets for the Transformer, a dict of images and slots for
    that of pairs.
    """
    methods = checks.TRAINED_METHODS if isinstance(model, Transformer) else checks.METHODS
    checks.check_pondering(max_steps, method, min_steps, epsilon, remainder, act_epsilon, methods)
    if isinstance(model, Transformer) and method == "ut-act":
        return ut_act_unroll(model, params, inputs, max_steps, act_epsilon)
    rule = leaving_rule(method, epsilon, act_epsilon, min_steps)
    steps = 1 if method == "once" else max_steps
    if isinstance(model, Transformer):
        y_hat, z, state, lengths = transformer_unroll(model, params, inputs, steps, rule)
    elif isinstance(model, PairTransformer):
        y_hat, z, state, lengths = pairs_unroll(model, params, inputs, steps, rule)
    else:
        y_hat, z, state, lengths = rnn_unroll(params, rnn_project(params, inputs), steps, rule)
        y_hat = y_hat[..., 0] if model.outputs == 1 else y_hat
    return pondered(y_hat, z, lengths, state, method, remainder, cut=rule is not None)
