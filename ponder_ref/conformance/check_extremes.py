"""Saturated logits, many steps and low precision (spec H10, B8)."""

import itertools

import numpy as np

from ponder_ref.conformance.cases import CORNERS
from ponder_ref.conformance.check_gradients import compare_gradients
from ponder_ref.conformance.check_laws import MANY, SPEAKS_FOR
from ponder_ref.conformance.compare import LOW_PRECISION
from ponder_ref.conformance.makers import MAKERS, every_kind
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import run_and_compare
from ponder_ref.conformance.registry import ALL_DTYPES, Trial, check

SATURATED = (1e4, -1e4, 40.0, -40.0, 17.0, -17.0, 0.0)


@check("H10", "saturation", "log_halting", dtypes=ALL_DTYPES)
def saturated_logits(trial: Trial) -> None:
    """Every triple of corners, in both remainder rules."""
    z = np.array(list(itertools.product(SATURATED, repeat=3))).T
    for remainder in trial.subject.remainders():
        run_and_compare(trial.subject, "H10", "log_halting", {"halt_logits": z}, {"remainder": remainder}, trial.dtype)


@check("H10", "saturation", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad", dtypes=ALL_DTYPES)
def gradients_at_saturation(trial: Trial) -> None:
    """A halting unit that is certain has the gradient it should have, and no NaN."""
    columns = np.array([*itertools.product((1e4, -1e4, 17.0, 0.0), repeat=2), (89.0, -89.0), (-40.0, 40.0)]).T
    z = np.concatenate([columns, np.full((1, columns.shape[1]), 0.5)])
    losses = np.linspace(-1.0, 2.0, z.size).reshape(z.shape)
    prior = np.log(np.array([0.5, 0.25, 0.25]))
    for remainder in trial.subject.remainders():
        arrays = {"halt_logits": z, "step_losses": losses, "log_prior": prior}
        compare_gradients(trial, "H10", "grad_ponder_loss", arrays, {"beta": 0.5, "remainder": remainder})


@check("H10", "saturation", "log_halting", dtypes=ALL_DTYPES)
def a_thousand_steps(trial: Trial) -> None:
    """Products of a thousand factors: only logarithms survive them. Equal ones round alike, which adds up most."""
    rng = trial.rng()
    z = rng.normal(size=(1000, 12)) * np.array([0.1, 1, 3] * 4) + np.repeat([-7.0, -3.0, 0.0, 2.0], 3)
    z = np.concatenate([z, np.broadcast_to([-7.0, -5.0, -3.0, -2.5, -2.0, -1.0, 0.0], (1000, 7))], axis=1)
    z[:, :12][rng.random((1000, 12)) < 0.002] = rng.choice(CORNERS)
    for remainder in trial.subject.remainders():
        run_and_compare(trial.subject, "H10", "log_halting", {"halt_logits": z}, {"remainder": remainder}, trial.dtype)


@check("H10", "saturation", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad")
def gradients_over_a_thousand_steps(trial: Trial) -> None:
    rng = trial.rng()
    z = rng.normal(size=(1000, 1)) - 6.5
    arrays = {
        "halt_logits": z,
        "step_losses": rng.normal(size=z.shape) + np.linspace(0, 2, 1000)[:, None],
        "log_prior": np.full(1000, -np.log(1000.0)),
    }
    for remainder in trial.subject.remainders():
        compare_gradients(trial, "H10", "grad_ponder_loss", arrays, {"beta": 0.1, "remainder": remainder})


def _register_low_precision(function: str) -> None:
    def all_of_it(trial: Trial) -> None:
        def body(source) -> None:
            run_and_compare(trial.subject, "B8", function, *MAKERS[function](source), trial.dtype)

        trial.for_all(body, share=0.25)
        body(trial.seeded(*MANY))

    def first_dtype(trial: Trial) -> None:
        """The first of the half precisions offered in earnest, the other with every option once."""
        if trial.dtype == next(dtype for dtype in LOW_PRECISION if dtype in trial.subject.dtypes):
            all_of_it(trial)
        else:
            for made in every_kind(trial, MAKERS[function]):
                run_and_compare(trial.subject, "B8", function, *made, trial.dtype)

    name = f"{function} in low precision"
    check("B8", "low precision", function, dtypes=LOW_PRECISION, name=name)(first_dtype)
    check("B8", "low precision", function, dtypes=LOW_PRECISION[1:], level="full", name=name)(all_of_it)


# The optimisers work in the parameter's dtype, float32 or float64; priors, words and schedules take no float array.
for _function in ("log_halting", *SPEAKS_FOR):
    if SPEAKS_FOR.get(_function, "H1")[0] in "HLA" or _function in ("sample_steps", "draw_steps", "quantile_steps"):
        _register_low_precision(_function)
