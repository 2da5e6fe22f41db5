"""A batch of no examples is refused by every function that takes a batch (spec B4)."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ponder_ref.conformance.axes import AXES, batch_axis
from ponder_ref.conformance.bad_calls import refusal
from ponder_ref.conformance.check_shapes import Enumerated
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.exit_networks import STEPS, ids_on, sampled_table, step_on
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.pondered import STEPS as N
from ponder_ref.conformance.pondered import WAYS, clear_network, on_backend, start
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import step_with


def refused(what: str, names: Iterable[str], call: Callable[[], Any]) -> None:
    """A ValueError whose sentence names one of the arguments that are empty, and says that it has 0 of something."""
    sentence = refusal(what, f"one of {', '.join(names)}", call)
    if not re.search(rf"\b({'|'.join(names)})\b", sentence):
        raise Violation("B4", f"{what}: the message {sentence!r} does not name one of {', '.join(names)}")
    if "0" not in re.findall(r"\d+", sentence):
        raise Violation("B4", f"{what}: the message {sentence!r} does not say what was given")


def _nobody(function: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays without any of their examples; a prior that all share stays."""
    if function == "weighted_mean":
        return {name: array[:0] for name, array in arrays.items()}
    axes = {name: batch_axis(function, name, array.ndim) for name, array in arrays.items()}
    return {
        name: array if axes[name] is None else np.take(array, [], axes[name]).astype(array.dtype)
        for name, array in arrays.items()
    }


@check("B4", "signatures", dtypes=ANY_DTYPE)
def nobody_in_the_batch(trial: Trial) -> None:
    """Every function of a batch, with each of its options."""
    for function in (*AXES, "weighted_mean"):
        for number in range(4):
            arrays, arguments = MAKERS[function](Enumerated(trial, 3, (2,), number))
            arrays = _nobody(function, arrays)
            if trial.subject.takes(function, arrays, arguments):
                given = trial.subject.arguments(function, arrays, arguments, trial.dtype)
                shapes = ", ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
                names = [name for name, array in arrays.items() if 0 in array.shape]
                call = getattr(trial.subject.backend, function)
                refused(f"{function}({shapes})", names, lambda call=call, given=given: call(**given))


@check("B4", "module", "ponder", level="module", dtypes=ANY_DTYPE)
def nobody_ponders(trial: Trial) -> None:
    network, _ = clear_network(trial)
    step, x = step_with(on_backend(trial, network.weights)), on_backend(trial, network.x[:0])
    state = on_backend(trial, {name: part[:0] if part.ndim else part for name, part in start(network).items()})
    for way, (_, options) in WAYS.items():

        def call(options: dict[str, Any] = options) -> Any:
            return trial.subject.backend.ponder(step, x, state, **{"max_steps": N, **options})

        refused(f"ponder of no example, {way},", ("x", "state", "halt_logit", "y_hat"), call)


@check("B4", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def nobody_is_served(trial: Trial) -> None:
    table = sampled_table(trial.seeded(STEPS, (2,)), seed=1, count=2).rows(slice(0, 0))
    given = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    for policy in ("sample", "quantile", "fixed", "expected"):
        for options in ({}, {"slots": 2}, {"example_ids": ids_on(trial, table.ids)}):

            def call(policy: str = policy, options: dict[str, Any] = options) -> Any:
                return trial.subject.backend.predict(step_on(trial), *given, max_steps=STEPS, policy=policy, **options)

            refused(f"predict of no example, {policy}, {options}", ("x", "state", "example_ids"), call)
