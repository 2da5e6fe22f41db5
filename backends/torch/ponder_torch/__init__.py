"""PonderNet's halting mathematics in torch: the functions of the standard, for training and serving.

Same names, file by file, as `ponder_jax`; judged by `python -m ponder_ref.conformance --backend ponder_torch`.
"""

from ponder_ref.base import SPEC_VERSION
from ponder_torch.act import act_cost, act_halting, act_output
from ponder_torch.arrays import DTYPES, NAME, compiled, from_numpy, to_numpy, value_and_grad, vmapped
from ponder_torch.criteria import binary_cross_entropy, cross_entropy, squared_error
from ponder_torch.halting import (
    expected_prediction,
    expected_steps,
    halting_lengths,
    log_halting,
    log_halting_from_lambdas,
)
from ponder_torch.infer import predict
from ponder_torch.load import load
from ponder_torch.losses import expected_loss, kl_divergence, ponder_loss, weighted_mean
from ponder_torch.models.pairs import pairs_decode, pairs_encode, pairs_query, pairs_readout, pairs_transition
from ponder_torch.models.rnn import rnn_initial_state, rnn_project, rnn_readout, rnn_transition
from ponder_torch.models.transformer import transformer_encode, transformer_readout, transformer_transition
from ponder_torch.net import PonderNet
from ponder_torch.optim import adam_update, clip_by_global_norm, muon_update, orthogonalize, schedule
from ponder_torch.pondering import ponder, training_loss
from ponder_torch.priors import geometric_log_prior, poisson_log_prior, uniform_log_prior
from ponder_torch.sampling import draw_steps, halting_uniforms, quantile_steps, sample_steps, threefry2x32
from ponder_torch.stream import stream

__all__ = [
    "DTYPES",
    "NAME",
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
]
