"""Sums of many small numbers in half precision: exits are decided in float32 (spec B8, I2, I4)."""

from typing import Any

import numpy as np

from ponder_ref.conformance.compare import LOW_PRECISION, Violation, tolerance
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.halting import log_sigmoid

STEPS = 480  # so many that a sum in half precision stops growing, or is off by several steps
EXAMPLES = 40


def _step(x: Any, h: Any) -> tuple[Any, Any, Any]:
    """The same logit at every step."""
    return h, h, x


def _register(policy: str, requirement: str) -> None:
    @check(requirement, "inference", "predict", level="infer", dtypes=LOW_PRECISION, name=f"half-precision {policy}")
    def run(trial: Trial) -> None:
        """The steps are those of sums in float32, or of exact ones, of the logits as they are."""
        z = round_to(trial.dtype, trial.rng().uniform(-6.0, -5.0, EXAMPLES))
        left = log_sigmoid(-z) * np.arange(1, STEPS + 1)[:, None]
        options: dict[str, Any] = {"q": 0.5} if policy == "quantile" else {"epsilon": 0.3}
        sums, threshold = (-np.expm1(left), 0.5) if policy == "quantile" else (-left, -np.log(0.3))
        # A float32 sum may be off by the tolerance of a term for each step.
        slack = tolerance("cdf", "float32")["atol"] * 4
        sums[-1] = np.inf  # the last step always halts
        low, high = ((sums + extra >= threshold).argmax(axis=0) + 1 for extra in (slack, -slack))
        x, h = (trial.subject.array("", array, trial.dtype) for array in (z, np.zeros((EXAMPLES, 1))))
        got = trial.subject.backend.predict(_step, x, h, max_steps=STEPS, policy=policy, slots=EXAMPLES, **options)
        steps = trial.subject.numpy("predict", got.steps).astype(np.int64)
        wrong = np.flatnonzero((steps < low) | (steps > high))
        if len(wrong):
            i = wrong[0]
            raise Violation(
                requirement,
                f"predict, {policy}, {options}, logits {z[i]} in {trial.dtype} at every step: example {i} leaves after"
                f" {steps[i]} steps, should be {low[i]}; sums are taken in float32",
            )


_register("quantile", "I2")
_register("expected", "I4")


@check("B8", "low precision", "quantile_steps", dtypes=LOW_PRECISION)
def quantiles_of_many_steps(trial: Trial) -> None:
    """Equal p of some hundred steps: a sum in half precision stops growing, or passes q elsewhere."""
    for steps in (150, 333, 480, 999):
        log_p = round_to(trial.dtype, np.full((steps, 1), -np.log(steps)))
        sums = np.cumsum(np.exp(log_p[:, 0]))
        for q in (0.25, 0.6, 0.9):
            got = trial.subject.call("quantile_steps", {"log_p": log_p}, {"q": q}, trial.dtype)["result"]
            # p as it is, or divided by its sum: rounding of log p has left it beside 1 (S6).
            exits = [(part + extra >= q).argmax() + 1 for part in (sums, sums / sums[-1]) for extra in (4e-5, -4e-5)]
            low, high = min(exits), max(exits)
            if not low <= int(got[0]) <= high:
                raise Violation(
                    "B8",
                    f"quantile_steps[{trial.dtype}] of {steps} steps with log p {log_p[0, 0]}, q={q}: got {int(got[0])}"
                    f", should be {low}; sums are taken in float32",
                )
