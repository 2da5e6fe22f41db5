"""Examples that leave at their own step (spec I1 to I7), at level `infer`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation, assert_close, tolerance
from ponder_ref.conformance.exit_networks import (
    EXAMPLES,
    STEPS,
    Table,
    eighths,
    ids_on,
    predict_both,
    sampled_table,
    step_on,
    summed_table,
)
from ponder_ref.conformance.pondered import on_backend
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import make_network, readout, transition
from ponder_ref.halting import log_sigmoid
from ponder_ref.sampling import uniforms_at

SLOTS = 3
FIELDS = ("y_hat", "steps", "rows", "log_p", "expected", "trace")
# Seed 7 and ids whose first or second uniform is exactly ½ or 0, found by search: there < and ≤ part.
TIES = ((15_807_235, 1, 0.5), (4_170_031, 2, 0.5), (11_564_928, 1, 0.0), (10_647_755, 2, 0.0))


def compare(trial: Trial, requirement: str, what: str, got: Any, want: Any, *, exact: bool = True) -> None:
    """Bit for bit, or to the tolerance of an expected prediction."""
    want, got = np.asarray(want, np.float64), trial.subject.numpy("predict", got)
    terms = np.full(want.shape, np.abs(want[np.isfinite(want)]).max(initial=1.0))
    kind = "exact" if exact else "prediction"
    assert_close(requirement, f"{what}[{trial.dtype}]", got, want, kind=kind, dtype=trial.dtype, terms=terms)


def compare_result(trial: Trial, requirement: str, what: str, got: Any, want: Any, *, exact: bool = True) -> None:
    missing = [name for name in FIELDS if not hasattr(got, name)]
    if missing:
        raise Violation(requirement, f"{what}: the result lacks {', '.join(missing)}")
    compare(trial, requirement, f"{what}: steps", got.steps, want.steps)
    compare(trial, requirement, f"{what}: y_hat", got.y_hat, want.y_hat, exact=exact)


@check("I1", "inference", "predict", level="infer", share=1.0)
def sampled(trial: Trial, source: Any) -> None:
    """Steps by the uniforms of seed, id, draw and step; the answer is that of the step at which it left."""
    seed, draw = source.count(0, 2**64 - 1), source.choose(0, 0, 4095)
    table = sampled_table(source, seed=seed, draw=draw)
    options = {"seed": seed, "draw": draw, "max_steps": source.choose(STEPS, STEPS - 3), "slots": SLOTS}
    got, want = predict_both(trial, table, **options)
    compare_result(trial, "I1", "predict, sample", got, want)


@check("I1", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def ties(trial: Trial) -> None:
    """u = λ does not halt: the comparison is strict. A NaN λ does not halt either, and N always does."""
    count = len(TIES)
    z = np.full((EXAMPLES, STEPS), -1e4)
    for row, (_, n, u) in enumerate(TIES):
        z[row, n - 1] = 0.0 if u == 0.5 else -1e4
        z[row, n] = 1e4
    z[count] = np.nan
    ids = np.array([example_id for example_id, _, _ in TIES] + list(range(EXAMPLES - count)))
    table = Table(z, np.ones((EXAMPLES, 2)), ids)
    got, want = predict_both(trial, table, seed=7, slots=SLOTS)
    steps = [n + 1 for _, n, _ in TIES] + [STEPS] * (EXAMPLES - count)
    if want.steps.tolist() != steps:
        raise RuntimeError("the reference does not read the ties as meant")
    compare_result(trial, "I1", "predict where u equals λ, λ is NaN, or nothing halts", got, want)


@check("I1", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def ids_by_default(trial: Trial) -> None:
    """Without ids they are 0, 1, 2, …; the steps are those that draw_steps gives the λ of all steps."""
    rng = trial.rng()
    z = np.round(rng.normal(size=(EXAMPLES, STEPS)) * 8 - 8) / 8
    table = Table(z, np.ones((EXAMPLES, 2)), np.arange(EXAMPLES))
    given = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    got = trial.subject.backend.predict(step_on(trial), *given, max_steps=STEPS, seed=3, slots=SLOTS)
    lam = 1 / (1 + np.exp(-z.T))
    compare(trial, "I1", "predict without ids: steps", got.steps, ponder_ref.draw_steps(lam, 3, table.ids))


@check("I2", "inference", "predict", level="infer", share=1.0)
def quantile(trial: Trial, source: Any) -> None:
    """The first step at which the mass reaches q, example by example."""
    table, q = summed_table(source), source.choose(0.5, 0.5, 0.1, 0.95, 1)
    mass = -np.expm1(np.cumsum(log_sigmoid(-table.z), axis=1))
    if np.abs(mass - q).min() > 1e-4:
        got, want = predict_both(trial, table, policy="quantile", q=q, slots=SLOTS)
        compare_result(trial, "I2", f"predict, quantile {q}", got, want)


@check("I3", "inference", "predict", level="infer", dtypes=ANY_DTYPE, share=0.3)
def fixed(trial: Trial, source: Any) -> None:
    """N steps and the last answer, whatever the logits say."""
    steps = source.choose(STEPS, 1, STEPS - 2)
    table = sampled_table(source, seed=0)
    got, want = predict_both(trial, table, policy="fixed", max_steps=steps, slots=SLOTS)
    compare_result(trial, "I3", f"predict, {steps} steps", got, want)


def _register_expected(remainder: str) -> None:
    @check("I4", "inference", "predict", *["H3"] * (remainder != "last"), level="infer", name=f"expected, {remainder}")
    def run(trial: Trial) -> None:
        def body(source: Any) -> None:
            table = summed_table(source)
            options = {"epsilon": source.choose(0.05, 0.8), "min_steps": source.choose(1, 1, 4)}
            left = np.cumsum(log_sigmoid(-table.z), axis=1)
            if np.abs(left - np.log(options["epsilon"])).min() > 1e-4:
                got, want = predict_both(trial, table, policy="expected", remainder=remainder, slots=SLOTS, **options)
                compare_result(trial, "I4", f"predict, expected, {remainder}, {options}", got, want, exact=False)

        trial.for_all(body)


for _remainder in ("last", "normalize"):
    _register_expected(_remainder)


@check("I4", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def expected_at_the_limit(trial: Trial) -> None:
    """Where the limit comes before ε the mass left is still answered for: the answer of constant ŷ is that constant."""
    table = Table(np.full((EXAMPLES, STEPS), -2.0), np.ones((EXAMPLES, 2)), np.arange(EXAMPLES))
    got, want = predict_both(trial, table, policy="expected", slots=SLOTS)
    compare_result(trial, "I4", "predict, expected, with mass left at N", got, want, exact=False)


@check("I4", "inference", "predict", level="infer", dtypes=ALL_DTYPES)
def expected_at_the_threshold(trial: Trial) -> None:
    """λ = ½ and ε = ½ or ¼: the mass left equals ε after one step or two, which is not less (H6), in every dtype."""
    table = Table(np.zeros((EXAMPLES, STEPS)), np.ones((EXAMPLES, 2)), np.arange(EXAMPLES))
    for epsilon, steps in ((0.5, 2), (0.25, 3)):
        got, want = predict_both(trial, table, policy="expected", epsilon=epsilon, slots=SLOTS)
        if want.steps.tolist() != [steps] * EXAMPLES:
            raise RuntimeError("the reference does not read the threshold as meant")
        compare(trial, "I4", f"predict, expected, where the mass left is {epsilon}: steps", got.steps, want.steps)


@check("I5", "inference", "predict", level="infer", dtypes=ANY_DTYPE, share=1.0)
def slots_and_orders(trial: Trial, source: Any) -> None:
    """The same for every number of slots and every order of the examples, in which the results come back."""
    seed = source.count(0, 2**64 - 1)
    table = sampled_table(source, seed=seed)
    slots, order = source.option("slots", 1, SLOTS, EXAMPLES, EXAMPLES + 5), source.rng.permutation(EXAMPLES)
    for what, some in (("in order", table), (f"in the order {order.tolist()}", table.rows(order))):
        got, want = predict_both(trial, some, seed=seed, slots=slots)
        compare_result(trial, "I5", f"predict with {slots} slots, {what}", got, want)


@check("I5", "inference", "predict", level="infer", dtypes=ANY_DTYPE, share=0.5)
def alone_and_beside_nan(trial: Trial, source: Any) -> None:
    """An example gets alone what it gets among others, and beside examples of NaN and infinity."""
    table = sampled_table(source, seed=5)
    among, want = predict_both(trial, table, seed=5, slots=SLOTS)
    compare_result(trial, "I5", "predict among others", among, want)
    i = source.count(0, EXAMPLES - 1)
    alone, own = predict_both(trial, table.rows(slice(i, i + 1)), seed=5, slots=1)
    compare_result(trial, "I5", "predict alone", alone, own)
    if own.steps[0] != want.steps[i] or (own.y_hat[0] != want.y_hat[i]).any():
        raise RuntimeError("the reference gives an example something else alone")
    z, a = table.z.copy(), table.a.copy()
    z[i], a[(i + 3) % EXAMPLES], a[(i + 6) % EXAMPLES] = np.nan, np.nan, np.inf
    beside, want = predict_both(trial, Table(z, a, table.ids), seed=5, slots=SLOTS)
    compare_result(trial, "I5", "predict beside NaN and infinity", beside, want)


@check("I5", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def summed_policies_beside_nan(trial: Trial) -> None:
    """A NaN stays in its example also where masses are summed and answers blended."""
    source = trial.seeded(STEPS, (EXAMPLES,))
    for policy in ("quantile", "expected"):
        table = summed_table(source)
        table.z[4], table.a[7] = np.nan, np.inf
        got, want = predict_both(trial, table, policy=policy, slots=SLOTS)
        compare_result(trial, "I5", f"predict, {policy}, beside NaN", got, want, exact=policy == "quantile")


@check("I5", "inference", "predict", level="infer")
def networks_that_round(trial: Trial) -> None:
    """A network of matrix products: steps differ from the reference's only where a uniform is as near to λ as that."""
    network = make_network(trial.rng(), (EXAMPLES,), halting=-1.0)
    lam = []

    def step_of(weights: Any, seen: list | None = None):
        def step(x, h):
            h = transition(weights, x, h)
            y_hat, z = readout(weights, h)
            if seen is not None:
                seen.append(1 / (1 + np.exp(-z)))
            return y_hat, h, z

        return step

    options: dict[str, Any] = {"max_steps": STEPS, "seed": 11}
    whole = ponder_ref.predict(step_of(network.weights), network.x, network.h, **options)
    ponder_ref.ponder(step_of(network.weights, lam), network.x, network.h, max_steps=STEPS)
    entry = tolerance("loss", trial.dtype)
    u = uniforms_at(11, np.arange(EXAMPLES), np.arange(1, STEPS + 1)[:, None])
    near = (np.abs(u - np.stack(lam)) <= entry["atol"] + entry["rtol"]).any(axis=0)
    given = on_backend(trial, network.x), on_backend(trial, network.h)
    step = step_of(on_backend(trial, network.weights))
    for slots in (1, EXAMPLES):
        got = trial.subject.backend.predict(step, *given, slots=slots, **options)
        steps = trial.subject.numpy("predict", got.steps).astype(np.int64)
        if (steps != whole.steps)[~near].any():
            raise Violation("I5", f"predict of a network with {slots} slots: steps {steps}, should be {whole.steps}")


