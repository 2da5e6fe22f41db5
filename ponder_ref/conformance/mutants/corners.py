"""Defects that show only at some shapes, sizes, options or dtypes."""

import numpy as np

import ponder_ref as R
from ponder_ref.base import Clipped
from ponder_ref.conformance.mutants.base import Mutant, again, changed, detach
from ponder_ref.halting import as_float

HALF = ("float32", "float16")
BOTH = ("float64", "float32")


def _float32(x):
    """Rounded to float32, the tangent kept."""
    return np.real(x).astype(np.float32).astype(np.float64) + (1j * np.imag(x) if np.iscomplexobj(x) else 0)


def _rank(given: dict, name: str, rank: int) -> bool:
    return np.ndim(given[name]) == rank


def first_prior(right, given):
    prior = np.asarray(given["log_prior"])
    prior = np.broadcast_to(prior[:, :1, :1], prior.shape) if prior.ndim == 3 else prior
    return again(right, {**given, "log_prior": prior})


def plane_detached(right, given):
    z, plain = given["halt_logits"], given["lengths"] is None and given["remainder"] == "normalize"
    return again(right, {**given, "halt_logits": detach(z) if plain and z.ndim == 3 else z})


def squeezed(right, given):
    log_p = again(right, given)
    return log_p[:, 0] if log_p.ndim == 3 and log_p.shape[1] == 1 else log_p


def scalar_lengths(right, given):
    steps = again(right, given)
    return again(right, {**given, "lengths": None}) if _rank(given, "lambdas", 1) else steps


def scalar_ids(right, given):
    steps = again(right, given)
    ids = given["example_ids"]
    return again(right, {**given, "example_ids": ids * 0}) if _rank(given, "lambdas", 1) else steps


def single_step(right, given):
    return again(right, given) + (np.shape(given["log_p"]) == (1,))


def min_steps_capped(right, given):
    steps = again(right, given)
    inner = 2 < given["min_steps"] < len(given["halt_logits"])
    return again(right, {**given, "min_steps": 2}) if inner else steps


def int8_steps(right, given):
    return again(right, given).astype(np.int8)


def int8_lengths(right, given):
    log_p, lengths = again(right, given), given["lengths"]
    return log_p if lengths is None else again(right, {**given, "lengths": np.minimum(lengths, 127)})


def chunked(right, given):
    log_p = again(right, given)
    return np.concatenate([log_p[:, :1000], log_p[:, 1000:] - 0.1], 1) if log_p.ndim == 2 else log_p


def memory_order(right, given):
    y_hat = given["y_hat"]
    return again(right, {**given, "y_hat": y_hat.ravel("K").reshape(y_hat.shape)})


def infinite_cut(right, given):
    z = as_float(given["halt_logits"])
    lost = np.where(np.isinf(np.real(z)), np.nan, z)
    return again(right, {**given, "halt_logits": z if given["lengths"] is None else lost})


def nan_beyond(right, given):
    log_p = again(right, given)
    return log_p if given["lengths"] is None else np.where(np.isnan(log_p).any(axis=0), np.nan, log_p)


def nan_halts(right, given):
    steps, lam = again(right, given), np.asarray(given["lambdas"])
    return steps if given["lengths"] is None else again(right, {**given, "lambdas": np.where(np.isnan(lam), 1.0, lam)})


def nan_in_gradients(right, given):
    log_p = again(right, given)
    hurt = np.iscomplexobj(log_p) and np.isnan(np.real(log_p)).any()
    return np.where(np.real(log_p) == -np.inf, log_p, np.real(log_p) + 1j * np.nan) if hurt else log_p


def nan_in_planes(right, given):
    out = again(right, given)
    known = not np.isnan(np.real(given["log_p"])).any()
    return out + np.nan if _rank(given, "log_p", 3) and known and np.isnan(np.real(out)).any() else out


