"""Compiled equals eager, and vmap equals the batch axis (spec B9, B10)."""

from typing import Any

import numpy as np

from ponder_ref.conformance.axes import MAPPED, batch_axis, result_axis
from ponder_ref.conformance.cases import log_distribution
from ponder_ref.conformance.check_gradients import ponder_arguments
from ponder_ref.conformance.compare import Violation, assert_close
from ponder_ref.conformance.makers import MAKERS, every_kind
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import expected, run_and_compare, terms
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, which a compiled function takes, and Python values, which it closes over."""
    arrays = {k: v for k, v in given.items() if hasattr(v, "shape") or isinstance(v, (tuple, dict))}
    return arrays, {k: v for k, v in given.items() if k not in arrays}


def _register_compiled(function: str) -> None:
    @check("B9", "compiled", function, "compiled", level="full", name=f"compiled {function}")
    def run(trial: Trial) -> None:
        def via(fn, given):
            arrays, static = _split(given)
            return trial.subject.backend.compiled(lambda arrays: fn(**arrays, **static))(arrays)

        for made in every_kind(trial, MAKERS[function]):
            run_and_compare(trial.subject, "B9", function, *made, trial.dtype, via=via)


for _function in MAKERS:
    if _function != "schedule":  # a host function: nothing to compile
        _register_compiled(_function)


@check("B9", "compiled", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad", "compiled", level="full")
def compiled_gradients(trial: Trial) -> None:
    backend = trial.subject.backend
    for arrays, arguments in every_kind(trial, ponder_arguments):
        arrays = {key: round_to(trial.dtype, value) for key, value in arrays.items()}
        objective = OBJECTIVES["grad_ponder_loss"].make(trial.subject, arrays, arguments, trial.dtype)
        given = [trial.subject.array("", arrays[key], trial.dtype) for key in objective.wrt]

        def slopes(z, losses, *rest, fn=objective.fn):
            return backend.value_and_grad(fn, z, losses, constants=rest)

        _, grads = backend.compiled(slopes)(*given, *objective.constants)
        for key, grad, want, noise in zip(objective.wrt, grads, objective.wanted, objective.magnitudes, strict=True):
            got = trial.subject.numpy("compiled", grad)
            what = f"the compiled gradient by {key}"
            given_to = {**arrays, **arguments}
            assert_close("B9", what, got, want, kind="gradient", dtype=trial.dtype, terms=noise, arguments=given_to)


@check(
    "B9",
    "compiled",
    *("log_halting", "halting_lengths", "ponder_loss", "expected_steps", "geometric_log_prior", "draw_steps"),
    *("quantile_steps", "act_halting", "act_cost", "adam_update", "muon_update", "value_and_grad", "compiled", "H4"),
    level="full",
    dtypes=("float32",),
)
def everything_in_one_graph(trial: Trial) -> None:
    """One function that cuts by ε, weighs the loss, differentiates, updates, draws and costs; compiled for speed."""
    backend, rng = trial.subject.backend, trial.rng()
    z, losses = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    m, v, ids = rng.normal(size=(5, 4)), np.abs(rng.normal(size=(5, 4))) + 0.5, np.arange(4)
    floats = [trial.subject.array("", round_to("float32", x), "float32") for x in (z, losses, m, v)]
    example_ids = trial.subject.array("example_ids", ids, "float32")

    def everything(z, losses, m, v, example_ids):
        lengths = backend.halting_lengths(z, epsilon=0.3, min_steps=2)
        prior = backend.geometric_log_prior(0.3, 5)

        def objective(z):
            log_p = backend.log_halting(z, lengths=lengths)
            return backend.ponder_loss(log_p, losses, prior, beta=0.1).loss

        loss, (grad,) = backend.value_and_grad(objective, z)
        adam = backend.adam_update(z, grad, m, v, step=3, learning_rate=0.1)
        muon = backend.muon_update(z, grad, m, step=3, learning_rate=0.1)
        lambdas = v / (1 + v)
        steps = backend.draw_steps(lambdas, 2**40 + 7, example_ids)
        quantile = backend.quantile_steps(backend.log_halting(z), q=0.5)
        act = backend.act_halting(lambdas)
        cost = backend.act_cost(act.steps, act.remainder, tau=0.1)
        return loss, grad, adam.param, muon.param, steps, quantile, cost

    names = ("loss", "grad", "adam", "muon", "steps", "quantile", "cost")
    given = (floats[0], floats[1], floats[2], floats[3], example_ids)
    eager = everything(*given)
    fast = backend.compiled(everything, optimize=True)(*given)
    kinds = ("loss", "gradient", "optim", "optim", "exact", "exact", "act")
    for name, kind, one, other in zip(names, kinds, eager, fast, strict=True):
        want, got = (trial.subject.numpy("compiled", x) for x in (one, other))
        size = np.full(want.shape, np.abs(want).max(initial=1.0))
        assert_close("B9", f"compiled {name}", got, want, kind=kind, dtype="float32", terms=size)


def _register_vmapped(function: str) -> None:
    @check("B10", "compiled", function, "vmapped", *("S4",) * (function == "draw_steps"), name=f"vmapped {function}")
    def run(trial: Trial) -> None:
        def via(fn, given):
            arrays, static = _split(given)
            axes = tuple(batch_axis(function, name, len(array.shape)) for name, array in arrays.items())
            mapped = trial.subject.backend.vmapped(
                lambda *xs: _plain(fn(**dict(zip(arrays, xs, strict=True)), **static)), axes
            )
            return mapped(*arrays.values())

        for made, arguments in every_kind(trial, MAKERS[function]):
            arrays = {name: round_to(trial.dtype, array) for name, array in made.items()}
            given = trial.subject.arguments(function, arrays, arguments, trial.dtype)
            mapped = via(getattr(trial.subject.backend, function), given)
            want = expected(function, arrays, arguments)
            for (field, value), got in zip(want.items(), mapped, strict=True):
                got = trial.subject.numpy("vmapped", got)
                got = np.moveaxis(got, 0, result_axis(function, field) or 0)  # results have the mapped axis first
                size = np.full(value.shape, np.abs(value[np.isfinite(value)]).max(initial=1.0))
                kind = "exact" if value.dtype.kind in "iu" else "loss"
                shown = {"dtype": trial.dtype, "terms": size, "arguments": {**arrays, **arguments}}
                assert_close("B10", f"vmapped {function}.{field}", got, value, kind=kind, **shown)


def _plain(result: Any) -> tuple:
    return tuple(result) if isinstance(result, tuple) else (result,)


for _function in MAPPED:
    _register_vmapped(_function)


def _priors_and_losses(source) -> tuple[dict, dict]:
    """Arguments of ponder_loss whose weights are positive: each example is a batch of its own."""
    arrays, arguments = MAKERS["ponder_loss"](source)
    steps, *batch = arrays["log_p"].shape
    made = {"log_p": log_distribution(source, steps, tuple(batch)), "step_losses": source.values((steps, *batch))}
    own = arrays["log_prior"].ndim > 1
    prior = np.full((steps, *batch), -np.log(steps)) - source.integers(0, 2, batch)  # another constant for each
    made["log_prior"] = prior if own else np.full(steps, -np.log(steps))
    if "weights" in arrays:
        made["weights"] = (arrays["weights"] + 1.0).astype(arrays["weights"].dtype)
    return made, arguments


@check("B10", "compiled", "ponder_loss", "vmapped")
def vmapped_loss(trial: Trial) -> None:
    """An example mapped over is a batch of its own: its loss is its own expected loss and KL, whatever its weight."""
    subject = trial.subject
    for arrays, arguments in every_kind(trial, _priors_and_losses):
        arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
        given = [subject.array(name, array, trial.dtype) for name, array in arrays.items()]

        def alone(*xs, names=tuple(arrays), arguments=arguments):
            return _plain(subject.backend.ponder_loss(**dict(zip(names, xs, strict=True)), **arguments))

        axes = tuple(batch_axis("ponder_loss", name, array.ndim) for name, array in arrays.items())
        mapped = subject.backend.vmapped(alone, axes)(*given)
        parts, size = expected("ponder_loss", arrays, arguments), terms("ponder_loss", arrays, arguments)
        rec, reg, beta = parts["example_rec"], parts["example_reg"], arguments["beta"]
        scale = size["example_rec"] + (1 + beta) * size["example_reg"]
        shown = {"kind": "loss", "dtype": trial.dtype, "terms": scale, "arguments": {**arrays, **arguments}}
        for field, want, got in zip(parts, (rec + beta * reg, rec, reg, rec, reg), mapped, strict=True):
            assert_close("B10", f"vmapped ponder_loss.{field}", subject.numpy("vmapped", got), want, **shown)


@check("B10", "compiled", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad", "vmapped")
def vmapped_gradients(trial: Trial) -> None:
    """The gradient of each example's own loss, by vmap, is the gradient of their sum."""
    backend, source = trial.subject.backend, trial.seeded(6, (3,))
    prior = np.full(6, -np.log(6.0))
    held = trial.subject.array("", prior, trial.dtype)
    for remainder in trial.subject.remainders():
        z, losses = source.logits((6, 3)), source.values((6, 3))

        def alone(z, losses, remainder=remainder):
            return backend.ponder_loss(backend.log_halting(z, remainder=remainder), losses, held, beta=0.2).loss

        def slope(z, losses, alone=alone):
            return backend.value_and_grad(alone, z, losses)[1]

        given = [trial.subject.array("", round_to(trial.dtype, x), trial.dtype) for x in (z, losses)]
        mapped = backend.vmapped(slope, (1, 1))(*given)
        arrays = {"halt_logits": z, "step_losses": losses, "log_prior": prior}
        arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
        arguments = {"beta": 0.2, "remainder": remainder}
        objective = OBJECTIVES["grad_ponder_loss"].make(trial.subject, arrays, arguments, trial.dtype)
        for key, got, want, noise in zip(objective.wrt, mapped, objective.wanted, objective.magnitudes, strict=True):
            got = np.moveaxis(trial.subject.numpy("vmapped", got), 0, 1)
            if got.shape != want.shape:
                raise Violation("B10", f"vmapped gradient by {key} has shape {got.shape}, should be {want.shape}")
            shown = {"kind": "gradient", "dtype": trial.dtype, "terms": noise * 3, "arguments": {**arrays, **arguments}}
            assert_close("B10", f"the vmapped gradient by {key}", got, want * 3, **shown)
