"""Defects of the optimisers (annex, O1 to O5)."""

import math

import numpy as np

import ponder_ref as R
from ponder_ref.base import AdamState, Clipped, MuonState
from ponder_ref.conformance.mutants.base import Mutant
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
)
