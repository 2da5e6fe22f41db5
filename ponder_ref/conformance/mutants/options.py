"""Defects that show under some options alone: arguments changed in place, compiled and mapped code, half precision."""

import numpy as np

import ponder_ref as R
from ponder_ref.conformance.mutants.base import Mutant, again, changed, detach
from ponder_ref.conformance.mutants.corners import looped

HALVES = ("float32", "bfloat16", "float16")


def _writable(array) -> bool:
    return isinstance(array, np.ndarray) and not np.iscomplexobj(array)


def weights_in_place(right, given):
    result, weights = again(right, given), given["weights"]
    if weights is not None and weights.dtype.kind == "f":
        weights /= weights.sum()
    return result


def lengths_in_place(right, given):
    result = again(right, given)
    if given["lengths"] is not None and given.get("remainder") != "last":
        given["lengths"] -= 1
    return result


def logits_in_place(right, given):
    result, z = again(right, given), given["halt_logits"]
    if given["lengths"] is not None and _writable(z):
        n = np.arange(1, len(z) + 1).reshape(-1, *[1] * (z.ndim - 1))
        z[n > given["lengths"]] = 0
    return result


def prior_in_place(right, given):
    result, prior, log_p = again(right, given), given["log_prior"], given["log_p"]
    if prior.shape == log_p.shape and _writable(prior):
        prior[np.real(log_p) == -np.inf] = 0
    return result


def decay_in_place(right, given):
    result = again(right, given)
    if given["weight_decay"] and _writable(given["param"]):
        given["param"] *= 1 - given["learning_rate"] * given["weight_decay"]
    return result


def momentum_in_place(right, given):
    result = again(right, given)
    if not given["nesterov"]:
        given["m"] *= given["beta"]
    return result


def gradients_in_place(right, given):
    result = again(right, given)
    for name, grad in given["grads"].items():
        if _writable(grad):
            grad[...] = np.real(result.grads[name])
    return result


class Compiler:
    """`compiled` of a framework, without the speed; the defects below show while it runs."""

    def __init__(self):
        self.running = False

    def __call__(self, fn, *, optimize=False):
        def call(*args):
            self.running = True
            try:
                return fn(*args)
            finally:
                self.running = False

        return call

    def only_here(self, function: str, body) -> dict:
        """The function changed by `body` where it is compiled, and `compiled` itself."""
        wrong = changed(function, lambda right, given: (body if self.running else again)(right, given))
        return {**wrong, "compiled": self, "NOT_OFFERED": ("vmapped",)}


def no_weights(right, given):
    return again(right, {**given, "weights": None})


def no_mask(right, given):
    weights = given["weights"]
    masked = weights is not None and weights.dtype.kind == "b"
    return again(right, {**given, "weights": None if masked else weights})


def no_slope(right, given):
    z = given["halt_logits"]
    return again(right, {**given, "halt_logits": detach(z) if given["remainder"] == "normalize" else z})


def no_slope_uncut(right, given):
    return again(right, given) if given["lengths"] is not None else no_slope(right, given)


def not_cut(right, given):
    result = again(right, given)
    return again(right, {**given, "lengths": None}) if given["remainder"] == "last" else result


def no_decay(right, given):
    return again(right, {**given, "weight_decay": 0.0})


def mapped(body, function: str) -> dict:
    """A function changed by `body` where it is mapped."""
    running = []

    def vmapped(fn, in_axes):
        def call(*arrays):
            running.append(True)
            try:
                return looped(fn, in_axes)(*arrays)
            finally:
                running.pop()

        return call

    wrong = changed(function, lambda right, given: (body if running else again)(right, given))
    return {**wrong, "vmapped": vmapped, "NOT_OFFERED": ("compiled",)}


def wrong_last(right, given):
    result = again(right, given)
    return result - 0.01 if given["remainder"] == "last" else result


def wrong_weights(right, given):
    parts = again(right, given)
    return parts if given["weights"] is None else parts._replace(loss=parts.loss * 1.01)


def from_numpy(array, dtype):
    """Half precision of either kind; bfloat16, which NumPy lacks, in float32."""
    return R.from_numpy(array, "float32" if dtype == "bfloat16" else dtype)


def in_half(right, given):
    """Rounded to half precision in the one rule that is the default, for float16 alone."""
    result = again(right, given)
    half = given["halt_logits"].dtype == np.float16 and given["remainder"] == "last" and given["lengths"] is None
    return result.astype(np.float16).astype(np.float64) if half else result


def masked_half(right, given):
    mean, half = again(right, given), given["values"].dtype == np.float16 and given["weights"] is not None
    return mean.astype(np.float16).astype(np.float64) if half and given["weights"].dtype.kind == "f" else mean


MUTANTS = (
    Mutant("weights-in-place", "weights are normalised in place", "B7", changed("ponder_loss", weights_in_place)),
    Mutant("mean-in-place", "weights are normalised in place", "B7", changed("weighted_mean", weights_in_place)),
    Mutant("lengths-in-place", "lengths are counted from 0 in place", "B7", changed("log_halting", lengths_in_place)),
    Mutant("drawn-in-place", "lengths are counted from 0 in place", "B7", changed("draw_steps", lengths_in_place)),
    Mutant("logits-in-place", "logits beyond Nᵢ are cleaned in place", "B7", changed("log_halting", logits_in_place)),
    Mutant("prior-in-place", "an own prior is cleaned in place", "B7", changed("kl_divergence", prior_in_place)),
    Mutant("decay-in-place", "θ decays in place", "B7", changed("adam_update", decay_in_place)),
    Mutant("momentum-in-place", "the momentum is changed in place", "B7", changed("muon_update", momentum_in_place)),
    Mutant("clipped-in-place", "g is clipped in place", "B7", changed("clip_by_global_norm", gradients_in_place)),
    Mutant("compiled-weights", "compiled, weights are ignored", "B9", Compiler().only_here("ponder_loss", no_weights)),
    Mutant("compiled-mask", "compiled, a mask is ignored", "B9", Compiler().only_here("weighted_mean", no_mask)),
    Mutant("compiled-slope", "compiled, normalize is detached", "B9", Compiler().only_here("log_halting", no_slope)),
    Mutant(
        "compiled-slope-uncut",
        "compiled, normalize is detached without lengths",
        "B9",
        Compiler().only_here("log_halting", no_slope_uncut),
    ),
    Mutant("compiled-lengths", "compiled, lengths are ignored", "B9", Compiler().only_here("log_halting", not_cut)),
    Mutant("compiled-decay", "compiled, θ does not decay", "B9", Compiler().only_here("muon_update", no_decay)),
    Mutant("vmapped-last", 'mapped, "last" is wrong', "B10", mapped(wrong_last, "log_halting")),
    Mutant("vmapped-slope", "mapped, normalize is detached", "B10", mapped(no_slope, "log_halting")),
    Mutant("vmapped-weights", "mapped, weights are wrong", "B10", mapped(wrong_weights, "ponder_loss")),
    Mutant(
        "half-last",
        'float16 is rounded on the way, under "last"',
        "B8",
        {**changed("log_halting", in_half), "from_numpy": from_numpy},
        HALVES,
    ),
    Mutant(
        "half-weights",
        "float16 is rounded on the way, with weights",
        "B8",
        {**changed("weighted_mean", masked_half), "from_numpy": from_numpy},
        HALVES,
    ),
)
