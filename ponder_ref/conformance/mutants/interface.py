"""Defects of the interface itself: names, signatures, dtypes, errors, batch mates."""

import inspect

import numpy as np

import ponder_ref as R
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.halting import as_float


def extra_axis(log_p):
    return R.expected_steps(log_p)[None]


def silent_on_bad_remainder(halt_logits, *, remainder="last", lengths=None):
    return R.log_halting(halt_logits, remainder="normalize" if remainder == "normalize" else "last", lengths=lengths)


def message_without_a_name(log_p, *, q):
    if not 0 < q <= 1:
        raise ValueError("out of range")
    return R.quantile_steps(log_p, q=q)


def renamed_parameter(log_p, losses):
    return R.expected_loss(log_p, losses)


def other_default(lambdas, *, epsilon=0.05):
    return R.act_halting(lambdas, epsilon=epsilon)


def not_written(*args, **kwargs):
    raise NotImplementedError


def not_written_stream(*args, **kwargs):
    raise NotImplementedError
    yield


def whole_numbers_truncate(steps, remainder, *, tau):
    right = R.act_cost(steps, remainder, tau=tau)
    return np.floor(np.real(right)) + 0 * right if isinstance(tau, int) else right


def digits_lost(array, dtype):
    return R.from_numpy(R.from_numpy(array, "float32"), "float64") if dtype == "float64" else R.from_numpy(array, dtype)


def with_default(function: str, **defaults):
    """The reference's function with other defaults."""
    right = getattr(R, function)

    def call(*args, **kwargs):
        return right(*args, **{**defaults, **kwargs})

    parameters = inspect.signature(right).parameters
    moved = [p.replace(default=defaults.get(name, p.default)) for name, p in parameters.items()]
    call.__signature__ = inspect.Signature(moved)  # type: ignore[attr-defined]
    return {function: call}


def renamed(function: str, old: str, new: str):
    """The reference's function with one parameter under another name."""
    right = getattr(R, function)

    def call(*args, **kwargs):
        return right(*args, **{(old if name == new else name): value for name, value in kwargs.items()})

    parameters = inspect.signature(right).parameters
    moved = [p.replace(name=new if name == old else name) for name, p in parameters.items()]
    call.__signature__ = inspect.Signature(moved)  # type: ignore[attr-defined]
    return {function: call}


def in_place(log_p, log_prior):
    result = R.kl_divergence(log_p, log_prior)
    if not np.iscomplexobj(log_p):
        log_p += 1.0
    return result


def batch_maximum(halt_logits, *, remainder="last", lengths=None):
    z = as_float(halt_logits)
    top = np.max(np.where(np.isinf(np.real(z)), 0, np.real(z))) if z.ndim > 1 else 0.0
    log_p = R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    return log_p + 0 * top


def batch_dependent(log_p, step_losses):
    loss = R.expected_loss(log_p, step_losses)
    return loss + 1e-3 * (np.nanmean(np.real(loss)) - loss) if loss.size > 1 else loss


MUTANTS = (
    Mutant("missing-name", "a function is missing and not declared", "B1", {"expected_steps": None}),
    Mutant("renamed-parameter", "a parameter has another name", "B2", {"expected_loss": renamed_parameter}),
    Mutant("other-default", "a default differs", "B2", {"act_halting": other_default}),
    Mutant("missing-ponder", "a function of the level module is missing", "B1", {"ponder": None}),
    Mutant("missing-predict", "a function of the level infer is missing", "B1", {"predict": None}),
    Mutant("missing-stream", "a function of the level infer is missing", "B1", {"stream": None}),
    Mutant("missing-annex", "a function of the annex is missing", "B1", {"muon_update": None}),
    Mutant("unwritten-annex", "a function of the annex has no body", "B1", {"rnn_readout": not_written}),
    Mutant("unwritten-module", "a function of the level module has no body", "B1", {"squared_error": not_written}),
    Mutant("unwritten-predict", "a function of the level infer has no body", "B1", {"predict": not_written}),
    Mutant("unwritten-stream", "a generator without a body", "B1", {"stream": not_written_stream}),
    Mutant("ponder-default", "a default of the level module differs", "B2", with_default("ponder", act_epsilon=0.05)),
    Mutant("predict-default", "a default of the level infer differs", "B2", with_default("predict", q=0.9)),
    Mutant("stream-default", "a default of the level infer differs", "B2", with_default("stream", slots=32)),
    Mutant("annex-default", "a default of the annex differs", "B2", with_default("adam_update", eps=1e-7)),
    Mutant("loss-renamed", "a parameter of the level module", "B2", renamed("training_loss", "weights", "mask")),
    Mutant("predict-renamed", "a parameter of the level infer", "B2", renamed("predict", "slots", "size")),
    Mutant("stream-renamed", "a parameter of the level infer", "B2", renamed("stream", "first_id", "offset")),
    Mutant("extra-axis", "a result has an axis too many", "B3", {"expected_steps": extra_axis}),
    Mutant("digits-lost", "from_numpy rounds to float32", "B3", {"from_numpy": digits_lost}),
    Mutant(
        "too-wide",
        "results are not in the dtype of the arguments",
        "B3",
        {"to_numpy": lambda x: np.real(np.asarray(x)).astype(np.longdouble)},
    ),
    Mutant(
        "silent-remainder", "a wrong remainder is taken for the default", "B4", {"log_halting": silent_on_bad_remainder}
    ),
    Mutant("whole-numbers-truncate", "τ = 1 is not τ = 1.0", "B4", {"act_cost": whole_numbers_truncate}),
    Mutant(
        "nameless-error", "the message does not name the argument", "B4", {"quantile_steps": message_without_a_name}
    ),
    Mutant(
        "batch-mates", "an example's loss leans towards the mean of the batch", "B5", {"expected_loss": batch_dependent}
    ),
    Mutant("nan-leaks", "a NaN logit reaches the whole batch", "B6", {"log_halting": batch_maximum}),
    Mutant("in-place", "an argument is changed", "B7", {"kl_divergence": in_place}),
)
