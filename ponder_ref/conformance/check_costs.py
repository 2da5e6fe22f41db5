"""Only the steps that are needed are computed, and as many as were asked for (spec M1 to M4, I1 to I6, I8)."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.counting import Counter
from ponder_ref.conformance.exit_networks import (
    EXAMPLES,
    STEPS,
    examples_of,
    ids_on,
    model_on,
    predict_both,
    sampled_table,
    step_on,
)
from ponder_ref.conformance.pondered import STEPS as N
from ponder_ref.conformance.pondered import margin, on_backend, start
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import Network, make_network, readout, step_with, transition
from ponder_ref.halting import log_sigmoid
from ponder_ref.sampling import uniforms_at

# What is counted, with the requirement that speaks for it.
COUNTED: dict[str, tuple[str, dict[str, Any]]] = {
    "ponder": ("M1", {}),
    "epsilon": ("M2", {"epsilon": 0.3}),
    "repeat": ("M3", {"method": "repeat"}),
    "once": ("M3", {"method": "once"}),
    "act": ("M4", {"method": "act", "act_epsilon": 0.2}),
}
LONG = 70  # more steps than anybody trains, and than uniforms are made at once


def _early_network(trial: Trial) -> tuple[Network, dict[str, int]]:
    """A seeded network without near ties, all of whose examples halt early; and how many calls each way takes."""
    rng = trial.rng()
    while True:
        network = make_network(rng, (4,), halting=0.5)
        step, given = step_with(network.weights), (network.x, start(network))
        outs = {way: ponder_ref.ponder(step, *given, max_steps=N, **options) for way, (_, options) in COUNTED.items()}
        calls = {way: len(out.halt_logits) for way, out in outs.items()}
        if margin(outs["ponder"]) > 1e-3 and calls["epsilon"] < N - 1 and calls["act"] < N - 1:
            return network, calls


def _register_counted(way: str) -> None:
    requirement, options = COUNTED[way]

    @check(requirement, "module", "ponder", "witness", level="module", dtypes=ANY_DTYPE, name=f"steps computed: {way}")
    def run(trial: Trial) -> None:
        """With a prediction from the step, and with a readout of its state."""
        network, calls = _early_network(trial)
        weights, counter = on_backend(trial, network.weights), Counter(trial)
        ponder, x = trial.subject.backend.ponder, on_backend(trial, network.x)
        ponder(counter.of(step_with(weights)), x, on_backend(trial, start(network)), max_steps=N, **options)
        counter.check(requirement, f"ponder, {way}", calls[way])
        counter.start()
        ponder(
            counter.of(lambda x, h: transition(weights, x, h)),
            x,
            on_backend(trial, network.h),
            max_steps=N,
            readout=lambda h: readout(weights, h),
            **options,
        )
        counter.check(requirement, f"ponder with a readout, {way}", calls[way])


for _way in COUNTED:
    _register_counted(_way)


@check("I6", "inference", "predict", "witness", level="infer", dtypes=ANY_DTYPE)
def rows_are_counted_truly(trial: Trial) -> None:
    """`rows` is how many rows the step network was given, by every policy; some leave at once, some stay to the end."""
    source, counter = trial.seeded(STEPS, (EXAMPLES,)), Counter(trial)
    step = counter.of(step_on(trial))
    table = sampled_table(source, seed=6)
    given = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    for policy, slots in (
        ("sample", 1),
        ("sample", 3),
        ("quantile", 3),
        ("expected", 3),
        ("fixed", 3),
        ("sample", None),
    ):
        counter.start()
        options: dict[str, Any] = {"max_steps": STEPS, "policy": policy, "seed": 6, "slots": slots}
        got = trial.subject.backend.predict(step, *given, example_ids=ids_on(trial, table.ids), **options)
        rows, steps = int(got.rows), int(trial.subject.numpy("predict", got.steps).sum())
        what = f"predict, {policy}, {slots} slots"
        counter.check_seen("I6", what)
        if counter.rows != rows:
            raise Violation("I6", f"{what}: rows is {rows}, but the step network was given {counter.rows}")
        limit = steps + ((slots or EXAMPLES) - 1) * STEPS
        if not steps <= rows <= limit:
            raise Violation("I6", f"{what}: {rows} rows, should be {steps} to {limit}")


def _leave_at(x: Any, taken: Any) -> tuple[Any, Any, Any]:
    """z is far below 0 before step x and far above it from there on; the prediction is the number of the step."""
    taken = taken + 1.0
    return taken[..., None], taken, (taken + x * -1.0) * 512.0 + 256.0


@check("I3", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def as_many_steps_as_asked_for(trial: Trial) -> None:
    """N is that of the call, far beyond any training's; and by every policy an example may leave late."""
    exits = np.array([1.0, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, LONG - 1, LONG, LONG + 5])
    x, h = on_backend(trial, exits), on_backend(trial, np.zeros(len(exits)))
    for policy, limit in (("fixed", LONG), ("sample", LONG), ("quantile", LONG), ("expected", LONG), ("sample", 9)):
        requirement = {"fixed": "I3", "sample": "I1", "quantile": "I2", "expected": "I4"}[policy]
        got = trial.subject.backend.predict(_leave_at, x, h, max_steps=limit, policy=policy, slots=4)
        want = np.full(len(exits), limit) if policy == "fixed" else np.minimum(exits, limit)
        steps = trial.subject.numpy("predict", got.steps).astype(np.int64)
        y_hat = trial.subject.numpy("predict", got.y_hat).astype(np.float64)
        if not np.array_equal(steps, want) or not np.array_equal(y_hat[:, 0], want):
            answers = f"steps {steps.tolist()}, answers {y_hat[:, 0].tolist()}"
            raise Violation(requirement, f"predict, {policy}, {limit} steps: {answers}, should be {want.tolist()}")


