"""What a call should have returned: the reference on the same numbers, and the scale its rounding is measured by."""

import warnings
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation, assert_close, quantity, tolerance
from ponder_ref.conformance.subject import PRIORS, Subject, result_dtype, round_to
from ponder_ref.halting import log_sigmoid

INTEGER_FIELDS = {
    "halting_lengths": "result",
    "sample_steps": "result",
    "draw_steps": "result",
    "quantile_steps": "result",
    "act_halting": "steps",
    "threefry2x32": "result",
}

FLUSHED = 1e-32  # times a relative tolerance of 1e-5: the largest subnormal number of float32, ten times over
REFERENCE = Subject(ponder_ref, "ponder_ref")


def expected(function: str, arrays: dict, arguments: dict) -> dict[str, np.ndarray]:
    """The reference's result by field, in float64."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return REFERENCE.call(function, arrays, arguments, "float64")


def _weighted(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ |w|·|v| over steps, leaving out what has no weight; FLUSHED allows for weights flushed to 0."""
    weights = weights.reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))
    return ((np.abs(weights) + FLUSHED) * np.where(weights == 0, 0, np.abs(values))).sum(axis=0)


def _kl_terms(log_p: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
    log_prior = log_prior.reshape(*log_prior.shape, *[1] * (log_p.ndim - log_prior.ndim))
    p = np.exp(log_p)
    return (p * np.where(p == 0, 0, np.abs(log_p - log_prior))).sum(axis=0)


def _mean(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    weights = np.ones(values.shape) if weights is None else weights.astype(np.float64)
    return (weights * np.where(weights == 0, 0, values)).sum() / weights.sum()


def terms(function: str, arrays: dict, arguments: dict) -> dict[str, np.ndarray]:
    """The sum of the magnitudes of what is summed, by field, for results of quantities with scale "terms"."""
    a = arrays
    with np.errstate(all="ignore"):
        if function == "expected_prediction":
            return {"result": _weighted(np.exp(a["log_p"]), a["y_hat"])}
        if function == "expected_loss":
            return {"result": _weighted(np.exp(a["log_p"]), a["step_losses"])}
        if function == "kl_divergence":
            return {"result": _kl_terms(a["log_p"], a["log_prior"])}
        if function == "weighted_mean":
            return {"result": _mean(np.abs(a["values"]), a.get("weights"))}
        if function == "ponder_loss":
            rec = _weighted(np.exp(a["log_p"]), a["step_losses"])
            reg = _kl_terms(a["log_p"], a["log_prior"])
            loss_rec, loss_reg = _mean(rec, a.get("weights")), _mean(reg, a.get("weights"))
            loss = loss_rec + arguments["beta"] * loss_reg
            return {"loss": loss, "loss_rec": loss_rec, "loss_reg": loss_reg, "example_rec": rec, "example_reg": reg}
        if function == "act_output":
            return {"result": _weighted(a["weights"], a["y_hat"])}
    return {}


def raised(function: str, arrays: dict, arguments: dict, want: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By how much each field grows if a KL that rounding made negative is returned as 0, which is allowed (L2)."""
    field = {"kl_divergence": "result", "ponder_loss": "example_reg"}.get(function)
    if field is None or not (want[field] < 0).any():
        return {}
    lift = np.maximum(-np.where(want[field] < 0, want[field], 0), 0)
    if function == "kl_divergence":
        return {"result": lift}
    mean = _mean(lift, arrays.get("weights"))
    return {"example_reg": lift, "loss_reg": mean, "loss": arguments["beta"] * mean}


def decision(function: str, arrays: dict, arguments: dict) -> tuple[np.ndarray, float] | None:
    """For functions that choose a step by a threshold: the sum compared at each step, and the threshold."""
    with np.errstate(all="ignore"):
        if function == "halting_lengths":
            return np.cumsum(log_sigmoid(-arrays["halt_logits"]), axis=0), float(np.log(arguments["epsilon"]))
        if function == "quantile_steps":
            return np.cumsum(np.exp(arrays["log_p"]), axis=0), arguments["q"]
        if function == "act_halting":
            return np.cumsum(arrays["lambdas"], axis=0), 1 - arguments.get("epsilon", 0.01)
    return None


def undecided(
    function: str, arrays: dict, arguments: dict, got: np.ndarray, want: np.ndarray, dtype: str
) -> np.ndarray:
    """Where a differing step is excused: wherever the two disagree, the sum lies within `cdf` of its threshold."""
    made = decision(function, arrays, arguments)
    if made is None or got.shape != want.shape:
        return np.zeros(want.shape, bool)
    sums, threshold = made
    margin = tolerance("cdf", dtype)["atol"] * (1 + abs(threshold))
    near = np.abs(sums - threshold) <= margin
    if function == "quantile_steps":  # of p as it is, or of p divided by its sum (S6)
        shares = sums / sums[-1]
        near |= (np.minimum(sums, shares) - margin <= threshold) & (threshold <= np.maximum(sums, shares) + margin)
    n = np.arange(1, len(sums) + 1).reshape(-1, *[1] * want.ndim)
    between = (n >= np.minimum(got, want)) & (n < np.maximum(got, want))
    return (near | ~between).all(axis=0) & (got >= 1) & (got <= len(sums))


def check_dtypes(function: str, got: dict[str, np.ndarray], dtype: str) -> None:
    """B3 and B8: floats in the widest dtype of the arguments, float32 for half precision; integers in any."""
    for field, value in got.items():
        if INTEGER_FIELDS.get(function) == field:
            if value.dtype.kind not in "iu":
                raise Violation("B3", f"{function}: {field} has dtype {value.dtype}, should be an integer dtype")
            continue
        should = "float32" if function == "halting_uniforms" else result_dtype(dtype)
        if function != "schedule" and value.dtype.name != should:
            requirement = "B8" if dtype != result_dtype(dtype) else "B3"
            raise Violation(requirement, f"{function}[{dtype}]: {field} has dtype {value.dtype}, should be {should}")


def assert_agrees(
    requirement: str,
    function: str,
    arrays: dict[str, np.ndarray],
    arguments: dict[str, Any],
    got: dict[str, np.ndarray],
    dtype: str,
    *,
    want: dict[str, np.ndarray] | None = None,
    ties: bool = True,
) -> None:
    """The result of a call against the reference, or against `want`; `ties` excuses steps too near a threshold."""
    check_dtypes(function, got, dtype)
    want = expected(function, arrays, arguments) if want is None else want
    if set(got) != set(want):
        raise Violation("B3", f"{function}: fields {sorted(got)}, should be {sorted(want)}")
    scales, lifts = terms(function, arrays, arguments), raised(function, arrays, arguments, want)
    given = {**arrays, **arguments}
    first = next(iter(arrays.values()), np.zeros(()))
    batch = first.shape if function in ("weighted_mean", "act_cost") else first.shape[1:]
    excused = np.zeros((), bool)
    integer = INTEGER_FIELDS.get(function)
    if integer:
        differ = got[integer].shape == want[integer].shape and got[integer].astype(np.int64) != want[integer]
        near = undecided(function, arrays, arguments, got[integer], want[integer], dtype) if ties else False
        excused = np.asarray(differ & near)
    for field, value in got.items():
        kind = "exact" if field == integer else quantity(function, field)
        assert_close(
            requirement,
            f"{function}[{dtype}]" + ("" if field == "result" else f".{field}"),
            value,
            want[field],
            kind=kind,
            dtype=dtype,
            terms=scales.get(field),
            arguments=given,
            batch=batch,
            skip=np.broadcast_to(excused, want[field].shape) if excused.any() else None,
            slack=lifts.get(field, 0.0),
        )


def run_and_compare(
    subject: Subject, requirement: str, function: str, arrays: dict, arguments: dict, dtype: str, via: Any = None
) -> None:
    """Calls the backend on arguments rounded to its dtype, and compares with the reference on the same numbers."""
    arrays = {name: round_to("float32" if name == "uniforms" else dtype, array) for name, array in arrays.items()}
    got = subject.call(function, arrays, arguments, dtype, via=via)
    if function == "draw_steps" and not subject.offers("S4"):  # another generator: its law is judged, not its numbers
        check_dtypes(function, got, dtype)
        return
    loose = {"dtype": "float64"} if function in PRIORS else {}
    assert_agrees(requirement, function, arrays, {**arguments, **loose}, got, dtype)