def slope_at_no_weight(right, given):
    out, y_hat, weights = again(right, given), as_float(given["y_hat"]), np.real(given["weights"])
    unused = (weights == 0).reshape(*weights.shape, *[1] * (y_hat.ndim - weights.ndim))
    return out + 1j * np.where(unused, np.imag(y_hat), 0).sum(axis=0) if np.iscomplexobj(y_hat) else out


def limit_detached(right, given):
    act = again(right, given)
    limit = act.steps == len(given["lambdas"])
    return act._replace(remainder=np.where(limit, np.real(act.remainder), act.remainder))


def sum_clamped(right, given):
    mean = again(right, given)
    total = 1.0 if given["weights"] is None else np.sum(given["weights"], dtype=np.float64)
    return mean * total / max(total, 1e-8)


def weights_rounded(right, given):
    weights = given["weights"]
    return again(right, {**given, "weights": None if weights is None else weights.astype(np.float32)})


def draw_rounded(right, given):
    steps = again(right, given)
    return steps if steps.size == 0 else again(right, {**given, "lambdas": _float32(given["lambdas"])})


def rounded_beside_float32(right, given):
    narrow = given["log_prior"].dtype == np.float32 and given["log_p"].dtype == np.float64
    return again(right, {**given, "log_p": _float32(given["log_p"])} if narrow else given)


def wide_gradients(fn, *arrays, constants=()):
    value, grads = R.value_and_grad(fn, *arrays, constants=constants)
    return value, tuple(grad.astype(np.float64) for grad in grads)


def uniforms_rounded(right, given):
    return again(right, {**given, "uniforms": given["uniforms"].astype(given["lambdas"].dtype)})


def drawn_in_half(right, given):
    steps, lam = again(right, given), given["lambdas"]
    u = R.halting_uniforms(given["seed"], given["example_ids"], max_steps=len(lam), draw=given["draw"])
    return R.sample_steps(lam, u.astype(lam.dtype), lengths=given["lengths"]) if steps.size else steps


def half_result(right, given):
    kl = again(right, given)
    return kl.astype(np.float16).astype(np.float64) if given["log_p"].dtype == np.float16 else kl


def no_second_moment(right, given):
    state = again(right, given)
    return state if given["beta2"] > 0 else state._replace(param=given["param"] + 0.0)


def large_matrix(right, given):
    result = again(right, given)
    return result * 1.01 if min(result.shape) > 3 else result


def clip_epsilon(right, given):
    clipped = again(right, given)
    scale = min(1.0, given["max_norm"] / (float(clipped.norm) + 1e-6))
    return Clipped({name: grad * scale for name, grad in given["grads"].items()}, clipped.norm)


def step_not_array(right, given):
    if hasattr(given["step"], "shape"):
        raise TypeError("step must be a Python integer")
    return again(right, given)


def looped(fn, in_axes, lengths=False, reduced=False):
    """vmap by a loop; `lengths` gives every row the integers of the first, `reduced` means a scalar over the rows."""

    def one(array, axis, row):
        row = 0 if lengths and array.dtype.kind in "iu" else row
        return array if axis is None else np.take(array, row, axis)

    def mapped(*arrays):
        size = next(x.shape[axis] for x, axis in zip(arrays, in_axes, strict=True) if axis is not None)
        rows = [fn(*[one(x, axis, i) for x, axis in zip(arrays, in_axes, strict=True)]) for i in range(size)]
        parts = tuple(np.stack(part) for part in zip(*rows, strict=True))
        return (np.full(size, parts[0].mean()), *parts[1:]) if reduced and len(parts) == 5 else parts

    return mapped


def _mapped(**options) -> dict:
    return {"vmapped": lambda fn, in_axes: looped(fn, in_axes, **options), "NOT_OFFERED": ("compiled",)}


