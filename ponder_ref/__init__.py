"""The NumPy reference of the PonderNet standard: plain, float64, one module a chapter of `spec/`.

It is itself a backend: `python -m ponder_ref.conformance --backend ponder_ref`.
"""

import sys

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    sentence = "pondernet needs numpy, which is not installed: pip install -e . in a clone of pondernet installs it"
    if sys.argv[0] == "-m":  # `python -m ponder_ref.…` is on its way in: one sentence instead of a traceback
        print(sentence, file=sys.stderr)
        raise SystemExit(2) from None
    raise ImportError(sentence) from None

from ponder_ref.act import act_cost, act_halting, act_output
from ponder_ref.adapter import DTYPES, NAME, NOT_OFFERED, from_numpy, to_numpy, value_and_grad
from ponder_ref.base import SPEC_VERSION
from ponder_ref.criteria import binary_cross_entropy, cross_entropy, squared_error
from ponder_ref.halting import (
    ValueWarning,
    expected_prediction,
    expected_steps,
    halting_lengths,
    log_halting,
    log_halting_from_lambdas,
)
from ponder_ref.infer import predict, stream
from ponder_ref.losses import expected_loss, kl_divergence, ponder_loss, weighted_mean
from ponder_ref.models.pairs import pairs_decode, pairs_encode, pairs_query, pairs_readout, pairs_transition
from ponder_ref.models.rnn import rnn_initial_state, rnn_project, rnn_readout, rnn_transition
from ponder_ref.models.transformer import transformer_encode, transformer_readout, transformer_transition
from ponder_ref.net import PonderNet, load
from ponder_ref.optim import adam_update, clip_by_global_norm, muon_update, orthogonalize, schedule
from ponder_ref.pondering import ponder, training_loss
from ponder_ref.priors import geometric_log_prior, poisson_log_prior, uniform_log_prior
from ponder_ref.sampling import draw_steps, halting_uniforms, quantile_steps, sample_steps, threefry2x32

__all__ = [
    "DTYPES",
    "NAME",
    "NOT_OFFERED",
    "SPEC_VERSION",
    "PonderNet",
    "ValueWarning",
    "act_cost",
    "act_halting",
    "act_output",
    "adam_update",
    "binary_cross_entropy",
    "clip_by_global_norm",
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
    "weighted_mean",
]
