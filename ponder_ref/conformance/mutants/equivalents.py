"""Backends that are right but different: the judge must not reject them."""

from dataclasses import replace
from functools import wraps

import numpy as np

import ponder_ref as R
from ponder_ref.conformance.interface import ANNEX, MODULE_FUNCTIONS
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.conformance.mutants.corners import RIGHT
from ponder_ref.conformance.mutants.inference import SLOT_MACHINE
from ponder_ref.conformance.mutants.interface import not_written
from ponder_ref.conformance.mutants.roundings import EQUIVALENTS as ROUNDED
from ponder_ref.conformance.mutants.streams import IN_ORDER
from ponder_ref.halting import as_float, log_sigmoid
from ponder_ref.sampling import threefry2x32


def categorical(lambdas, seed, example_ids, *, draw=0, lengths=None):
    """One uniform an example, compared with the cumulative p: the same law by another generator."""
    R.draw_steps(lambdas, seed, example_ids, draw=draw, lengths=lengths)
    p = np.exp(R.log_halting_from_lambdas(np.asarray(lambdas, np.float64), lengths=lengths))
    ids = np.asarray(example_ids).astype(np.int64) & 0xFFFFFFFF
    high, low = threefry2x32((seed & 0xFFFFFFFF, (seed >> 32) ^ 0x9E3779B9), (ids, np.full(ids.shape, draw)))
    u = (high.astype(np.float64) * 2**32 + low) / 2**64
    return 1 + (np.cumsum(p, axis=0)[:-1] <= u).sum(axis=0)


def probability_space(halt_logits, *, remainder="last", lengths=None):
    """Products of probabilities in float64; logarithms only where they underflow."""
    right = R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    if lengths is not None or remainder == "normalize":
        return right
    z = as_float(halt_logits)
    lam, stay = np.exp(log_sigmoid(z)), np.exp(log_sigmoid(-z))
    reached = np.concatenate([np.ones_like(z[:1]), np.cumprod(stay, axis=0)[:-1]])
    p = np.concatenate([(lam * reached)[:-1], reached[-1:]])
    usable = (np.real(p) > 1e-290) & (np.real(p) < 0.999)  # near 1 the logarithm of a rounded product loses digits
    with np.errstate(all="ignore"):
        return np.where(usable, np.log(np.where(usable, p, 1)), right)


def probability_space_loss(log_p, step_losses):
    R.expected_loss(log_p, step_losses)
    p = np.exp(as_float(log_p))
    return sum(
        np.where(w == 0, 0, w * np.where(w == 0, 0, loss)) for w, loss in zip(p, as_float(step_losses), strict=True)
    )


def steps_last(halt_logits, *, remainder="last", lengths=None):
    """The step axis at the end inside, brought back at the door."""
    R.log_halting(halt_logits, remainder=remainder, lengths=lengths)
    z = np.ascontiguousarray(np.moveaxis(as_float(halt_logits), 0, -1))
    size = z.shape[-1]
    cut = np.full(z.shape[:-1], size) if lengths is None else np.asarray(lengths)
    n = np.arange(1, size + 1)
    used = n < cut[..., None] if remainder == "last" else n <= cut[..., None]
    z = np.where(used, z, 0)
    stay = np.concatenate([np.zeros_like(z[..., :1]), np.cumsum(log_sigmoid(-z), axis=-1)[..., :-1]], axis=-1)
    log_p = np.where((n == cut[..., None]) & (remainder == "last"), stay, log_sigmoid(z) + stay)
    log_p = np.where(n > cut[..., None], -np.inf, log_p)
    if remainder == "normalize":
        never = (np.real(log_p) == -np.inf).all(axis=-1, keepdims=True)
        log_p = np.where(never & (n <= cut[..., None]), 0, log_p)
        top = np.real(log_p).max(axis=-1, keepdims=True)
        log_p = log_p - top - np.log(np.exp(log_p - top).sum(axis=-1, keepdims=True))
        log_p = np.where(n > cut[..., None], -np.inf, log_p)
    return np.moveaxis(log_p, -1, 0)


def kl_by_entropy(log_p, log_prior):
    """Cross-entropy minus entropy."""
    R.kl_divergence(log_p, log_prior)
    log_p, prior = as_float(log_p), np.real(as_float(log_prior))
    prior = np.broadcast_to(prior.reshape(*prior.shape, *[1] * (log_p.ndim - prior.ndim)), log_p.shape)
    gone = np.real(log_p) == -np.inf
    p = np.exp(log_p)
    entropy = -(p * np.where(gone, 0, log_p)).sum(axis=0)
    finite = np.isfinite(prior) | gone
    cross = -(p * np.where(gone | ~np.isfinite(prior), 0, prior)).sum(axis=0)
    return np.where(finite.all(axis=0), cross - entropy, np.inf)


def signed(mutant: Mutant, function: str) -> Mutant:
    """The mutant whose function also has the reference's signature (B2)."""
    right, given = getattr(R, function), mutant.replaced[function]
    return replace(mutant, replaced={**mutant.replaced, function: wraps(right)(lambda *a, **k: given(*a, **k))})


TRANSFORMS = ("compiled", "vmapped")
OWN_GENERATOR = (*TRANSFORMS, "threefry2x32", "halting_uniforms", "sample_steps", "S4")
EQUIVALENTS = (
    RIGHT,
    Mutant(
        "no-serving",
        "no function of the level infer, and says so",
        "",
        {"predict": None, "stream": None, "NOT_OFFERED": (*TRANSFORMS, "predict", "stream")},
    ),
    Mutant(
        "no-stream",
        "one function of the level infer has no body, and says so",
        "",
        {"stream": not_written, "NOT_OFFERED": (*TRANSFORMS, "stream")},
    ),
    Mutant(
        "no-modules",
        "no function of the level module, and says so",
        "",
        {**dict.fromkeys(MODULE_FUNCTIONS), "NOT_OFFERED": (*TRANSFORMS, *MODULE_FUNCTIONS)},
    ),
    Mutant(
        "no-annex",
        "no function of the annex, and says so",
        "",
        {**dict.fromkeys(ANNEX), "NOT_OFFERED": (*TRANSFORMS, *ANNEX)},
    ),
    signed(SLOT_MACHINE, "predict"),
    IN_ORDER,
    Mutant(
        "categorical-draw",
        "draws from p by another generator with the same law, and says so",
        "",
        {"draw_steps": categorical, "NOT_OFFERED": OWN_GENERATOR},
    ),
    Mutant(
        "probability-space",
        "products of probabilities in float64",
        "",
        {"log_halting": probability_space, "expected_loss": probability_space_loss},
        ("float64", "float32"),
    ),
    *ROUNDED,
    Mutant("steps-last", "the step axis is the last one inside", "", {"log_halting": steps_last}),
    Mutant("kl-by-entropy", "KL as cross-entropy minus entropy", "", {"kl_divergence": kl_by_entropy}, ("float32",)),
)