MUTANTS = (
    Mutant(
        "first-prior", "the first example's prior in a plane of examples", "L4", changed("ponder_loss", first_prior)
    ),
    Mutant("plane-detached", "normalize detached in a plane", "H9", changed("log_halting", plane_detached)),
    Mutant("squeezed", "a batch axis of length 1 is lost", "B3", changed("log_halting", squeezed)),
    Mutant("scalar-lengths", "no lengths without batch axes", "S3", changed("sample_steps", scalar_lengths)),
    Mutant("scalar-ids", "no id without batch axes", "S4", changed("draw_steps", scalar_ids)),
    Mutant("single-step", "wrong for one step of one example", "L2", changed("kl_divergence", single_step)),
    Mutant("min-steps-capped", "min_steps above 2 is 2", "H6", changed("halting_lengths", min_steps_capped)),
    Mutant("int8-steps", "steps counted in 8 bits", "S3", changed("sample_steps", int8_steps)),
    Mutant("int8-lengths", "lengths above 127 are 127", "H4", changed("log_halting", int8_lengths)),
    Mutant("chunked", "wrong beyond the thousandth example", "H1", changed("log_halting", chunked)),
    Mutant("memory-order", "memory is read in its own order", "H8", changed("expected_prediction", memory_order)),
    Mutant("infinite-cut", "an infinite logit is NaN with lengths", "H4", changed("log_halting", infinite_cut)),
    Mutant("nan-beyond", "a NaN reaches beyond Nᵢ", "H5", changed("log_halting_from_lambdas", nan_beyond)),
    Mutant("nan-halts", "a NaN λ halts where lengths are given", "S4", changed("draw_steps", nan_halts)),
    Mutant("nan-in-gradients", "a NaN λ in all gradients", "B6", changed("log_halting_from_lambdas", nan_in_gradients)),
    Mutant("nan-in-planes", "a NaN ŷ in a plane reaches all", "B6", changed("expected_prediction", nan_in_planes)),
    Mutant("slope-at-no-weight", "a slope by ŷ where w = 0", "A4", changed("act_output", slope_at_no_weight)),
    Mutant("limit-detached", "R detached at the limit", "A5", changed("act_halting", limit_detached), ("float32",)),
    Mutant("sum-clamped", "Σw is at least 1e-8", "L3", changed("weighted_mean", sum_clamped)),
    Mutant("weights-rounded", "weights rounded to float32", "L3", changed("weighted_mean", weights_rounded)),
    Mutant("draw-rounded", "λ rounded to float32", "S4", changed("draw_steps", draw_rounded)),
    Mutant("mixed-dtypes", "log p in the prior's dtype", "B3", changed("kl_divergence", rounded_beside_float32), BOTH),
    Mutant("wide-gradients", "gradients in float64", "B8", {"value_and_grad": wide_gradients}, HALF),
    Mutant("uniforms-rounded", "u in half precision", "B8", changed("sample_steps", uniforms_rounded), HALF),
    Mutant("drawn-in-half", "u in half precision", "B8", changed("draw_steps", drawn_in_half), HALF),
    Mutant("half-result", "a result rounded to half precision", "B8", changed("kl_divergence", half_result), HALF),
    Mutant("no-second-moment", "β₂ = 0 leaves θ", "O1", changed("adam_update", no_second_moment)),
    Mutant("large-matrix", "wrong beyond three rows", "O2", changed("orthogonalize", large_matrix)),
    Mutant("clip-epsilon", "norm + 1e-6", "O4", changed("clip_by_global_norm", clip_epsilon), ("float32",)),
    Mutant("step-not-array", "t must be a Python integer", "O3", changed("muon_update", step_not_array)),
    Mutant("vmapped-lengths", "mapped lengths are the first example's", "B10", _mapped(lengths=True)),
    Mutant("vmapped-loss", "the mapped loss is the mean over the examples", "B10", _mapped(reduced=True)),
)
RIGHT = Mutant("looped-vmap", "vmap by a loop over the examples", "", _mapped())