@check("I6", "inference", "predict", level="infer", dtypes=ANY_DTYPE, share=0.5)
def rows_computed(trial: Trial, source: Any) -> None:
    """Rows given to the step network: the sum of the steps, and of idle rows no more than one drain of the slots."""
    seed, slots = source.count(0, 2**64 - 1), source.option("slots", 1, SLOTS)
    got, want = predict_both(trial, sampled_table(source, seed=seed), seed=seed, slots=slots)
    compare_result(trial, "I6", "predict, the steps counted in the state", got, want)
    rows, least = int(got.rows), int(want.steps.sum())
    if not least <= rows <= least + (slots - 1) * STEPS:
        limit = least + (slots - 1) * STEPS
        raise Violation("I6", f"predict with {slots} slots: {rows} rows, should be {least} to {limit}")


def _compare_trace(trial: Trial, what: str, got: Any, want: Any) -> None:
    compare_result(trial, "I7", what, got, want, exact=False)
    for name in ("log_p", "expected"):
        if getattr(got, name) is None:
            raise Violation("I7", f"{what}: {name} is None")
        compare(trial, "I7", f"{what}: {name}", getattr(got, name), getattr(want, name), exact=False)
    for name in ("y_hat", "halt_logits"):
        compare(trial, "I7", f"{what}: trace.{name}", getattr(got.trace, name), getattr(want.trace, name))


