"""Adam, Muon, clipping and the learning-rate schedule (spec O1 to O5)."""

import math

import numpy as np

from ponder_ref import checks
from ponder_ref.base import AdamState, Clipped, MuonState

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NS_EPS = 1e-8


def check_update(step, learning_rate, **same_shape) -> None:
    """One dtype (float32 or float64) and one shape for a parameter, its gradient and moments; a legal step."""
    checks.check_update_number(step)
    checks.check_scalar("learning_rate", learning_rate, "[0, inf)")
    (first, param), *others = same_shape.items()
    for name, x in same_shape.items():
        checks.check_array(name, x)
        if checks.dtype_name(x) not in ("float32", "float64"):
            raise ValueError(f"{name} must be float32 or float64, got {checks.dtype_name(x)}")
    for name, x in others:
        checks.check_shape(name, x, tuple(param.shape), first)
        if checks.dtype_name(x) != checks.dtype_name(param):
            raise ValueError(
                f"{name} must have the dtype {checks.dtype_name(param)} of {first}, got {checks.dtype_name(x)}"
            )


def check_matrix(name: str, x) -> None:
    checks.check_floating(name, x)
    if len(x.shape) != 2 or 0 in x.shape:
        raise ValueError(f"{name} must be a matrix that is not empty, got shape {tuple(x.shape)}")


def bias_correction(beta: float, step) -> float:
    """1 − βᵗ, accurately for β near 1."""
    return -np.expm1(step * math.log(beta)) if beta > 0 else 1.0


def check_adam(beta1: float, beta2: float, eps: float, weight_decay: float) -> None:
    checks.check_number("beta1", beta1, "[0, 1)")
    checks.check_number("beta2", beta2, "[0, 1)")
    checks.check_number("eps", eps, "[0, inf)")
    checks.check_number("weight_decay", weight_decay, "[0, inf)")


def adam_update(
    param, grad, m, v, *, step, learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
) -> AdamState:
    """One update of Adam with decoupled weight decay, for one tensor (O1).

    θ ← θ − lr·(m̂/(√v̂ + eps) + decay·θ), moments m and v of g and g² corrected by 1 − βᵗ.
    """
    check_update(step, learning_rate, param=param, grad=grad, m=m, v=v)
    check_adam(beta1, beta2, eps, weight_decay)
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad * grad
    m_hat = m / bias_correction(beta1, step)
    v_hat = v / bias_correction(beta2, step)
    return AdamState(param - learning_rate * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * param), m, v)


def orthogonalize(matrix, *, ns_steps: int = 5) -> np.ndarray:
    """The nearest orthogonal matrix, roughly: `ns_steps` quintic Newton-Schulz steps (O2)."""
    check_matrix("matrix", matrix)
    checks.check_count("ns_steps", ns_steps, 0)
    a, b, c = NS_COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (np.sqrt((x * x).sum()) + NS_EPS)
    for _ in range(ns_steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


def check_muon(param, beta: float, weight_decay: float) -> None:
    check_matrix("param", param)
    checks.check_number("beta", beta, "[0, 1)")
    checks.check_number("weight_decay", weight_decay, "[0, inf)")


def muon_scale(param) -> float:
    """√max(1, out/in) for a matrix `[in, out]`."""
    return math.sqrt(max(1.0, param.shape[1] / param.shape[0]))


def muon_update(
    param, grad, m, *, step, learning_rate, beta=0.95, nesterov=True, weight_decay=0.0, ns_steps=5
) -> MuonState:
    """One update of Muon for one matrix of canonical shape `[in, out]` (O3).

    θ ← θ − lr·(√max(1, out/in)·orthogonalize(d) + decay·θ), d the bias-corrected (Nesterov) momentum.
    """
    check_update(step, learning_rate, param=param, grad=grad, m=m)
    check_muon(param, beta, weight_decay)
    m = beta * m + (1 - beta) * grad
    now = bias_correction(beta, step)
    if nesterov:
        direction = beta * m / bias_correction(beta, step + 1) + (1 - beta) * grad / now
    else:
        direction = m / now
    update = muon_scale(param) * orthogonalize(direction, ns_steps=ns_steps)
    return MuonState(param - learning_rate * (update + weight_decay * param), m)


def check_grads(grads, max_norm) -> None:
    if not grads:
        raise ValueError(f"grads must not be empty, got {checks.quoted(grads)}")
    for name, grad in grads.items():
        checks.check_floating(f"grads[{name!r}]", grad)
    checks.check_number("max_norm", max_norm, "(0, inf)")


def global_norm(grads):
    """√Σ‖g‖² over all gradients of a mapping (O4)."""
    return np.sqrt(sum((grad * grad).sum() for grad in grads.values()))


def clip_by_global_norm(grads, *, max_norm: float) -> Clipped:
    """All gradients of a mapping scaled by max_norm/norm where the norm of all is larger (O4)."""
    check_grads(grads, max_norm)
    norm = global_norm(grads)
    scale = max_norm / norm if norm > max_norm else 1.0
    return Clipped({name: grad * scale for name, grad in grads.items()}, norm)


def schedule(
    update: int,
    *,
    learning_rate: float,
    total: int,
    warmup: int = 0,
    decay: str = "constant",
    end: float = 0.0,
    power: float = 1.0,
) -> float:
    """The learning rate of an update, counted from 1: linear warm-up, then constant or a decay to `end` (O5).

    >>> [schedule(t, learning_rate=1.0, total=6, warmup=2, decay="linear") for t in (1, 2, 3, 5, 7)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    checks.check_count("update", update, 1)
    checks.check_number("learning_rate", learning_rate, "[0, inf)")
    checks.check_count("total", total, 1)
    checks.check_count("warmup", warmup, 0, total - 1)
    checks.check_number("end", end, "[0, inf)")
    checks.check_number("power", power, "(0, inf)")
    if update <= warmup:
        return learning_rate * update / warmup
    left = 1 - min(1.0, (update - 1 - warmup) / (total - warmup))
    shapes = {
        "constant": 1.0,
        "linear": left,
        "cosine": (1 - math.cos(math.pi * left)) / 2,
        "polynomial": left**power,
    }
    if decay not in shapes:
        raise ValueError(f"decay must be one of {', '.join(shapes)}, got {checks.quoted(decay)}")
    if decay == "constant":
        return learning_rate
    return end + (learning_rate - end) * shapes[decay]
