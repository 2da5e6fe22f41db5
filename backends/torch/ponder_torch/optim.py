"""Adam, Muon and clipping in the parameter's dtype (spec O1 to O4); the schedule (O5) is the reference's."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from ponder_ref import checks
from ponder_ref import optim as reference
from ponder_ref.base import AdamState, Clipped, MuonState
from ponder_torch.arrays import as_float

schedule = reference.schedule


def _bias_correction(beta: float, step: int | torch.Tensor, like: torch.Tensor):
    """1 − βᵗ, on the host if t is there, else in the parameter's dtype."""
    if isinstance(step, int | np.integer) or beta == 0:
        return float(reference.bias_correction(beta, step))
    return -torch.expm1(step.to(like.dtype) * math.log(beta))


def adam_update(
    param, grad, m, v, *, step, learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
) -> AdamState:
    """One update of Adam with decoupled weight decay, for one tensor (O1).

    θ ← θ − lr·(m̂/(√v̂ + eps) + decay·θ), moments m and v of g and g² corrected by 1 − βᵗ.
    """
    reference.check_update(step, learning_rate, param=param, grad=grad, m=m, v=v)
    reference.check_adam(beta1, beta2, eps, weight_decay)
    m = torch.add(beta1 * m, grad, alpha=1 - beta1)
    v = torch.addcmul(beta2 * v, grad, grad, value=1 - beta2)
    v_hat = v / _bias_correction(beta2, step, param)
    change = m / _bias_correction(beta1, step, param) / (torch.sqrt(v_hat) + eps)
    if weight_decay:
        change = change + weight_decay * param
    return AdamState(param - learning_rate * change, m, v)


def orthogonalize(matrix: torch.Tensor, *, ns_steps: int = 5) -> torch.Tensor:
    """The nearest orthogonal matrix, roughly: `ns_steps` quintic Newton-Schulz steps (O2)."""
    reference.check_matrix("matrix", matrix)
    checks.check_count("ns_steps", ns_steps, 0)
    a, b, c = reference.NS_COEFFICIENTS
    (matrix,) = as_float(matrix)
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (torch.sqrt((x * x).sum()) + reference.NS_EPS)
    for _ in range(ns_steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


def muon_update(
    param, grad, m, *, step, learning_rate, beta=0.95, nesterov=True, weight_decay=0.0, ns_steps=5
) -> MuonState:
    """One update of Muon for one matrix of canonical shape `[in, out]` (O3).

    θ ← θ − lr·(√max(1, out/in)·orthogonalize(d) + decay·θ), d the bias-corrected (Nesterov) momentum.
    """
    reference.check_update(step, learning_rate, param=param, grad=grad, m=m)
    reference.check_muon(param, beta, weight_decay)
    m = beta * m + (1 - beta) * grad
    now = _bias_correction(beta, step, param)
    if nesterov:
        direction = beta * m / _bias_correction(beta, step + 1, param) + (1 - beta) * grad / now
    else:
        direction = m / now
    update = reference.muon_scale(param) * orthogonalize(direction, ns_steps=ns_steps)
    return MuonState(param - learning_rate * (update + weight_decay * param), m)


def global_norm(grads: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """√Σ‖g‖² over all gradients of a mapping (O4)."""
    flat = torch.cat([grad.flatten() for grad in as_float(*grads.values())])
    return (flat * flat).sum().sqrt()


def clip_by_global_norm(grads: Mapping[str, torch.Tensor], *, max_norm: float) -> Clipped:
    """All gradients of a mapping scaled by max_norm/norm where the norm of all is larger (O4)."""
    reference.check_grads(grads, max_norm)
    names, arrays, norm = list(grads), as_float(*grads.values()), global_norm(grads)
    scale = torch.where(norm > max_norm, max_norm / norm, 1.0)
    return Clipped({name: grad * scale for name, grad in zip(names, arrays, strict=True)}, norm)
