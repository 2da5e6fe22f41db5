"""Gradients against the analytic ones (spec H9, L5, A5) and their exact zeros."""

from typing import Any

import numpy as np

from ponder_ref.conformance.cases import batch_weights, beyond, log_prior, some_remainder
from ponder_ref.conformance.compare import LOW_PRECISION, Violation, assert_close
from ponder_ref.conformance.makers import every_kind
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to


def compare_gradients(trial: Trial, requirement: str, name: str, arrays: dict, arguments: dict) -> None:
    """The backend's gradients of an objective against the analytic ones, on arguments rounded to the dtype."""
    arrays = {key: round_to(trial.dtype, value) for key, value in arrays.items() if value is not None}
    objective = OBJECTIVES[name].make(trial.subject, arrays, arguments, trial.dtype)
    wrt = [arrays[key] for key in objective.wrt]
    _, grads = trial.subject.gradients(objective.fn, wrt, trial.dtype, objective.constants)
    given = {**arrays, **arguments}
    for key, grad, want, noise in zip(objective.wrt, grads, objective.wanted, objective.magnitudes, strict=True):
        what = f"{name.removeprefix('grad_')}[{trial.dtype}] gradient by {key}"
        check_dtype(what, grad, trial.dtype)
        batch = arrays[key].shape[1:]
        assert_close(
            requirement, what, grad, want, kind="gradient", dtype=trial.dtype, terms=noise, arguments=given, batch=batch
        )
        silent = np.where(noise == 0, grad, 0)
        if not (silent == 0).all():
            raise Violation(
                requirement, f"{what}: {silent[silent != 0][0]} where nothing contributes, should be exactly 0"
            )


def check_dtype(what: str, grad: np.ndarray, dtype: str) -> None:
    """A gradient has the dtype of its argument (B3, B8); bfloat16 may have become float32 on the way to NumPy."""
    if grad.dtype.name not in (dtype, "float32" if dtype == "bfloat16" else dtype):
        requirement = "B8" if dtype in LOW_PRECISION else "B3"
        raise Violation(requirement, f"{what} has dtype {grad.dtype}, should be that of the argument, {dtype}")


def ponder_arguments(source, *, weights: bool = True, always: bool = False) -> tuple[dict, dict]:
    """Logits, losses, prior, lengths and weights, with NaN wherever nothing may look.

    `always` gives lengths and weights even where they have no effect: fewer kinds of call, fewer compilations.
    """
    steps, batch = source.shape()
    z, losses, prior = source.logits((steps, *batch)), source.values((steps, *batch)), log_prior(source, steps, batch)
    # The gradient is undefined where the KL is infinite; what float16 cannot hold would make it so.
    prior = np.where(prior > -6e4, prior, -np.log(steps))
    prior = prior - np.log(np.exp(prior).sum(axis=0))  # a distribution again, whose KL is not negative
    arrays = {"halt_logits": z, "step_losses": losses, "log_prior": prior}
    arguments = {"beta": 0.3 if always else source.choose(0.01, 1.0), "remainder": some_remainder(source)}
    if "H4" not in source.without and (always or source.option("H4", True, False)):
        lengths = source.integers(1, steps, batch)
        arrays |= {"halt_logits": beyond(z, lengths, np.nan), "step_losses": beyond(losses, lengths, np.nan)}
        arrays["lengths"] = lengths
    share = batch_weights(source, batch) if weights else None
    if always and weights and "L3" not in source.without:
        share = np.ones(batch) if share is None else share.astype(np.float64)
    if share is not None:
        for key in ("halt_logits", "step_losses"):
            arrays[key] = np.where(share == 0, np.nan, arrays[key])
        arrays["weights"] = share
    return arrays, arguments


