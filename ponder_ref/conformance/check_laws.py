"""Values against the reference, and laws that do not need it (spec H, P, L, S, A, O)."""

from typing import Any

import numpy as np

from ponder_ref.conformance.cases import (
    Enumerated,
    batch_weights,
    beyond,
    halting_arguments,
    log_distribution,
    log_prior,
    prior_remainder,
    some_remainder,
)
from ponder_ref.conformance.compare import Violation, assert_close, describe, tolerance
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.oracle import expected, run_and_compare
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import round_to

MANY = (24, (1100,))  # steps and batch of the seeded arguments: small enough for one thread
# Which requirement a value answers for; log_halting is taken apart below.
SPEAKS_FOR = {
    "log_halting_from_lambdas": "H5",
    "halting_lengths": "H6",
    "expected_steps": "H7",
    "expected_prediction": "H8",
    "geometric_log_prior": "P1",
    "uniform_log_prior": "P3",
    "poisson_log_prior": "P4",
    "expected_loss": "L1",
    "kl_divergence": "L2",
    "weighted_mean": "L3",
    "ponder_loss": "L4",
    "threefry2x32": "S1",
    "halting_uniforms": "S2",
    "sample_steps": "S3",
    "draw_steps": "S4",
    "quantile_steps": "S6",
    "act_halting": "A1",
    "act_cost": "A3",
    "act_output": "A4",
    "adam_update": "O1",
    "orthogonalize": "O2",
    "muon_update": "O3",
    "clip_by_global_norm": "O4",
    "schedule": "O5",
}


def in_order(number: int, array: np.ndarray) -> np.ndarray:
    """Every second array has its first axis run fastest in memory, which must make no difference."""
    return np.asfortranarray(array) if number % 2 else array


def _register_values(function: str, requirement: str) -> None:
    dtypes = ANY_DTYPE if function in ("threefry2x32", "schedule") else ("float64", "float32")

    @check(requirement, "laws", function, dtypes=dtypes, name=f"{function} agrees with the reference")
    def small(trial: Trial) -> None:
        trial.for_all(
            lambda source: run_and_compare(trial.subject, requirement, function, *MAKERS[function](source), trial.dtype)
        )

    @check(requirement, "laws", function, dtypes=dtypes, name=f"{function} agrees with the reference on many rows")
    def many(trial: Trial) -> None:
        rng = trial.rng()
        for number in range(6):
            source = Enumerated(trial, *MANY, number, rng) if number < 4 else trial.seeded(*MANY, rng)
            arrays, arguments = MAKERS[function](source)
            arrays = {name: in_order(number, array) for name, array in arrays.items()}
            run_and_compare(trial.subject, requirement, function, arrays, arguments, trial.dtype)


for _function, _requirement in SPEAKS_FOR.items():
    _register_values(_function, _requirement)


def _log_p(trial: Trial, arrays: dict, arguments: dict, function: str = "log_halting") -> np.ndarray:
    return trial.subject.call(function, arrays, arguments, trial.dtype)["result"].astype(np.float64)


def _register_halting(requirement: str, remainder: str, *, cut: bool, steps_shown: slice) -> None:
    """log_halting against the reference, looking at some steps only: a complaint then names the rule they follow."""

    rule = ("H3",) * (remainder == "normalize")
    name = f"log_halting {remainder}{' cut' if cut else ''}, {requirement}"

    @check(requirement, "laws", "log_halting", *rule, name=name)
    def values(trial: Trial) -> None:
        def body(source, number: int = 0) -> None:
            steps, batch = source.shape()
            arrays = {"halt_logits": round_to(trial.dtype, in_order(number, source.logits((steps, *batch))))}
            if cut:
                lengths = source.integers(1, steps, batch)
                arrays = {"halt_logits": beyond(arrays["halt_logits"], lengths, np.nan), "lengths": lengths}
            got = _log_p(trial, arrays, {"remainder": remainder})[steps_shown]
            want = expected("log_halting", arrays, {"remainder": remainder})["result"][steps_shown]
            given = {"dtype": trial.dtype, "arguments": {**arrays, "remainder": remainder}, "batch": batch}
            assert_close(requirement, "log_halting", got, want, kind="log_p", **given)

        trial.for_all(body)
        rng = trial.rng()
        for number in range(6):
            body(trial.seeded(*MANY, rng), number)


_register_halting("H1", "last", cut=False, steps_shown=slice(None, -1))
_register_halting("H2", "last", cut=False, steps_shown=slice(-1, None))
_register_halting("H3", "normalize", cut=False, steps_shown=slice(None))
_register_halting("H4", "last", cut=True, steps_shown=slice(None))
_register_halting("H4", "normalize", cut=True, steps_shown=slice(None))


