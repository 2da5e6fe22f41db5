"""The gradient of every function by every float argument, against the reference's complex steps (spec H, L, A).

The objectives of `check_gradients` go through the whole loss; a function whose own gradient is cut would hide there.
"""

import functools
from collections.abc import Callable

import numpy as np

from ponder_ref.conformance.compare import Violation, assert_close, describe
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import REFERENCE, run_and_compare
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import Subject, round_to

# function -> requirement, arguments to differentiate by, fields of the result
SLOPES = {
    "expected_steps": ("H7", ("log_p",), ("result",)),
    "expected_prediction": ("H8", ("log_p", "y_hat"), ("result",)),
    "expected_loss": ("L1", ("log_p", "step_losses"), ("result",)),
    "kl_divergence": ("L2", ("log_p", "log_prior"), ("result",)),
    "weighted_mean": ("L3", ("values",), ("result",)),
    "ponder_loss": (
        "L5",
        ("log_p", "step_losses", "log_prior"),
        ("loss", "loss_rec", "loss_reg", "example_rec", "example_reg"),
    ),
    "act_halting": ("A5", ("lambdas",), ("weights", "remainder")),
    "act_cost": ("A3", ("remainder",), ("result",)),
    "act_output": ("A4", ("weights", "y_hat"), ("result",)),
}


@functools.lru_cache(maxsize=512)
def _scalar(subject: Subject, function: str, field: str, names: tuple[str, ...], static: tuple) -> Callable:
    """Σ cotangent·field, as a function of the arrays named, then of the cotangent."""

    def fn(*arrays):
        *given, cotangent = arrays
        result = getattr(subject.backend, function)(**dict(zip(names, given, strict=True)), **dict(static))
        return (cotangent * (result if field == "result" else getattr(result, field))).sum()

    return fn


def _made(trial: Trial, function: str, rng: np.random.Generator) -> tuple[dict, dict]:
    """Arguments of the usual kind, inside (0, 1) and with a finite KL, where gradients are defined."""
    source = trial.seeded(6, (3,), rng)
    arrays, arguments = MAKERS[function](source)
    if function in ("kl_divergence", "ponder_loss"):
        prior = arrays["log_prior"]
        arrays["log_prior"] = np.where(np.isneginf(prior), -np.log(6.0), prior)
    if function == "act_halting":
        arrays["lambdas"] = source.inside((6, 3))
    if function == "act_output":
        arrays["weights"] = source.inside((6, 3))
        arrays["y_hat"] = source.values((6, 3, 2))
    return {name: round_to(trial.dtype, array) for name, array in arrays.items()}, arguments


def _register(function: str, requirement: str, wrt: tuple[str, ...], fields: tuple[str, ...]) -> None:
    @check(requirement, "gradients", function, "value_and_grad", name=f"slopes of {function}")
    def run(trial: Trial) -> None:
        rng = trial.rng()
        for _ in range(4):
            arrays, arguments = _made(trial, function, rng)
            shapes = REFERENCE.call(function, arrays, arguments, "float64")
            rest = tuple(name for name in arrays if name not in wrt)
            static = tuple(sorted(arguments.items()))
            for field in fields:
                cotangent = np.round(rng.normal(size=shapes[field].shape) * 64) / 64
                slopes = []
                for subject, dtype in ((trial.subject, trial.dtype), (REFERENCE, "float64")):
                    fn = _scalar(subject, function, field, (*wrt, *rest), static)
                    held = tuple(subject.array(name, arrays[name], dtype) for name in rest)
                    held = (*held, subject.array("", cotangent, dtype))
                    slopes.append(subject.gradients(fn, [arrays[name] for name in wrt], dtype, held)[1])
                for name, got, want in zip(wrt, *slopes, strict=True):
                    what = f"{function}.{field}[{trial.dtype}] slope by {name}"
                    size = np.full(want.shape, np.abs(want).max(initial=0.0))
                    given = {"terms": size, "arguments": {**arrays, **arguments}, "batch": (3,)}
                    named = "L2" if name == "log_prior" else requirement
                    assert_close(named, what, got, want, kind="gradient", dtype=trial.dtype, **given)


for _function, _row in SLOPES.items():
    _register(_function, *_row)


