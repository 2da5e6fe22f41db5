"""Defects of cost: steps computed and thrown away, counts that lie, limits that nobody asked for (M1 to I8)."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.base import Pondered, Predicted
from ponder_ref.conformance.mutants.base import Mutant, around
from ponder_ref.halting import log_sigmoid
from ponder_ref.trees import map_tree

TRAINED = 32  # a limit that is nowhere in the call


def _called(step: Callable, x: Any, state: Any) -> Any:
    return step(state) if x is None else step(x, state)


def _state_of(result: Any) -> Any:
    return result[1] if isinstance(result, tuple) and len(result) == 3 else result


def _thrown_away(step, x, state, **options) -> Pondered:
    """The step is called once more after the last one, and what it returns is dropped."""
    out = ponder_ref.ponder(step, x, state, **options)
    _called(step, x, out.state)
    return out


def _twice(step: Callable) -> Callable:
    def doubled(*args):
        step(*args)
        return step(*args)

    return doubled


def _all_the_same(applies: Callable[[dict[str, Any]], bool]) -> Callable:
    """`ponder` that goes on to N in some cases, and drops what it computes beyond the largest Nᵢ."""

    def ponder(step, x, state, **options) -> Pondered:
        out = ponder_ref.ponder(step, x, state, **options)
        after = out.state
        if applies(options):
            for _ in range(len(out.halt_logits), options["max_steps"]):
                after = _state_of(_called(step, x, after))
        return out

    return ponder


def _lies_about_rows(step, x, state, **options) -> Predicted:
    """Every example is computed for N steps; the sum of the steps is reported all the same."""
    right = ponder_ref.predict(step, x, state, **options)
    ponder_ref.predict(step, x, state, **{**options, "policy": "fixed"})
    return right


def _rounded_rows(step, x, state, **options) -> Predicted:
    """Idle rows are reported that were never computed; the number is within the limits."""
    right = ponder_ref.predict(step, x, state, **options)
    return right._replace(rows=right.rows + (options.get("slots") or 1) - 1)


def _peeks(step, x, state, **options) -> Predicted:
    """The step is called once for its shapes, with values, and nobody counts it."""
    right = ponder_ref.predict(step, x, state, **options)
    _called(step, x, state)
    return right


def _capped(step, x, state, **options) -> Predicted:
    return ponder_ref.predict(step, x, state, **{**options, "max_steps": min(options["max_steps"], TRAINED)})


def _capped_stream(model, iterable, **options):
    """A stream that takes more steps than the training only up to the training's N."""
    if options.get("max_steps") is not None:
        options["max_steps"] = min(options["max_steps"], model.max_steps)
    return ponder_ref.stream(model, iterable, **options)