@check("I7", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def traces(trial: Trial) -> None:
    """Every step taken, zeros beyond, and the distribution of the steps taken; nothing of it unless asked for."""
    source = trial.seeded(STEPS, (EXAMPLES,))
    table = sampled_table(source, seed=9)
    got, want = predict_both(trial, table, seed=9, slots=SLOTS, trace=True)
    _compare_trace(trial, "predict with a trace", got, want)
    options = {"policy": "expected", "remainder": "normalize" if trial.subject.offers("H3") else "last"}
    _compare_trace(trial, f"predict with a trace, {options}", *predict_both(trial, table, trace=True, **options))
    got, _ = predict_both(trial, table, seed=9, slots=SLOTS)
    if any(getattr(got, name) is not None for name in ("log_p", "expected", "trace")):
        raise Violation("I7", "predict without a trace: log_p, expected and trace should be None")


@check("I1", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def input_in_the_state(trial: Trial) -> None:
    """step(h), without an input."""
    table = sampled_table(trial.seeded(STEPS, (EXAMPLES,)), seed=2)
    step = step_on(trial)

    def alone(state):
        y_hat, after, z = step(state[0], state[1])
        return y_hat, (state[0], after), z

    state = on_backend(trial, (table.inputs(), table.start()))
    options = {"max_steps": STEPS, "seed": 2, "slots": SLOTS}
    got = trial.subject.backend.predict(alone, None, state, example_ids=ids_on(trial, table.ids), **options)
    compare_result(trial, "I1", "predict of step(h)", got, predict_both(trial, table, seed=2, slots=SLOTS)[1])


@check("I1", "inference", "predict", level="infer", dtypes=("bfloat16", "float16"))
def low_precision(trial: Trial) -> None:
    """Logits in half precision that leave no doubt; predictions keep their dtype."""
    source = trial.seeded(STEPS, (EXAMPLES,))
    exits = source.integers(1, STEPS, (EXAMPLES, 1))
    z = np.where(np.arange(1, STEPS + 1) == exits, 9984.0, -9984.0)  # a number of bfloat16, too
    table = Table(z, np.clip(eighths(source, EXAMPLES), -0.5, 0.5).round(), np.arange(EXAMPLES))
    got, want = predict_both(trial, table, slots=SLOTS)
    compare_result(trial, "I1", "predict in half precision", got, want)


@check("I1", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def complaints(trial: Trial) -> None:
    """Arguments of no meaning."""
    table = sampled_table(trial.seeded(STEPS, (EXAMPLES,)), seed=2)
    x, state = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    step, backend = step_on(trial), trial.subject.backend
    shared = {**state, "all": trial.subject.array("", np.zeros(()), trial.dtype)}

    def column(x, state):
        y_hat, state, z = step(x, state)
        return y_hat, state, z[..., None]

    cases: tuple[tuple[str, Any, Any, dict[str, Any]], ...] = (
        ("policy", step, state, {"policy": "guess"}),
        ("max_steps", step, state, {"max_steps": 0}),
        ("q", step, state, {"policy": "quantile", "q": 0.0}),
        ("epsilon", step, state, {"policy": "expected", "epsilon": 1.0}),
        ("min_steps", step, state, {"policy": "expected", "min_steps": STEPS + 1}),
        ("remainder", step, state, {"policy": "expected", "remainder": "none"}),
        ("slots", step, state, {"slots": 0}),
        ("draw", step, state, {"draw": 4096}),
        ("seed", step, state, {"seed": -1}),
        ("example_ids", step, state, {"example_ids": ids_on(trial, table.ids[:-1])}),
        ("state", step, shared, {}),
        ("halt_logit", column, state, {}),
    )
    for name, network_step, start, options in cases:
        try:
            backend.predict(network_step, x, start, **{"max_steps": STEPS, **options})
        except ValueError as error:
            if name not in str(error):
                raise Violation("I1", f"predict with {options}: the sentence {error} does not name {name}") from None
        else:
            raise Violation("I1", f"predict with {options}: no ValueError that names {name}")
