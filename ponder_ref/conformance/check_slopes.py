"""The gradient of every function by every float argument, against the reference's complex steps (spec H, L, A).

The objectives of `check_gradients` go through the whole loss; a function whose own gradient is cut would hide there.
"""

import functools
from collections.abc import Callable

import numpy as np

from ponder_ref.conformance.compare import Violation, assert_close, describe
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import REFERENCE
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
def _scalar(subject: Subject, function: str, fields: tuple, names: tuple[str, ...], static: tuple) -> Callable:
    """Σ cotangent·field over all fields, as a function of the arrays named, then of the cotangents."""

    def fn(*arrays):
        given, cotangents = arrays[: len(names)], arrays[len(names) :]
        result = getattr(subject.backend, function)(**dict(zip(names, given, strict=True)), **dict(static))
        parts = [result if field == "result" else getattr(result, field) for field in fields]
        return sum((cotangent * part).sum() for cotangent, part in zip(cotangents, parts, strict=True))

    return fn


def _made(trial: Trial, function: str, rng: np.random.Generator, number: int) -> tuple[dict, dict]:
    """Arguments of the usual kind, inside (0, 1) and with a finite KL, where gradients are defined."""
    source = trial.seeded(6, (3,), rng)
    arrays, arguments = MAKERS[function](source)
    if function in ("kl_divergence", "ponder_loss"):
        prior = arrays["log_prior"]
        prior = np.where(prior < -20, -np.log(6.0), prior)
        arrays["log_prior"] = prior - np.log(np.exp(prior).sum(axis=0))  # a distribution again
        arguments = {"beta": 1.0} if arguments else {}
    if function == "act_halting":
        arrays["lambdas"] = source.inside((6, 3)) * np.array([1, 1, 0.125])  # the third example reaches the limit
    if function == "act_output":
        arrays["weights"] = source.inside((6, 3)) * (source.integers(0, 1, (6, 3)) if number % 2 else 1)
        arrays["y_hat"] = np.where((arrays["weights"] == 0)[..., None], np.nan, source.values((6, 3, 2)))
    return {name: round_to(trial.dtype, array) for name, array in arrays.items()}, arguments


def _register(function: str, requirement: str, wrt: tuple[str, ...], fields: tuple[str, ...]) -> None:
    @check(requirement, "gradients", function, "value_and_grad", name=f"slopes of {function}")
    def run(trial: Trial) -> None:
        rng = trial.rng()
        for number in range(4):
            arrays, arguments = _made(trial, function, rng, number)
            shapes = REFERENCE.call(function, arrays, arguments, "float64")
            rest = tuple(name for name in arrays if name not in wrt)
            static = tuple(sorted(arguments.items()))
            cotangents = [np.round(rng.normal(size=shapes[field].shape) * 64) / 64 for field in fields]
            slopes = []
            for subject, dtype in ((trial.subject, trial.dtype), (REFERENCE, "float64")):
                fn = _scalar(subject, function, fields, (*wrt, *rest), static)
                held = [subject.array(name, arrays[name], dtype) for name in rest]
                held += [subject.array("", cotangent, dtype) for cotangent in cotangents]
                slopes.append(subject.gradients(fn, [arrays[name] for name in wrt], dtype, tuple(held))[1])
            for name, got, want in zip(wrt, *slopes, strict=True):
                what = f"{function}[{trial.dtype}] slope of {' + '.join(fields)} by {name}"
                size = np.full(want.shape, np.nanmax(np.abs(want), initial=0.0))
                given = {"terms": size, "arguments": {**arrays, **arguments}, "batch": (3,)}
                named = "L2" if name == "log_prior" else requirement
                if (function, name) == ("act_output", "weights"):  # undefined where a weight is 0
                    given["skip"] = arrays["weights"] == 0
                assert_close(named, what, got, want, kind="gradient", dtype=trial.dtype, **given)


for _function, _row in SLOPES.items():
    _register(_function, *_row)


@functools.lru_cache(maxsize=64)
def _others(subject: Subject, kind: str) -> Callable:
    """What examples 0 and 2 contribute, written without example 1."""
    backend = subject.backend

    def halting(function, x, y_hat, lengths):
        total = 0.0
        for remainder in subject.remainders():
            out = backend.expected_prediction(function(x, remainder=remainder, lengths=lengths), y_hat)
            total = total + out[0].sum() + out[2].sum()
        return total

    def logits(z, y_hat, lengths=None):
        return halting(backend.log_halting, z, y_hat, lengths)

    def lambdas(lam, y_hat, lengths=None):
        return halting(backend.log_halting_from_lambdas, lam, y_hat, lengths)

    def act(lam, y_hat, lengths=None):
        parts = backend.act_halting(lam)
        cost = backend.act_cost(parts.steps, parts.remainder, tau=0.5)
        out = backend.act_output(parts.weights, y_hat)
        return out[0].sum() + out[2].sum() + cost[0] + cost[2]

    return {"logits": logits, "lambdas": lambdas, "act": act}[kind]


def _register_nan(kind: str, needs: tuple[str, ...]) -> None:
    @check("B6", "independence", *needs, "value_and_grad", name=f"a NaN stays at home in gradients of {kind}")
    def run(trial: Trial) -> None:
        source = trial.seeded(6, (3,))
        x = source.logits((6, 3)) if kind == "logits" else source.inside((6, 3))
        x, y_hat = round_to(trial.dtype, x), round_to(trial.dtype, source.values((6, 3, 2)))
        lengths = (trial.subject.array("lengths", np.array([4, 6, 5]), trial.dtype),) * trial.subject.offers("H4")
        fn = _others(trial.subject, kind)
        clean = trial.subject.gradients(fn, [x, y_hat], trial.dtype, lengths)[1]
        hurt = [x.copy(), y_hat.copy()]
        hurt[0][1, 1] = hurt[1][2, 1] = np.nan
        got = trial.subject.gradients(fn, hurt, trial.dtype, lengths)[1]
        first = "halt_logits" if kind == "logits" else "lambdas"
        for name, one, other in zip((first, "y_hat"), got, clean, strict=True):
            if not np.array_equal(one[:, [0, 2]], other[:, [0, 2]]):
                sentence = f"a NaN in example 1 changed the gradient by {name} of another example"
                raise Violation(
                    "B6", f"{' and '.join(needs)}: {sentence}; {describe({first: hurt[0], 'y_hat': hurt[1]})}"
                )


_register_nan("logits", ("log_halting", "expected_prediction"))
_register_nan("lambdas", ("log_halting_from_lambdas", "expected_prediction"))
_register_nan("act", OBJECTIVES["grad_act"].needs)
