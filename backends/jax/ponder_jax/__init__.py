"""PonderNet's halting mathematics in JAX: the functions of the standard, for training and serving.

Same names, file by file, as `ponder_torch`; judged by `python -m ponder_ref.conformance --backend ponder_jax`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ponder_jax.act import act_cost, act_halting, act_output
from ponder_jax.arrays import (
    DTYPES,
    ENVIRONMENT,
    NAME,
    QUICK,
    compiled,
    from_numpy,
    to_numpy,
    value_and_grad,
    vmapped,
    witness,
)
from ponder_jax.criteria import binary_cross_entropy, cross_entropy, squared_error
from ponder_jax.halting import (
    expected_prediction,
    expected_steps,
    halting_lengths,
    log_halting,
    log_halting_from_lambdas,
)
from ponder_jax.infer import predict
from ponder_jax.load import load
from ponder_jax.losses import expected_loss, kl_divergence, ponder_loss, weighted_mean
from ponder_jax.optim import adam_update, clip_by_global_norm, muon_update, orthogonalize, schedule
from ponder_jax.pondering import ponder, training_loss
from ponder_jax.priors import geometric_log_prior, poisson_log_prior, uniform_log_prior
from ponder_jax.sampling import draw_steps, halting_uniforms, quantile_steps, sample_steps, threefry2x32
from ponder_jax.stream import stream
from ponder_ref.base import SPEC_VERSION

if TYPE_CHECKING:
    from ponder_jax.models.pairs import pairs_decode, pairs_encode, pairs_query, pairs_readout, pairs_transition
    from ponder_jax.models.rnn import rnn_initial_state, rnn_project, rnn_readout, rnn_transition
    from ponder_jax.models.transformer import transformer_encode, transformer_readout, transformer_transition
    from ponder_jax.net import PonderNet

__all__ = [
    "DTYPES",
    "ENVIRONMENT",
    "NAME",
    "QUICK",
    "SPEC_VERSION",
    "PonderNet",
    "act_cost",
    "act_halting",
    "act_output",
    "adam_update",
    "binary_cross_entropy",
    "clip_by_global_norm",
    "compiled",
    "cross_entropy",
    "draw_steps",
    "expected_loss",
    "expected_prediction",
    "expected_steps",
    "from_numpy",
    "geometric_log_prior",
    "halting_lengths",
    "halting_uniforms",
    "kl_divergence",
    "load",
    "log_halting",
    "log_halting_from_lambdas",
    "muon_update",
    "orthogonalize",
    "pairs_decode",
    "pairs_encode",
    "pairs_query",
    "pairs_readout",
    "pairs_transition",
    "poisson_log_prior",
    "ponder",
    "ponder_loss",
    "predict",
    "quantile_steps",
    "rnn_initial_state",
    "rnn_project",
    "rnn_readout",
    "rnn_transition",
    "sample_steps",
    "schedule",
    "squared_error",
    "stream",
    "threefry2x32",
    "to_numpy",
    "training_loss",
    "transformer_encode",
    "transformer_readout",
    "transformer_transition",
    "uniform_log_prior",
    "value_and_grad",
    "vmapped",
    "weighted_mean",
    "witness",
]


def __getattr__(name: str):
    """Modules that need Flax when they are first asked for: it is slow to import, and the mathematics needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "net" if name == "PonderNet" else f"models.{name.partition('_')[0]}"
    return getattr(import_module(f"{__name__}.{room}"), name)
