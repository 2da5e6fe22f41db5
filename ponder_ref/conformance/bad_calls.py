"""Calls that must be refused, and calls that must not be (spec B4)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ponder_ref.conformance.compare import Violation

Call = tuple[str, str, dict[str, Any], dict[str, Any]]


def refusal(what: str, named: str, call: Callable[[], Any]) -> str:
    """The sentence of the ValueError with which a call is refused; `named` is what it should name."""
    try:
        call()
    except ValueError as error:
        return str(error)
    except Exception as error:
        raise Violation("B4", f"{what} raised {type(error).__name__}, should be a ValueError") from None
    raise Violation("B4", f"{what} raised nothing, should be a ValueError that names {named}")


COUNTS = ("step", "max_steps", "update", "total")  # whole numbers in any case
# Whole numbers in the place of floats: (function, arrays, arguments).
WHOLE_NUMBERS: tuple[tuple[str, dict, dict], ...] = (
    ("geometric_log_prior", {}, {"lambda_p": 1, "max_steps": 3}),
    ("poisson_log_prior", {}, {"rate": 2, "max_steps": 3}),
    (
        "ponder_loss",
        {"log_p": np.log([[0.25], [0.75]]), "step_losses": np.ones((2, 1)), "log_prior": np.log([0.5, 0.5])},
        {"beta": 1},
    ),
    ("quantile_steps", {"log_p": np.log([[0.25], [0.75]])}, {"q": 1}),
    ("act_cost", {"steps": np.array([2]), "remainder": np.array([0.25])}, {"tau": 1}),
    (
        "adam_update",
        {"param": np.ones(2), "grad": np.ones(2), "m": np.ones(2), "v": np.ones(2)},
        {"step": 1, "learning_rate": 1, "weight_decay": 0},
    ),
    (
        "muon_update",
        {"param": np.eye(2), "grad": np.eye(2), "m": np.eye(2)},
        {"step": 1, "learning_rate": 1, "weight_decay": 0},
    ),
    ("clip_by_global_norm", {"grads.w": np.ones(2)}, {"max_norm": 1}),
    ("schedule", {}, {"update": 2, "learning_rate": 1, "total": 5, "decay": "linear", "end": 0, "power": 1}),
)


def bad_calls() -> list[Call]:
    """(function, argument its message must name, arrays, arguments), one defect each; more in `broadcasts`."""
    z, wrong, ids = np.zeros((3, 2)), np.zeros((3, 4)), np.zeros(2, np.int64)
    prior = np.full(3, -1.0)
    calls: list[Call] = []
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
    return calls + broadcasts()


def broadcasts() -> list[Call]:
    """Shapes that do not fit but that array libraries would stretch without a word."""
    steps, column, one, three = np.zeros((3, 4)), np.zeros((3, 1)), np.zeros(1, np.int64), np.zeros(3)
    batch3, ids3, prior = np.zeros((3, 3)), np.zeros(3, np.int64), np.full(3, -1.0)
    loss, beta = {"log_p": steps, "step_losses": steps, "log_prior": prior}, {"beta": 0.1}
    param, update = {"param": steps, "grad": steps, "m": steps}, {"step": 1, "learning_rate": 0.1}
    calls: list[Call] = [
        ("expected_loss", "step_losses", {"log_p": steps, "step_losses": column}, {}),
        ("expected_loss", "step_losses", {"log_p": column, "step_losses": steps}, {}),
        ("kl_divergence", "log_prior", {"log_p": steps, "log_prior": column}, {}),
        ("kl_divergence", "log_prior", {"log_p": steps, "log_prior": np.zeros(1)}, {}),
        ("ponder_loss", "step_losses", {**loss, "step_losses": column}, beta),
        ("ponder_loss", "log_prior", {**loss, "log_prior": column}, beta),
        ("ponder_loss", "weights", {**loss, "weights": np.ones(1)}, beta),
        ("weighted_mean", "weights", {"values": three, "weights": np.ones(1)}, {}),
        ("weighted_mean", "weights", {"values": three, "weights": np.ones(())}, {}),
        ("expected_prediction", "y_hat", {"log_p": steps, "y_hat": column}, {}),
        ("log_halting", "lengths", {"halt_logits": batch3, "lengths": one + 1}, {}),
        ("log_halting_from_lambdas", "lengths", {"lambdas": batch3, "lengths": one + 1}, {}),
        ("sample_steps", "lengths", {"lambdas": batch3, "uniforms": batch3, "lengths": one + 1}, {}),
        ("sample_steps", "uniforms", {"lambdas": steps, "uniforms": column}, {}),
        ("draw_steps", "lengths", {"lambdas": batch3, "example_ids": ids3, "lengths": one + 1}, {"seed": 0}),
        ("draw_steps", "example_ids", {"lambdas": batch3, "example_ids": one}, {"seed": 0}),
        ("act_cost", "steps", {"steps": one, "remainder": three}, {"tau": 1.0}),
        ("act_output", "y_hat", {"weights": steps, "y_hat": column}, {}),
        ("muon_update", "grad", {**param, "grad": column}, update),
        ("muon_update", "m", {**param, "m": column}, update),
    ]
    calls += [("adam_update", name, {**param, "v": steps, name: column}, update) for name in ("grad", "m", "v")]
    return calls