@check("I1", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def uniforms_of_late_steps(trial: Trial) -> None:
    """Exits are drawn by the uniforms of their own step, however late: none is used twice."""
    rng, ids = trial.rng(), np.arange(24)
    u = uniforms_at(5, ids, np.arange(1, LONG + 1)[:, None]).astype(np.float64)
    z = np.full(len(ids), -3.5)
    while np.abs(u - np.exp(log_sigmoid(z))).min() < 1e-5:
        z = rng.uniform(-4.0, -3.0, len(ids)).astype(np.float32).astype(np.float64)
    want = ponder_ref.sample_steps(np.broadcast_to(np.exp(log_sigmoid(z)), u.shape), u)

    def step(x: Any, taken: Any) -> tuple[Any, Any, Any]:
        return taken[..., None], taken + 1.0, x

    given = on_backend(trial, z), on_backend(trial, np.zeros(len(ids)))
    got = trial.subject.backend.predict(step, *given, max_steps=LONG, seed=5, slots=8)
    steps = trial.subject.numpy("predict", got.steps).astype(np.int64)
    if not np.array_equal(steps, want):
        raise Violation(
            "I1", f"predict, {LONG} steps of λ about 0.03: steps {steps.tolist()}, should be {want.tolist()}"
        )


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def a_stream_longer_than_the_training(trial: Trial) -> None:
    """`max_steps` of the call counts, above the model's own as below."""
    table = sampled_table(trial.seeded(STEPS, (EXAMPLES,)), seed=8)
    model = model_on(trial)
    for own, limit in ((2, STEPS), (STEPS, 3)):
        model.max_steps = own
        _, want = predict_both(trial, table, policy="fixed", max_steps=limit)
        examples = examples_of(trial, table)
        for answer in trial.subject.backend.stream(model, examples, policy="fixed", max_steps=limit, slots=4):
            y_hat = trial.subject.numpy("stream", answer.y_hat)
            if int(answer.steps) != limit or not np.array_equal(y_hat, want.y_hat[answer.index]):
                raise Violation(
                    "I8", f"stream of {limit} steps, model of {own}: {int(answer.steps)} steps, y_hat {y_hat}"
                )
