"""What seldom occurs: NaN and infinities before Nᵢ, tiny weights, many steps, scalar arrays, saturation (H10, B8)."""

import itertools

import numpy as np

from ponder_ref.conformance.cases import CORNERS, Enumerated
from ponder_ref.conformance.check_gradients import compare_gradients
from ponder_ref.conformance.check_laws import MANY, SPEAKS_FOR
from ponder_ref.conformance.compare import LOW_PRECISION, assert_close
from ponder_ref.conformance.makers import MAKERS, every_kind
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import REFERENCE, run_and_compare
from ponder_ref.conformance.registry import ALL_DTYPES, Trial, check
from ponder_ref.conformance.subject import round_to

SATURATED = (1e4, -1e4, 40.0, -40.0, 17.0, -17.0, 0.0)
LONG_LENGTHS = np.array([300, 299, 200, 130])  # beyond what a small integer type counts


def _planted(rng: np.random.Generator, array: np.ndarray, values: tuple[float, ...]) -> np.ndarray:
    """`[N, batch]` with one entry of each example replaced by one of the values, more often early than late."""
    steps, examples = array.shape
    planted = array.copy()
    where = (steps * rng.random(examples) ** 3).astype(np.int64)
    planted[where, np.arange(examples)] = rng.choice(values, size=examples)
    return planted


def _register_planted(function: str, requirement: str, name: str, values: tuple[float, ...], *needs: str) -> None:
    @check(requirement, "laws", function, *needs, name=f"{function} with {values} among the steps")
    def run(trial: Trial) -> None:
        """With lengths, so that the entry lies before Nᵢ or beyond it, and without."""
        for number in range(4):
            arrays, arguments = MAKERS[function](Enumerated(trial, *MANY, number))
            arrays[name] = _planted(trial.rng(), arrays[name], values)
            run_and_compare(trial.subject, requirement, function, arrays, arguments, trial.dtype)


_register_planted("log_halting", "H4", "halt_logits", (np.nan, np.inf, -np.inf))
_register_planted("log_halting_from_lambdas", "H5", "lambdas", (np.nan,))
_register_planted("sample_steps", "S3", "lambdas", (np.nan,))
_register_planted("draw_steps", "S4", "lambdas", (np.nan,))


def _small_weights(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """Weights whose sum is small, and weights of which many are small beside others: all of them count."""
    return rng.uniform(0.5, 1.0, size) * 1e-12, 10.0 ** rng.uniform(-9, -4, size)


@check("L3", "laws", "weighted_mean")
def small_weights_count(trial: Trial) -> None:
    rng, (size,) = trial.rng(), MANY[1]
    values = rng.normal(size=size) + 1.0
    for weights in _small_weights(rng, size):
        run_and_compare(trial.subject, "L3", "weighted_mean", {"values": values, "weights": weights}, {}, trial.dtype)


@check("L4", "laws", "ponder_loss", "L3")
def small_weights_count_in_the_loss(trial: Trial) -> None:
    arrays, arguments = MAKERS["ponder_loss"](Enumerated(trial, *MANY, 2))
    for weights in _small_weights(trial.rng(), *MANY[1]):
        run_and_compare(trial.subject, "L4", "ponder_loss", {**arrays, "weights": weights}, arguments, trial.dtype)


def _register_long(function: str, requirement: str) -> None:
    @check(requirement, "laws", function, name=f"{function} over many steps")
    def long(trial: Trial) -> None:
        """More steps than a small integer type counts, and a halting unit that lets them be taken."""
        arrays, arguments = MAKERS[function](Enumerated(trial, 300, (4,), 0))
        for name, small, never in (("halt_logits", -9.0, -1e4), ("lambdas", 2.0**-9, 0.0)):
            if name in arrays:
                arrays[name] = np.full((300, 4), small)
                arrays[name][:, 0] = never
        if "lengths" in arrays:
            arrays["lengths"] = LONG_LENGTHS
        run_and_compare(trial.subject, requirement, function, arrays, arguments, trial.dtype)


_register_long("log_halting", "H4")
for _name in ("halting_lengths", "sample_steps", "draw_steps", "act_halting"):
    _register_long(_name, SPEAKS_FOR[_name])


@check("S2", "laws", "halting_uniforms", dtypes=("float64", "float32"))
def uniforms_of_many_steps(trial: Trial) -> None:
    """More steps than any field of fewer bits could count."""
    given, options = {"example_ids": np.arange(3)}, {"seed": 3, "max_steps": 1000}
    want = REFERENCE.call("halting_uniforms", given, options, "float64")["result"]
    got = trial.subject.call("halting_uniforms", given, options, trial.dtype)["result"]
    assert_close("S2", "halting_uniforms over 1000 steps", got, want, kind="exact", dtype="float64", arguments=given)


def _register_scalars(function: str, requirement: str) -> None:
    @check(requirement, "gradients", function, name=f"{function} takes scalar arrays")
    def scalars(trial: Trial) -> None:
        """The number of the update and the learning rate may be scalar arrays, as a compiled loop has them."""
        subject = trial.subject
        arrays, arguments = MAKERS[function](trial.seeded(6, (3,)))
        want = subject.call(function, arrays, {**arguments, "step": 7, "learning_rate": 0.125}, trial.dtype)
        given = {"step": subject.backend.from_numpy(np.asarray(7), "int32")}
        given["learning_rate"] = subject.backend.from_numpy(np.asarray(0.125), trial.dtype)
        got = subject.call(function, arrays, {**arguments, **given}, trial.dtype)
        for field, value in got.items():
            what = f"{function}.{field} with scalar arrays"
            assert_close(requirement, what, value, want[field], kind="optim", dtype=trial.dtype, arguments=arrays)


_register_scalars("adam_update", "O1")
_register_scalars("muon_update", "O3")


@check("L4", "laws", "ponder_loss")
def beta_may_be_a_scalar_array(trial: Trial) -> None:
    source, subject = trial.seeded(6, (3,)), trial.subject
    arrays, _ = MAKERS["ponder_loss"](source)
    arrays["log_prior"] = np.full(6, -np.log(6.0))
    beta = round_to(trial.dtype, np.asarray(0.1 + 2.0**-20))
    want = subject.call("ponder_loss", arrays, {"beta": float(beta)}, trial.dtype)
    got = subject.call("ponder_loss", arrays, {"beta": subject.array("", beta, trial.dtype)}, trial.dtype)
    size = np.abs(want["loss"]) + np.abs(want["loss_rec"])
    assert_close(
        "L4", "the loss with β as an array", got["loss"], want["loss"], kind="loss", dtype=trial.dtype, terms=size
    )


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
