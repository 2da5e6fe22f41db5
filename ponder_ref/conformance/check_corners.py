"""Entries and sizes that seldom occur: NaN and infinities before Nᵢ, tiny weights, many steps, scalar arrays."""

import numpy as np

from ponder_ref.conformance.cases import Enumerated
from ponder_ref.conformance.check_laws import MANY, SPEAKS_FOR
from ponder_ref.conformance.compare import assert_close
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.oracle import REFERENCE, run_and_compare
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to

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