@check("H2", "laws", "log_halting", share=0.5)
def last_sums_to_one(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    arrays, _ = halting_arguments(source, "halt_logits", source.logits((steps, *batch)))
    log_p = _log_p(trial, arrays, {})
    total = np.exp(log_p).sum(axis=0)
    assert_close("H2", "Σp", total, np.ones(batch), kind="steps", dtype=trial.dtype, arguments=arrays, batch=batch)


@check("H3", "laws", "log_halting", share=0.5)
def normalize_sums_to_one(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    arrays, _ = halting_arguments(source, "halt_logits", source.logits((steps, *batch)))
    total = np.exp(_log_p(trial, arrays, {"remainder": "normalize"})).sum(axis=0)
    assert_close("H3", "Σp", total, np.ones(batch), kind="steps", dtype=trial.dtype, arguments=arrays, batch=batch)


@check("H2", "laws", "log_halting", share=0.5)
def last_does_not_use_the_last_logit(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    z = source.logits((steps, *batch))
    before = _log_p(trial, {"halt_logits": z}, {})
    for other in (np.nan, np.inf, -1e4, 3.0):
        moved = np.concatenate([z[:-1], np.full_like(z[:1], other)])
        after = _log_p(trial, {"halt_logits": moved}, {})
        assert_close(
            "H2", "log p with another z_N", after, before, kind="exact", dtype="float64", arguments={"z": moved}
        )


@check("H4", "laws", "log_halting", share=0.5)
def a_cut_example_is_the_short_one(trial: Trial, source: Any) -> None:
    z = source.logits((6, 2))
    length, remainder = source.choose(1, 4, 6), some_remainder(source)
    cut = {"halt_logits": beyond(z, np.array([length, 6]), np.nan), "lengths": np.array([length, 6])}
    long = _log_p(trial, cut, {"remainder": remainder})
    short = _log_p(trial, {"halt_logits": z[:length, :1]}, {"remainder": remainder})
    want = np.concatenate([short[:, 0], np.full(6 - length, -np.inf)])
    assert_close("H4", f"cut at {length}", long[:, 0], want, kind="log_p", dtype=trial.dtype, arguments={"z": z})


@check("H5", "laws", "log_halting", "log_halting_from_lambdas", share=0.5)
def logits_and_lambdas_agree(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    lam = source.inside((steps, *batch))
    arguments = {"remainder": some_remainder(source)}
    by_lambda = _log_p(trial, {"lambdas": lam}, arguments, "log_halting_from_lambdas")
    by_logit = _log_p(trial, {"halt_logits": np.log(lam) - np.log1p(-lam)}, arguments)
    loose = {"kind": "log_p", "dtype": "float32", "arguments": {"lambdas": lam}}
    assert_close("H5", "log p from λ", by_lambda, by_logit, **loose)


@check("H7", "laws", "log_halting", "expected_steps", share=0.5)
def expected_steps_lie_in_range(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    log_p = log_distribution(source, steps, batch)
    mean = trial.subject.call("expected_steps", {"log_p": log_p}, {}, trial.dtype)["result"]
    if not ((mean >= 1 - 1e-5) & (mean <= steps * (1 + 1e-5))).all():
        raise Violation("H7", f"expected_steps: {mean} outside 1..{steps}; log_p: {describe(log_p)}")


@check("L1", "laws", "expected_loss", share=0.5)
def expected_loss_is_linear_and_keeps_constants(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    log_p = log_distribution(source, steps, batch)
    constant = np.full(log_p.shape, 5.0)
    got = trial.subject.call("expected_loss", {"log_p": log_p, "step_losses": constant}, {}, trial.dtype)["result"]
    want = 5.0 * np.exp(log_p).sum(axis=0)
    given = {"log_p": log_p, "step_losses": constant}
    assert_close("L1", "a constant loss", got, want, kind="loss", dtype=trial.dtype, terms=want, arguments=given)


@check("L2", "laws", "kl_divergence", share=0.5)
def kl_is_not_negative_and_zero_at_the_prior(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    log_p, prior = log_distribution(source, steps, batch), log_prior(source, steps, batch)
    kl = trial.subject.call("kl_divergence", {"log_p": log_p, "log_prior": prior}, {}, trial.dtype)["result"]
    if not (kl >= -1e-5).all():
        raise Violation(
            "L2", f"kl_divergence: {kl} is negative or NaN; {describe({'log_p': log_p, 'log_prior': prior})}"
        )
    same = trial.subject.call("kl_divergence", {"log_p": log_p, "log_prior": log_p}, {}, trial.dtype)["result"]
    assert_close("L2", "KL(p‖p)", same, np.zeros(batch), kind="loss", dtype=trial.dtype, arguments={"log_p": log_p})


@check("L3", "laws", "weighted_mean", share=0.5)
def padding_has_no_influence(trial: Trial, source: Any) -> None:
    values = source.values((4,))
    alone = trial.subject.call("weighted_mean", {"values": values}, {}, trial.dtype)["result"]
    padded = {"values": np.append(values, [np.nan, np.inf]), "weights": np.array([2.0, 2, 2, 2, 0, 0])}
    with_padding = trial.subject.call("weighted_mean", padded, {}, trial.dtype)["result"]
    size = np.abs(values).mean()
    assert_close(
        "L3", "a padded mean", with_padding, alone, kind="loss", dtype=trial.dtype, terms=size, arguments=padded
    )


@check("L4", "laws", "ponder_loss", share=0.5)
def the_parts_add_up(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    arrays = {
        "log_p": log_distribution(source, steps, batch),
        "step_losses": source.values((steps, *batch)),
        "log_prior": np.full(steps, -np.log(steps)),
    }
    weights = batch_weights(source, batch)
    if weights is not None:
        arrays["weights"] = weights
    beta = source.choose(0.0, 0.01, 3.0)
    parts = trial.subject.call("ponder_loss", arrays, {"beta": beta}, trial.dtype)
    total = parts["loss_rec"].astype(np.float64) + beta * parts["loss_reg"]
    size = np.abs(parts["example_rec"]).max() + beta * np.abs(parts["example_reg"]).max()
    given = {"kind": "loss", "dtype": trial.dtype, "terms": size, "arguments": arrays}
    assert_close("L4", "loss against loss_rec + beta·loss_reg", parts["loss"], total, **given)


@check("A2", "laws", "act_halting", share=0.5)
def act_weights_sum_to_one(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    lam = source.lambdas((steps, *batch))
    act = trial.subject.call("act_halting", {"lambdas": lam}, {}, trial.dtype)
    given = {"kind": "act", "dtype": trial.dtype, "arguments": {"lambdas": lam}, "batch": batch}
    assert_close("A2", "Σ act weights", act["weights"].sum(axis=0), np.ones(batch), **given)
    n = np.arange(1, steps + 1).reshape(-1, *[1] * len(batch))
    at_last = np.where(n == act["steps"], act["weights"], 0).sum(axis=0)
    assert_close("A2", "the weight of the last step", at_last, act["remainder"].astype(np.float64), **given)


@check("A4", "laws", "act_halting", "act_output", share=0.5)
def a_constant_state_comes_out_as_it_is(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    lam = source.lambdas((steps, *batch))
    weights = trial.subject.call("act_halting", {"lambdas": lam}, {}, trial.dtype)["weights"].astype(np.float64)
    given = {"weights": weights, "y_hat": np.full((*lam.shape, 2), 3.0)}
    out = trial.subject.call("act_output", given, {}, trial.dtype)["result"]
    want = np.full((*batch, 2), 3.0)
    assert_close("A4", "a constant state", out, want, kind="act", dtype=trial.dtype, terms=want, arguments=given)


@check("P2", "laws", "geometric_log_prior", share=1.0)
def the_tail_of_the_prior_is_on_the_last_step(trial: Trial, source: Any) -> None:
    arguments = {"lambda_p": source.number(0.01, 1.0), "max_steps": source.choose(1, 2, 5, 20), "remainder": "last"}
    run_and_compare(trial.subject, "P2", "geometric_log_prior", {}, arguments, trial.dtype)


@check("P1", "laws", "geometric_log_prior", "poisson_log_prior", "uniform_log_prior", share=0.5)
def priors_sum_to_one(trial: Trial, source: Any) -> None:
    steps, remainder = source.choose(1, 2, 5, 20), prior_remainder(source)
    for name, arguments in (
        ("geometric_log_prior", {"lambda_p": source.number(0.001, 1.0), "remainder": remainder}),
        ("poisson_log_prior", {"rate": source.number(0.01, 40.0), "remainder": remainder}),
        ("uniform_log_prior", {}),
    ):
        prior = trial.subject.call(name, {}, {**arguments, "max_steps": steps}, trial.dtype)["result"]
        total = np.exp(prior.astype(np.float64)).sum()
        requirement = {"geometric_log_prior": "P1", "poisson_log_prior": "P4", "uniform_log_prior": "P3"}[name]
        given = {"kind": "steps", "dtype": trial.dtype, "arguments": {**arguments, "max_steps": steps}}
        assert_close(requirement, f"Σ exp {name}", total, np.ones(()), **given)


def _near_threshold(function: str, dtype: str, side: int) -> tuple[dict, dict]:
    """Arguments whose sum at step 1 lies five tolerances to one side of the threshold: decided, but only just."""
    margin = 5 * side * tolerance("cdf", dtype)["atol"]
    if function == "halting_lengths":
        threshold = np.log(0.05)
        left = threshold + margin * (1 + abs(threshold))
        return {"halt_logits": np.array([[np.log(np.expm1(-left))], [0.0], [0.0]])}, {"epsilon": 0.05}
    if function == "quantile_steps":
        first = 0.3 + margin * 1.3
        return {"log_p": np.log(np.array([[first], [0.5], [0.5 - first]]))}, {"q": 0.3}
    return {"lambdas": np.array([[0.7 + margin * 1.7], [0.5], [0.5]])}, {"epsilon": 0.3}


def _register_threshold(function: str, requirement: str) -> None:
    @check(requirement, "laws", function, name=f"{function} decides near its threshold")
    def near(trial: Trial) -> None:
        for side in (-1, 1):
            run_and_compare(
                trial.subject, requirement, function, *_near_threshold(function, trial.dtype, side), trial.dtype
            )


for _function in ("halting_lengths", "quantile_steps", "act_halting"):
    _register_threshold(_function, SPEAKS_FOR[_function])