@check("L5", "gradients", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad")
def gradients_of_the_loss(trial: Trial) -> None:
    def body(source) -> None:
        compare_gradients(trial, "L5", "grad_ponder_loss", *ponder_arguments(source, always=True))

    trial.for_all(body)
    rng = trial.rng()
    for steps, batch, weights in ((20, (6,), True), (20, (6,), True), (3, (), True), (3, (), True), (3, (2, 2), False)):
        made = ponder_arguments(trial.seeded(steps, batch, rng), weights=weights)
        compare_gradients(trial, "L5", "grad_ponder_loss", *made)


@check("H9", "gradients", *OBJECTIVES["grad_expected_steps"].needs, "value_and_grad")
def gradients_of_the_expected_steps(trial: Trial) -> None:
    def body(source) -> None:
        arrays, arguments = ponder_arguments(source, weights=False, always=True)
        kept = {key: arrays[key] for key in ("halt_logits", "lengths") if key in arrays}
        compare_gradients(trial, "H9", "grad_expected_steps", kept, {"remainder": arguments["remainder"]})

    trial.for_all(body, share=0.6)
    rng = trial.rng()
    remainder = trial.subject.remainders()[-1]
    for steps, batch, cut in ((3, (2, 2), False), (6, (3,), False), (6, (), True)):
        arrays = {"halt_logits": rng.normal(size=(steps, *batch))}
        if cut and trial.subject.offers("H4"):
            arrays["lengths"] = np.asarray(steps - 1)
        compare_gradients(trial, "H9", "grad_expected_steps", arrays, {"remainder": remainder})


@check("H9", "gradients", *OBJECTIVES["grad_ponder_loss_by_lambda"].needs, "value_and_grad", share=0.6)
def gradients_by_lambda_inside_the_interval(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    arrays = {
        "lambdas": source.inside((steps, *batch)),
        "step_losses": source.values((steps, *batch)),
        "log_prior": np.full(steps, -np.log(steps)),
    }
    if "H4" not in source.without:
        arrays["lengths"] = source.integers(1, steps, batch)
        arrays["lambdas"] = beyond(arrays["lambdas"], arrays["lengths"], np.nan)
    arguments = {"beta": 0.3, "remainder": some_remainder(source)}
    compare_gradients(trial, "H9", "grad_ponder_loss_by_lambda", arrays, arguments)


@check("H8", "gradients", *OBJECTIVES["grad_expected_prediction"].needs, "value_and_grad", share=0.6)
def gradients_of_the_expected_prediction(trial: Trial, source: Any) -> None:
    arrays, arguments = ponder_arguments(source, weights=False, always=True)
    steps, *batch = arrays["halt_logits"].shape
    y_hat = source.values((steps, *batch, 2))
    if "lengths" in arrays:
        y_hat = beyond(y_hat, arrays["lengths"], np.nan)
    kept = {key: arrays[key] for key in ("halt_logits", "lengths") if key in arrays}
    kept |= {"y_hat": y_hat, "cotangent": source.values((*batch, 2))}
    compare_gradients(trial, "H8", "grad_expected_prediction", kept, {"remainder": arguments["remainder"]})


@check("L3", "gradients", *OBJECTIVES["grad_weighted_mean"].needs, "value_and_grad", share=0.6)
def gradients_of_the_mean(trial: Trial, source: Any) -> None:
    _, batch = source.shape()
    values, weights = source.values(batch), batch_weights(source, batch)
    if weights is not None:
        values = np.where(weights == 0, np.nan, values)
    compare_gradients(trial, "L3", "grad_weighted_mean", {"values": values, "weights": weights}, {})


@check("A5", "gradients", *OBJECTIVES["grad_act"].needs, "value_and_grad", share=0.6)
def gradients_of_act(trial: Trial, source: Any) -> None:
    steps, batch = source.shape()
    lam = source.inside((steps, *batch))
    sums = np.cumsum(lam, axis=0)
    lam = np.where(np.abs(sums - 0.9) < 1e-3, lam + 0.0078125, lam)  # away from the threshold, where N is undecided
    y_hat, cotangent = source.values((steps, *batch, 2)), source.values((*batch, 2))
    arrays = {"lambdas": lam, "y_hat": y_hat, "cotangent": cotangent}
    if (np.abs(np.cumsum(round_to(trial.dtype, lam), axis=0) - 0.9) < 1e-3).any():
        return
    compare_gradients(trial, "A5", "grad_act", arrays, {"tau": source.choose(0.0, 1.0), "epsilon": 0.1})


@check("L4", "gradients", "ponder_loss", "value_and_grad")
def the_slope_by_beta_is_the_kl(trial: Trial) -> None:
    """β enters once, and no gradient flows into the prior."""
    backend = trial.subject.backend
    log_p = np.log(np.array([[0.9, 0.2], [0.1, 0.8]]))
    losses, prior = np.array([[1.0, 2.0], [5.0, -1.0]]), np.log(np.array([0.25, 0.75]))
    given = [trial.subject.array("", x, trial.dtype) for x in (log_p, losses)]

    def fn(beta, log_prior):
        return backend.ponder_loss(*given, log_prior, beta=beta).loss

    _, (by_beta, by_prior) = trial.subject.gradients(fn, [np.asarray(0.5), prior], trial.dtype)
    parts = trial.subject.call(
        "ponder_loss", {"log_p": log_p, "step_losses": losses, "log_prior": prior}, {"beta": 0.5}, trial.dtype
    )
    common = {"kind": "gradient", "dtype": trial.dtype, "arguments": {"log_p": log_p, "log_prior": prior}}
    assert_close("L4", "∂loss/∂β", by_beta, parts["loss_reg"], **common)
    assert_close(
        "L2", "the gradient into the prior", by_prior, np.zeros(2), **{**common, "kind": "exact", "dtype": "float64"}
    )


@check("H3", "gradients", *OBJECTIVES["grad_ponder_loss_by_lambda"].needs, "value_and_grad")
def no_gradient_where_no_step_halts(trial: Trial) -> None:
    """Every λ is 0: the distribution is uniform by definition and has no slope."""
    arrays = {"step_losses": np.array([[1.0], [2.0], [4.0]]), "log_prior": np.log(np.array([0.5, 0.25, 0.25]))}
    arrays["lambdas"] = np.full((3, 1), 0.5)
    arguments = {"beta": 0.3, "remainder": "normalize"}
    objective = OBJECTIVES["grad_ponder_loss_by_lambda"].make(trial.subject, arrays, arguments, trial.dtype)
    _, (slope,) = trial.subject.gradients(objective.fn, [np.zeros((3, 1))], trial.dtype, objective.constants)
    assert_close("H3", "the gradient at λ = 0", slope, np.zeros((3, 1)), kind="exact", dtype="float64")


@check("B8", "low precision", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad", dtypes=LOW_PRECISION)
def gradients_in_low_precision(trial: Trial) -> None:
    def body(source) -> None:
        compare_gradients(trial, "B8", "grad_ponder_loss", *ponder_arguments(source, always=True))

    for made in every_kind(trial, lambda source: ponder_arguments(source, always=True)):
        compare_gradients(trial, "B8", "grad_ponder_loss", *made)
    trial.for_all(body, share=0.25, every=False)
