"""Where the batch axis stands in the arguments and in the results of functions that treat examples one by one."""

from typing import NamedTuple

HALTING = {"halt_logits": 1, "lambdas": 1, "lengths": 0}
LOSSES = {"log_p": 1, "step_losses": 1, "log_prior": 1, "weights": 0}


class Axes(NamedTuple):
    """Name of an argument, or field of the result, -> its batch axis; fields that are not named are of the batch."""

    arguments: dict[str, int]
    results: dict[str, int]


AXES = {
    "log_halting": Axes(HALTING, {"result": 1}),
    "log_halting_from_lambdas": Axes(HALTING, {"result": 1}),
    "halting_lengths": Axes(HALTING, {"result": 0}),
    "expected_steps": Axes(LOSSES, {"result": 0}),
    "expected_prediction": Axes({"log_p": 1, "y_hat": 1}, {"result": 0}),
    "expected_loss": Axes(LOSSES, {"result": 0}),
    "kl_divergence": Axes(LOSSES, {"result": 0}),
    "halting_uniforms": Axes({"example_ids": 0}, {"result": 1}),
    "sample_steps": Axes({**HALTING, "uniforms": 1}, {"result": 0}),
    "draw_steps": Axes({**HALTING, "example_ids": 0}, {"result": 0}),
    "quantile_steps": Axes(LOSSES, {"result": 0}),
    "act_halting": Axes(HALTING, {"weights": 1, "steps": 0, "remainder": 0}),
    "act_cost": Axes({"steps": 0, "remainder": 0}, {"result": 0}),
    "act_output": Axes({"weights": 1, "y_hat": 1}, {"result": 0}),
    "ponder_loss": Axes({**HALTING, **LOSSES}, {"example_rec": 0, "example_reg": 0}),
}
MAPPED = tuple(function for function in AXES if function != "ponder_loss")  # every field of theirs is of an example


def batch_axis(function: str, name: str, rank: int) -> int | None:
    """Where the batch axis of an argument is, or None for a prior that all examples share."""
    return None if name == "log_prior" and rank == 1 else AXES[function].arguments[name]


def result_axis(function: str, field: str) -> int | None:
    """Where the batch axis of a field of the result is, or None for a field of the whole batch."""
    return AXES[function].results.get(field)
