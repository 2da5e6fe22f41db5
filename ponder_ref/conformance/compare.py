"""Compares results with what they should be: the only reader of the tolerances, the only writer of complaints."""

from typing import Any

import numpy as np

from ponder_ref.conformance import spec_data

# Which entry of tolerances.toml a result is measured by; "*" stands for every field not named.
QUANTITIES: dict[str, dict[str, str]] = {
    "log_halting": {"*": "log_p"},
    "log_halting_from_lambdas": {"*": "log_p"},
    "expected_steps": {"*": "steps"},
    "expected_prediction": {"*": "prediction"},
    "geometric_log_prior": {"*": "log_prior"},
    "uniform_log_prior": {"*": "log_prior"},
    "poisson_log_prior": {"*": "log_prior"},
    "expected_loss": {"*": "loss"},
    "kl_divergence": {"*": "loss"},
    "weighted_mean": {"*": "loss"},
    "ponder_loss": {"*": "loss"},
    "act_halting": {"*": "act"},
    "act_cost": {"*": "act"},
    "act_output": {"*": "act"},
    "adam_update": {"*": "update"},
    "orthogonalize": {"*": "optim"},
    "muon_update": {"*": "optim"},
    "clip_by_global_norm": {"*": "update"},
    "schedule": {"*": "update"},
}
LOW_PRECISION = ("bfloat16", "float16")


class Violation(AssertionError):
    """A requirement that does not hold: which one, and in one sentence where and how."""

    def __init__(self, requirement: str, sentence: str):
        super().__init__(f"{requirement}: {sentence}")
        self.requirement, self.sentence = requirement, sentence


def quantity(function: str, field: str) -> str:
    fields = QUANTITIES.get(function, {"*": "exact"})
    return fields.get(field, fields["*"])


def tolerance(name: str, dtype: str) -> dict[str, Any]:
    """The entry for a quantity; half precision has float32's unless it has one of its own."""
    entries = spec_data.tolerances()[name]
    return entries[dtype] if dtype in entries else entries["float32"]


def describe(value: Any) -> str:
    """A short text of an argument: small arrays in full, large ones by shape and first entries."""
    if isinstance(value, np.ndarray):
        text = np.array2string(value, floatmode="unique", separator=", ", threshold=24).replace("\n", " ")
        return " ".join(text.split()) if value.size <= 24 else f"array{value.shape} {' '.join(text.split())[:160]}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={describe(v)}" for k, v in value.items())
    return repr(value)


def at_example(arrays: dict[str, np.ndarray], batch: tuple[int, ...], index: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Large arguments cut down to the one example that failed, where the shapes tell which it is."""
    cut = {}
    for name, array in arrays.items():
        if array.size > 24 and index and array.shape[1 : 1 + len(batch)] == batch:
            array = array[(slice(None), *index)]
        elif array.size > 24 and index and array.shape[: len(batch)] == batch:
            array = array[index]
        cut[name] = array
    return cut


def bound(entry: dict[str, Any], want: np.ndarray, terms: np.ndarray | None) -> np.ndarray:
    """The largest difference allowed, entry by entry."""
    finite = np.where(np.isfinite(want), np.abs(want), 0)
    if entry["scale"] == "largest":
        scale = np.full(want.shape, finite.max(initial=0.0))
    elif entry["scale"] == "terms" and terms is not None:
        scale = np.where(np.isfinite(terms), terms, 0)
    else:
        scale = finite
    extra = 0.0 if terms is None else entry.get("noise", 0.0) * np.where(np.isfinite(terms), terms, 0)
    steps = want.shape[0] if want.ndim else 1  # the step axis is first
    return entry["atol"] + (entry["rtol"] + entry.get("growth", 0.0) * steps) * scale + extra


def assert_close(
    requirement: str,
    what: str,
    got: np.ndarray,
    want: np.ndarray,
    *,
    kind: str,
    dtype: str,
    terms: np.ndarray | None = None,
    arguments: dict[str, Any] | None = None,
    batch: tuple[int, ...] = (),
    skip: np.ndarray | None = None,
    slack: np.ndarray | float = 0.0,
) -> None:
    """Raises a Violation unless got equals want to the tolerance of `kind` and `dtype`, NaN and inf included.

    `slack` is how much larger a result may be beyond that.
    """
    want = np.asarray(want, np.float64)
    exact = np.asarray(got)
    if exact.shape != want.shape:
        raise Violation(
            "B3", f"{what}: shape {exact.shape}, should be {want.shape}; inputs: {describe(arguments or {})}"
        )
    got = exact.astype(np.float64)
    limit = bound(tolerance(kind, dtype), want, terms)
    with np.errstate(invalid="ignore"):
        near = (got >= want - limit) & (got <= want + limit + slack)
        good = near | (got == want) | (np.isnan(got) & np.isnan(want))
    if skip is not None:
        good = good | skip
    if good.all():
        return
    index = tuple(int(i) for i in np.argwhere(~good)[0])
    example = index if len(index) == len(batch) else index[len(index) - len(batch) :]
    inputs = {k: v for k, v in (arguments or {}).items() if isinstance(v, np.ndarray)}
    others = {k: v for k, v in (arguments or {}).items() if k not in inputs}
    raise Violation(
        requirement,
        f"{what}{list(index) if index else ''}: got {float(got[index])!r}, should be {float(want[index])!r}"
        f" within {float(np.broadcast_to(limit, want.shape)[index]):.2g};"
        f" inputs: {describe({**at_example(inputs, batch, example), **others})}",
    )