def _uniforms_again(step, x, state, **options) -> Predicted:
    """The uniforms of step 33 are those of step 1."""
    right = ponder_ref.predict(step, x, state, **options)
    if options.get("policy", "sample") != "sample" or options["max_steps"] <= TRAINED:
        return right
    every = ponder_ref.predict(step, x, state, **{**options, "policy": "fixed", "trace": True}).trace
    given = options.get("example_ids")
    ids = np.arange(len(right.steps)) if given is None else given
    u = ponder_ref.halting_uniforms(options.get("seed", 0), ids, max_steps=TRAINED, draw=options.get("draw", 0))
    u = np.concatenate([u] * (options["max_steps"] // TRAINED + 1))[: options["max_steps"]]
    steps = ponder_ref.sample_steps(1 / (1 + np.exp(-every.halt_logits)), u)
    return right._replace(steps=steps, y_hat=every.y_hat[steps - 1, np.arange(len(steps))])


def _half_quantile(step, x, state, **options) -> Predicted:
    """The mass is summed in the dtype of the logits."""
    right = ponder_ref.predict(step, x, state, **options)
    every = _low_logits(step, x, state, options) if options.get("policy") == "quantile" else None
    if every is None:
        return right
    left = np.cumsum(log_sigmoid(-every).astype(np.float16), axis=0, dtype=np.float16)
    reached = -np.expm1(left) >= np.float16(options.get("q", 0.5))
    reached[-1] = True
    return right._replace(steps=reached.argmax(axis=0) + 1)


def _half_epsilon(step, x, state, **options) -> Predicted:
    right = ponder_ref.predict(step, x, state, **options)
    every = _low_logits(step, x, state, options) if options.get("policy") == "expected" else None
    if every is None:
        return right
    left = np.cumsum(log_sigmoid(-every).astype(np.float16), axis=0, dtype=np.float16)
    enough = left < np.float16(np.log(options.get("epsilon", 0.05)))
    enough[: options.get("min_steps", 1) - 1], enough[-1] = False, True
    return right._replace(steps=enough.argmax(axis=0) + 1)


def _low_logits(step: Callable, x: Any, state: Any, options: dict[str, Any]) -> Any:
    """The logits of all steps, if they are in float16."""
    logits = []
    for _ in range(options["max_steps"]):
        _, state, z = _called(step, x, state)
        logits.append(z)
    return np.stack(logits) if logits[0].dtype == np.float16 else None


def _half_sums(log_p, *, q):
    """Quantiles of sums in the dtype of log p."""
    right = ponder_ref.quantile_steps(log_p, q=q)
    if log_p.dtype != np.float16:
        return right
    reached = np.cumsum(np.exp(log_p), axis=0, dtype=np.float16) >= np.float16(q)
    return np.where(reached.any(axis=0), reached.argmax(axis=0) + 1, right)


def _works_in_place(step, x, state, **options) -> Predicted:
    """The caller's initial state is used as the memory of the states."""
    right = ponder_ref.predict(step, x, state, **options)
    after = _state_of(_called(step, x, state))
    map_tree(lambda old, new: old.__setitem__(..., new), state, after)
    return right


HALF = ("float64", "float16")
MUTANTS = (
    Mutant(
        "a-call-thrown-away",
        "the step is called N + 1 times, the last for nothing",
        "M1",
        around("ponder", _thrown_away),
    ),
    Mutant(
        "every-step-twice",
        "the step is called twice per step",
        "M1",
        around("ponder", lambda step, x, state, **options: ponder_ref.ponder(_twice(step), x, state, **options)),
    ),
    Mutant(
        "epsilon-computes-all",
        "with ε all N steps are computed, and the last ones dropped",
        "M2",
        around("ponder", _all_the_same(lambda options: options.get("epsilon") is not None)),
    ),
    Mutant(
        "once-computes-all",
        "once computes N steps and drops all but one",
        "M3",
        around("ponder", _all_the_same(lambda options: options.get("method") == "once")),
    ),
    Mutant(
        "act-computes-all",
        "ACT computes N steps, and drops the last ones",
        "M4",
        around("ponder", _all_the_same(lambda options: options.get("method") == "act")),
    ),
    Mutant(
        "served-twice",
        "predict calls the step twice per step",
        "I6",
        around("predict", lambda step, x, state, **options: ponder_ref.predict(_twice(step), x, state, **options)),
    ),
    Mutant(
        "peeks-first",
        "predict calls the step once for its shapes and does not count it",
        "I6",
        around("predict", _peeks),
    ),
    Mutant(
        "rows-that-lie",
        "all N steps are computed, the sum of the steps is reported",
        "I6",
        around("predict", _lies_about_rows),
    ),
    Mutant(
        "rows-never-computed", "rows has idle rows that were never computed", "I6", around("predict", _rounded_rows)
    ),
    Mutant("predict-capped", f"predict takes {TRAINED} steps at most", "I3", around("predict", _capped)),
    Mutant(
        "uniforms-from-the-start",
        f"the uniforms are repeated after {TRAINED} steps",
        "I1",
        around("predict", _uniforms_again),
    ),
    Mutant("stream-capped", "a stream takes no more steps than the training", "I8", around("stream", _capped_stream)),
    Mutant("exit-quantile-in-half", "predict sums the mass in float16", "I2", around("predict", _half_quantile), HALF),
    Mutant(
        "exit-epsilon-in-half", "predict sums the mass left in float16", "I4", around("predict", _half_epsilon), HALF
    ),
    Mutant("quantile-in-half", "quantile_steps sums p in float16", "B8", around("quantile_steps", _half_sums), HALF),
    Mutant("state-used-up", "predict works in the caller's initial state", "B7", around("predict", _works_in_place)),
)
