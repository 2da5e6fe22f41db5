"""Names, signatures, errors, and arguments left alone (spec B1, B2, B4, B7)."""

import inspect
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref import interface
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.spec_data import requirements

ALWAYS = ("H1", "H2", "L1", "L2", "L3", "L4", "B1", "B2", "B3", "B4", "B5", "B6", "B7")  # what must be offered entails
TRANSFORM_PARAMETERS = {
    "value_and_grad": ("fn", "arrays", "constants"),
    "compiled": ("fn", "optimize"),
    "vmapped": ("fn", "in_axes"),
}


@check("B1", "names", dtypes=ANY_DTYPE)
def every_name_is_there(trial: Trial) -> None:
    """Each function exists or is declared as not offered; what must be offered is; declarations name real things."""
    backend, declared = trial.subject.backend, trial.subject.not_offered
    known = {*interface.FUNCTIONS, *interface.TRANSFORMS, *requirements()}
    for name in declared:
        if name in interface.REQUIRED or name in ALWAYS:
            raise Violation("B1", f"{name} must be offered, but NOT_OFFERED lists it")
        if name not in known:
            raise Violation("B1", f"NOT_OFFERED lists {name!r}, which is neither a function nor a requirement")
    for name in (*interface.REQUIRED, *interface.FUNCTIONS, *interface.TRANSFORMS):
        if name not in declared and not callable(getattr(backend, name, None)):
            raise Violation("B1", f"{name} is missing; offer it or list it in NOT_OFFERED")
    if not isinstance(getattr(backend, "NAME", None), str):
        raise Violation("B1", f"NAME must be a string, got {getattr(backend, 'NAME', None)!r}")
    dtypes = getattr(backend, "DTYPES", None)
    if not isinstance(dtypes, tuple) or not dtypes or not set(dtypes) <= set(ALL_DTYPES):
        raise Violation("B1", f"DTYPES must be a tuple of some of {ALL_DTYPES}, got {dtypes!r}")


@check("B2", "signatures", dtypes=ANY_DTYPE)
def signatures_are_the_reference_s(trial: Trial) -> None:
    """Same parameters, kinds and defaults; further keyword parameters with defaults are allowed."""
    for name in interface.FUNCTIONS:
        if not trial.subject.offers(name):
            continue
        should = inspect.signature(getattr(ponder_ref, name)).parameters
        have = inspect.signature(getattr(trial.subject.backend, name)).parameters
        for parameter, want in should.items():
            got = have.get(parameter)
            if got is None:
                raise Violation("B2", f"{name} lacks the parameter {parameter!r}")
            if (got.kind, got.default) != (want.kind, want.default):
                raise Violation(
                    "B2", f"{name}: parameter {got} of kind {got.kind.name}, should be {want} {want.kind.name}"
                )
        plain = [p for p in have if have[p].kind is not inspect.Parameter.KEYWORD_ONLY]
        if plain != [p for p in should if should[p].kind is not inspect.Parameter.KEYWORD_ONLY]:
            raise Violation("B2", f"{name}: positional parameters {plain}, should be in the order of {list(should)}")
        for extra in set(have) - set(should):
            if have[extra].default is inspect.Parameter.empty:
                raise Violation(
                    "B2", f"{name} has a parameter {extra!r} without a default that the standard does not know"
                )


@check("B2", "signatures", dtypes=ANY_DTYPE)
def transforms_have_the_parameters_the_judge_uses(trial: Trial) -> None:
    for name, needed in TRANSFORM_PARAMETERS.items():
        if trial.subject.offers(name):
            have = tuple(inspect.signature(getattr(trial.subject.backend, name)).parameters)
            if have != needed:
                raise Violation("B2", f"{name} has the parameters {have}, should be {needed}")