@functools.lru_cache(maxsize=64)
def _others(subject: Subject, kind: str) -> Callable:
    """What examples 0 and 2 contribute, written without example 1."""
    backend = subject.backend

    def halting(z, y_hat, lengths=None):
        out = backend.expected_prediction(backend.log_halting(z, lengths=lengths), y_hat)
        return out[0].sum() + out[2].sum()

    def act(lambdas, y_hat, lengths=None):
        parts = backend.act_halting(lambdas)
        cost = backend.act_cost(parts.steps, parts.remainder, tau=0.5)
        out = backend.act_output(parts.weights, y_hat)
        return out[0].sum() + out[2].sum() + cost[0] + cost[2]

    return {"halting": halting, "act": act}[kind]


def _register_nan(kind: str, needs: tuple[str, ...]) -> None:
    @check("B6", "independence", *needs, "value_and_grad", name=f"a NaN stays at home in gradients of {kind}")
    def run(trial: Trial) -> None:
        source = trial.seeded(6, (3,))
        x = source.logits((6, 3)) if kind == "halting" else source.inside((6, 3))
        x, y_hat = round_to(trial.dtype, x), round_to(trial.dtype, source.values((6, 3, 2)))
        lengths = (trial.subject.array("lengths", np.array([4, 6, 5]), trial.dtype),) * trial.subject.offers("H4")
        fn = _others(trial.subject, kind)
        clean = trial.subject.gradients(fn, [x, y_hat], trial.dtype, lengths)[1]
        hurt = [x.copy(), y_hat.copy()]
        hurt[0][1, 1] = hurt[1][2, 1] = np.nan
        got = trial.subject.gradients(fn, hurt, trial.dtype, lengths)[1]
        first = "halt_logits" if kind == "halting" else "lambdas"
        for name, one, other in zip((first, "y_hat"), got, clean, strict=True):
            if not np.array_equal(one[:, [0, 2]], other[:, [0, 2]]):
                sentence = f"a NaN in example 1 changed the gradient by {name} of another example"
                raise Violation(
                    "B6", f"{' and '.join(needs)}: {sentence}; {describe({first: hurt[0], 'y_hat': hurt[1]})}"
                )


_register_nan("halting", OBJECTIVES["grad_expected_prediction"].needs)
_register_nan("act", OBJECTIVES["grad_act"].needs)


@check("O1", "gradients", "adam_update", "muon_update", name="optimisers take scalar arrays")
def optimisers_take_scalar_arrays(trial: Trial) -> None:
    """The number of the update and the learning rate may be scalar arrays, as a compiled loop has them."""
    source, subject = trial.seeded(6, (3,)), trial.subject
    for function, requirement in (("adam_update", "O1"), ("muon_update", "O3")):
        arrays, arguments = MAKERS[function](source)
        want = subject.call(function, arrays, {**arguments, "step": 7, "learning_rate": 0.125}, trial.dtype)
        scalars = {"step": subject.backend.from_numpy(np.asarray(7), "int32")}
        scalars["learning_rate"] = subject.backend.from_numpy(np.asarray(0.125), trial.dtype)
        got = subject.call(function, arrays, {**arguments, **scalars}, trial.dtype)
        for field, value in got.items():
            what = f"{function}.{field} with scalar arrays"
            assert_close(requirement, what, value, want[field], kind="optim", dtype=trial.dtype, arguments=arrays)


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


def _register_long(function: str, requirement: str) -> None:
    @check(requirement, "laws", function, name=f"{function} over many steps")
    def long(trial: Trial) -> None:
        """More steps than a small integer type counts."""
        source = trial.seeded(300, (4,))
        arrays, arguments = MAKERS[function](source)
        for name, small in (("halt_logits", -9.0), ("lambdas", 2.0**-9)):
            if name in arrays:
                arrays[name] = np.full(arrays[name].shape, small)
                arrays.pop("lengths", None)
        run_and_compare(trial.subject, requirement, function, arrays, arguments, trial.dtype)


for _name, _id in (("halting_lengths", "H6"), ("sample_steps", "S3"), ("draw_steps", "S4"), ("act_halting", "A1")):
    _register_long(_name, _id)


@check("S2", "laws", "halting_uniforms", dtypes=("float64", "float32"))
def uniforms_of_many_steps(trial: Trial) -> None:
    """More steps than any field of fewer bits could count."""
    given, options = {"example_ids": np.arange(3)}, {"seed": 3, "max_steps": 1000}
    want = REFERENCE.call("halting_uniforms", given, options, "float64")["result"]
    got = trial.subject.call("halting_uniforms", given, options, trial.dtype)["result"]
    assert_close("S2", "halting_uniforms over 1000 steps", got, want, kind="exact", dtype="float64", arguments=given)
