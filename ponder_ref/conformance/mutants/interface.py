"""Defects of the optimisers and of the interface itself: dtypes, errors, batch mates."""

import inspect
import math

import numpy as np

import ponder_ref as R
from ponder_ref.base import AdamState, Clipped, MuonState
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.halting import as_float
from ponder_ref.optim import bias_correction


def adam_uncorrected(param, grad, m, v, *, step, learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    right = R.adam_update(param, grad, m, v, step=step, learning_rate=learning_rate, beta1=beta1, beta2=beta2, eps=eps)
    return AdamState(
        param - learning_rate * (right.m / (np.sqrt(right.v) + eps) + weight_decay * param), right.m, right.v
    )


def adam_eps_inside(param, grad, m, v, *, step, learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    right = R.adam_update(param, grad, m, v, step=step, learning_rate=learning_rate, beta1=beta1, beta2=beta2, eps=eps)
    m_hat, v_hat = right.m / bias_correction(beta1, step), right.v / bias_correction(beta2, step)
    return AdamState(param - learning_rate * (m_hat / np.sqrt(v_hat + eps) + weight_decay * param), right.m, right.v)


def adam_decay_coupled(param, grad, m, v, *, step, learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    grad = grad + weight_decay * param if grad.shape == param.shape else grad
    return R.adam_update(param, grad, m, v, step=step, learning_rate=learning_rate, beta1=beta1, beta2=beta2, eps=eps)


def newton_schulz_textbook(matrix, *, ns_steps=5):
    R.orthogonalize(matrix, ns_steps=ns_steps)
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (np.sqrt((x * x).sum()) + 1e-8)
    for _ in range(ns_steps):
        square = x @ x.T
        x = (15 * x - 10 * square @ x + 3 * square @ square @ x) / 8
    return x.T if tall else x


def _muon(param, grad, m, step, learning_rate, beta, nesterov, weight_decay, ns_steps):
    keywords = {"beta": beta, "nesterov": nesterov, "weight_decay": weight_decay, "ns_steps": ns_steps}
    return R.muon_update(param, grad, m, step=step, learning_rate=learning_rate, **keywords)


def muon_scale_transposed(
    param, grad, m, *, step, learning_rate, beta=0.95, nesterov=True, weight_decay=0.0, ns_steps=5
):
    right = _muon(param, grad, m, step, learning_rate, beta, nesterov, 0.0, ns_steps)
    rows, columns = param.shape
    factor = math.sqrt(max(1.0, rows / columns)) / math.sqrt(max(1.0, columns / rows))
    return MuonState(param - factor * (param - right.param) - learning_rate * weight_decay * param, right.m)


def muon_plain_momentum(param, grad, m, *, step, learning_rate, beta=0.95, nesterov=True, weight_decay=0.0, ns_steps=5):
    return _muon(param, grad, m, step, learning_rate, beta, False, weight_decay, ns_steps)


def muon_uncorrected(param, grad, m, *, step, learning_rate, beta=0.95, nesterov=True, weight_decay=0.0, ns_steps=5):
    return _muon(param, grad, m, step if step < 1 else 10**6, learning_rate, beta, nesterov, weight_decay, ns_steps)


def clip_each(grads, *, max_norm):
    right = R.clip_by_global_norm(grads, max_norm=max_norm)
    return Clipped({k: R.clip_by_global_norm({k: g}, max_norm=max_norm).grads[k] for k, g in grads.items()}, right.norm)


def clip_always(grads, *, max_norm):
    right = R.clip_by_global_norm(grads, max_norm=max_norm)
    return Clipped({name: grad * max_norm / (right.norm + 1e-6) for name, grad in grads.items()}, right.norm)


def schedule_from_zero(update, *, learning_rate, total, warmup=0, decay="constant", end=0.0, power=1.0):
    keywords = {"learning_rate": learning_rate, "total": total, "warmup": warmup, "decay": decay, "end": end}
    R.schedule(update, **keywords, power=power)
    return R.schedule(update + 1, **keywords, power=power)


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
    Mutant("adam-uncorrected", "Adam without bias correction", "O1", {"adam_update": adam_uncorrected}),
    Mutant("adam-eps-inside", "eps inside the root", "O1", {"adam_update": adam_eps_inside}),
    Mutant("adam-decay-coupled", "weight decay added to the gradient", "O1", {"adam_update": adam_decay_coupled}),
    Mutant("newton-schulz-textbook", "other coefficients", "O2", {"orthogonalize": newton_schulz_textbook}),
    Mutant(
        "muon-scale-transposed",
        "the scale rule by in/out instead of out/in",
        "O3",
        {"muon_update": muon_scale_transposed},
    ),
    Mutant("muon-plain-momentum", "Nesterov has no effect", "O3", {"muon_update": muon_plain_momentum}),
    Mutant("muon-uncorrected", "Muon without bias correction", "O3", {"muon_update": muon_uncorrected}),
    Mutant("clip-each", "every tensor is clipped by its own norm", "O4", {"clip_by_global_norm": clip_each}),
    Mutant("clip-always", "gradients are scaled up as well", "O4", {"clip_by_global_norm": clip_always}),
    Mutant("schedule-from-zero", "updates counted from 0", "O5", {"schedule": schedule_from_zero}),
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
    Mutant("loss-renamed", "a parameter of the level module", "B2", renamed("pondering_loss", "weights", "mask")),
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