def _bad_calls() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(function, argument its message must name, arrays, arguments), one defect each."""
    z, wrong, ids = np.zeros((3, 2)), np.zeros((3, 4)), np.zeros(2, np.int64)
    prior = np.full(3, -1.0)
    calls: list[tuple[str, str, dict, dict]] = []
    for function, name in (("log_halting", "halt_logits"), ("log_halting_from_lambdas", "lambdas")):
        calls += [
            (function, name, {name: np.zeros((0, 2))}, {}),
            (function, name, {name: np.zeros((3, 0))}, {}),
            (function, name, {name: np.zeros(())}, {}),
            (function, name, {name: np.zeros((3, 2), np.int64)}, {}),
            (function, "remainder", {name: z}, {"remainder": "first"}),
            (function, "lengths", {name: z, "lengths": np.ones(3, np.int64)}, {}),
            (function, "lengths", {name: z, "lengths": np.ones(2)}, {}),
        ]
    calls += [
        ("halting_lengths", "epsilon", {"halt_logits": z}, {"epsilon": e}) for e in (0.0, 1.0, -0.1, float("nan"))
    ]
    calls += [
        ("halting_lengths", "min_steps", {"halt_logits": z}, {"epsilon": 0.05, "min_steps": n}) for n in (0, 4, 1.5)
    ]
    calls += [
        ("geometric_log_prior", "lambda_p", {}, {"lambda_p": v, "max_steps": 3}) for v in (0.0, 1.5, -1.0, float("nan"))
    ]
    calls += [("geometric_log_prior", "max_steps", {}, {"lambda_p": 0.5, "max_steps": n}) for n in (0, -2, 2.5)]
    calls += [
        ("geometric_log_prior", "remainder", {}, {"lambda_p": 0.5, "max_steps": 3, "remainder": "none"}),
        ("uniform_log_prior", "max_steps", {}, {"max_steps": 0}),
        ("poisson_log_prior", "rate", {}, {"rate": 0.0, "max_steps": 3}),
        ("poisson_log_prior", "max_steps", {}, {"rate": 1.0, "max_steps": 0}),
        ("expected_steps", "log_p", {"log_p": np.zeros((0,))}, {}),
        ("expected_prediction", "y_hat", {"log_p": z, "y_hat": np.zeros((2, 3))}, {}),
        ("expected_loss", "step_losses", {"log_p": z, "step_losses": wrong}, {}),
        ("expected_loss", "log_p", {"log_p": np.zeros((3, 0)), "step_losses": np.zeros((3, 0))}, {}),
        ("kl_divergence", "log_prior", {"log_p": z, "log_prior": np.zeros(2)}, {}),
        ("weighted_mean", "weights", {"values": np.zeros(2), "weights": np.ones(3)}, {}),
        ("weighted_mean", "values", {"values": np.zeros((0,))}, {}),
        ("ponder_loss", "step_losses", {"log_p": z, "step_losses": wrong, "log_prior": prior}, {"beta": 0.1}),
        (
            "ponder_loss",
            "weights",
            {"log_p": z, "step_losses": z, "log_prior": prior, "weights": np.ones(3)},
            {"beta": 0.1},
        ),
        ("sample_steps", "uniforms", {"lambdas": z, "uniforms": wrong}, {}),
        ("draw_steps", "example_ids", {"lambdas": z, "example_ids": np.zeros(3, np.int64)}, {"seed": 0}),
        ("draw_steps", "example_ids", {"lambdas": z, "example_ids": np.zeros(2)}, {"seed": 0}),
        ("act_halting", "lambdas", {"lambdas": np.zeros((0, 2))}, {}),
        ("act_cost", "tau", {"steps": ids, "remainder": np.zeros(2)}, {"tau": -1.0}),
        ("act_cost", "steps", {"steps": np.zeros(3, np.int64), "remainder": np.zeros(2)}, {"tau": 1.0}),
        ("act_output", "y_hat", {"weights": z, "y_hat": np.zeros((2, 2))}, {}),
        ("adam_update", "grad", {"param": z, "grad": wrong, "m": z, "v": z}, {"step": 1, "learning_rate": 0.1}),
        ("adam_update", "step", {"param": z, "grad": z, "m": z, "v": z}, {"step": 0, "learning_rate": 0.1}),
        ("orthogonalize", "matrix", {"matrix": np.zeros(3)}, {}),
        (
            "muon_update",
            "param",
            {"param": np.zeros(3), "grad": np.zeros(3), "m": np.zeros(3)},
            {"step": 1, "learning_rate": 0.1},
        ),
        ("clip_by_global_norm", "max_norm", {"grads.w": z}, {"max_norm": 0.0}),
        ("schedule", "update", {}, {"update": 0, "learning_rate": 0.1, "total": 5}),
        ("schedule", "decay", {}, {"update": 1, "learning_rate": 0.1, "total": 5, "decay": "sudden"}),
    ]
    nan, param = float("nan"), {"param": z, "grad": z, "m": z}
    calls += [
        ("schedule", "warmup", {}, {"update": 1, "learning_rate": 0.1, "total": 5, "warmup": 5}),
        ("schedule", "learning_rate", {}, {"update": 1, "learning_rate": nan, "total": 5}),
        ("poisson_log_prior", "rate", {}, {"rate": -1.0, "max_steps": 3}),
        ("poisson_log_prior", "remainder", {}, {"rate": 1.0, "max_steps": 3, "remainder": "none"}),
        ("halting_uniforms", "draw", {"example_ids": ids}, {"seed": 0, "max_steps": 2, "draw": -1}),
        ("halting_uniforms", "domain", {"example_ids": ids}, {"seed": 0, "max_steps": 2, "domain": -1}),
        ("halting_uniforms", "example_ids", {"example_ids": np.zeros(2)}, {"seed": 0, "max_steps": 2}),
        ("halting_uniforms", "example_ids", {"example_ids": np.zeros(0, np.int64)}, {"seed": 0, "max_steps": 2}),
        ("draw_steps", "seed", {"lambdas": z, "example_ids": ids}, {"seed": -1}),
        ("draw_steps", "draw", {"lambdas": z, "example_ids": ids}, {"seed": 0, "draw": 4096}),
        ("draw_steps", "lengths", {"lambdas": z, "example_ids": ids, "lengths": np.ones(3, np.int64)}, {"seed": 0}),
        ("sample_steps", "lengths", {"lambdas": z, "uniforms": z, "lengths": np.ones(3, np.int64)}, {}),
        ("sample_steps", "lambdas", {"lambdas": np.zeros((3, 0)), "uniforms": np.zeros((3, 0))}, {}),
        ("act_cost", "steps", {"steps": np.zeros(2), "remainder": np.zeros(2)}, {"tau": 1.0}),
        ("act_cost", "tau", {"steps": ids, "remainder": np.zeros(2)}, {"tau": nan}),
        ("act_halting", "epsilon", {"lambdas": z}, {"epsilon": nan}),
        ("act_halting", "lambdas", {"lambdas": np.zeros((3, 2), np.int64)}, {}),
        ("clip_by_global_norm", "max_norm", {"grads.w": z}, {"max_norm": -1.0}),
        ("muon_update", "step", param, {"step": 0, "learning_rate": 0.1}),
        ("muon_update", "m", {**param, "m": wrong}, {"step": 1, "learning_rate": 0.1}),
        ("adam_update", "v", {**param, "v": wrong}, {"step": 1, "learning_rate": 0.1}),
        ("orthogonalize", "matrix", {"matrix": np.zeros((2, 2), np.int64)}, {}),
        ("kl_divergence", "log_p", {"log_p": np.zeros((3, 0)), "log_prior": prior}, {}),
        ("kl_divergence", "log_p", {"log_p": np.zeros((3, 2), np.int64), "log_prior": prior}, {}),
        ("quantile_steps", "log_p", {"log_p": np.zeros((3, 0))}, {"q": 0.5}),
        ("quantile_steps", "log_p", {"log_p": np.zeros((3, 2), np.int64)}, {"q": 0.5}),
        ("halting_lengths", "halt_logits", {"halt_logits": np.zeros((3, 0))}, {"epsilon": 0.05}),
        ("halting_lengths", "halt_logits", {"halt_logits": np.zeros((3, 2), np.int64)}, {"epsilon": 0.05}),
        ("expected_loss", "step_losses", {"log_p": z, "step_losses": np.zeros((3, 2), np.int64)}, {}),
        ("expected_prediction", "y_hat", {"log_p": z, "y_hat": np.zeros((3, 2), np.int64)}, {}),
        ("expected_steps", "log_p", {"log_p": np.zeros((3, 2), np.int64)}, {}),
        ("weighted_mean", "values", {"values": np.zeros(2, np.int64)}, {}),
        ("ponder_loss", "log_prior", {"log_p": z, "step_losses": z, "log_prior": np.zeros(4)}, {"beta": 0.1}),
        ("ponder_loss", "log_p", {"log_p": z[:, :0], "step_losses": z[:, :0], "log_prior": prior}, {"beta": 0.1}),
    ]
    for beta in (-0.1, float("nan"), float("inf")):
        calls.append(("ponder_loss", "beta", {"log_p": z, "step_losses": z, "log_prior": prior}, {"beta": beta}))
    calls += [("quantile_steps", "q", {"log_p": z}, {"q": q}) for q in (0.0, 1.1, float("nan"))]
    calls += [("act_halting", "epsilon", {"lambdas": z}, {"epsilon": e}) for e in (0.0, 1.0)]
    for name, bad in (
        ("seed", -1),
        ("seed", 2**64),
        ("max_steps", 0),
        ("max_steps", 2**16),
        ("draw", 4096),
        ("domain", 16),
    ):
        calls.append(("halting_uniforms", name, {"example_ids": ids}, {"seed": 0, "max_steps": 2, name: bad}))
    return calls


@check("B4", "signatures", dtypes=ANY_DTYPE)
def bad_arguments_are_named(trial: Trial) -> None:
    """A ValueError whose sentence names the argument, for every kind of bad input the standard lists."""
    for function, argument, arrays, arguments in _bad_calls():
        if not trial.subject.offers(function):
            continue
        given = {**{k: f"shape {v.shape} {v.dtype}" for k, v in arrays.items()}, **arguments}
        try:
            converted = trial.subject.arguments(function, arrays, arguments, trial.dtype)
            getattr(trial.subject.backend, function)(**converted)
        except ValueError as error:
            if argument not in str(error):
                raise Violation(
                    "B4", f"{function}({given}): the message {str(error)!r} does not name {argument!r}"
                ) from None
        except Exception as error:
            raise Violation(
                "B4", f"{function}({given}) raised {type(error).__name__}, should be a ValueError"
            ) from None
        else:
            raise Violation("B4", f"{function}({given}) raised nothing, should be a ValueError that names {argument!r}")


@check("B7", "signatures")
def arguments_are_left_alone(trial: Trial) -> None:
    """Every array is the same after the call as before it."""
    rng = trial.rng()
    for function, make in ((f, m) for f, m in MAKERS.items() for _ in range(3) if trial.subject.offers(f)):
        steps, batch = ((6, ()), (3, (2, 2)), (6, (3,)))[rng.integers(3)]
        arrays, arguments = make(trial.seeded(steps, batch, rng))
        arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
        given = trial.subject.arguments(function, arrays, arguments, trial.dtype)
        getattr(trial.subject.backend, function)(**given)
        for name, before in arrays.items():
            short = name.removeprefix("grads.")
            held = given["grads"][short] if name.startswith("grads.") else given[name]
            parts = held if isinstance(held, tuple) else (held,)
            after = np.stack([trial.subject.numpy(function, part) for part in parts])
            after = after if isinstance(held, tuple) else after[0]
            wrapped = before % 2**32 if short == "example_ids" else before
            if not np.array_equal(after, before, equal_nan=True) and not np.array_equal(after, wrapped):
                raise Violation("B7", f"{function} modified its argument {name}")
