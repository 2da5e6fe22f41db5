"""A call changes nothing but its result: arguments stay, nothing is remembered, compiled code reads its arguments."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.axes import AXES, batch_axis
from ponder_ref.conformance.cases import beyond
from ponder_ref.conformance.check_gradients import ponder_arguments
from ponder_ref.conformance.check_shapes import Enumerated
from ponder_ref.conformance.compare import Violation, assert_close, describe
from ponder_ref.conformance.exit_networks import EXAMPLES, STEPS, examples_of, ids_on, model_on, sampled_table, step_on
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import assert_agrees
from ponder_ref.conformance.pondered import STEPS as N
from ponder_ref.conformance.pondered import WAYS, clear_network, on_backend, start
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import step_with
from ponder_ref.conformance.subject import round_to
from ponder_ref.trees import leaves_of


class Watched:
    """Arrays as they were before a call."""

    def __init__(self, trial: Trial, what: str, **trees: Any):
        self.trial, self.what, self.trees = trial, what, trees
        self.before = {name: self._values(tree) for name, tree in trees.items()}

    def _values(self, tree: Any) -> list[np.ndarray]:
        return [
            np.array(self.trial.subject.numpy(self.what, leaf)) for leaf in leaves_of(tree) if hasattr(leaf, "shape")
        ]

    def check(self) -> None:
        for name, before in self.before.items():
            for old, new in zip(before, self._values(self.trees[name]), strict=True):
                if old.shape != new.shape or not np.array_equal(old, new, equal_nan=True):
                    changed = f"was {describe(old)}, is {describe(new)}"
                    raise Violation("B7", f"{self.what}[{self.trial.dtype}] modified its argument {name}: {changed}")


def _dirty() -> list[tuple[str, dict[str, np.ndarray], dict[str, Any]]]:
    """Calls whose arrays hold what nobody may look at, or what is looked at with care: NaN, infinities, zeros."""
    lengths = np.array([1, 3, 4])
    z = beyond(np.linspace(-2.0, 2.0, 12).reshape(4, 3), lengths, np.nan)
    lam = beyond(np.linspace(0.1, 0.9, 12).reshape(4, 3), lengths, np.inf)
    unclear = np.where(np.eye(4, 3) > 0, np.nan, np.linspace(0.1, 0.9, 12).reshape(4, 3))
    log_p = beyond(np.log(np.full((4, 3), 0.25)), lengths, -np.inf)
    losses, y_hat = beyond(np.ones((4, 3)), lengths, np.nan), beyond(np.ones((4, 3, 2)), lengths, np.inf)
    weights, prior = np.array([0.5, 0.0, 1.0]), np.full(4, -np.log(4.0))
    left_out = np.where(weights == 0, np.nan, log_p)
    ids, seed = np.array([3, 4, 5]), {"seed": 1}
    calls: list[tuple[str, dict[str, np.ndarray], dict[str, Any]]] = []
    for rule in ("last", "normalize"):
        calls.append(("log_halting", {"halt_logits": z, "lengths": lengths}, {"remainder": rule}))
        calls.append(("log_halting_from_lambdas", {"lambdas": lam, "lengths": lengths}, {"remainder": rule}))
    return [
        *calls,
        ("sample_steps", {"lambdas": unclear, "uniforms": np.full((4, 3), 0.5), "lengths": lengths}, {}),
        ("draw_steps", {"lambdas": unclear, "example_ids": ids, "lengths": lengths}, seed),
        ("sample_steps", {"lambdas": unclear, "uniforms": np.full((4, 3), 0.5)}, {}),
        ("draw_steps", {"lambdas": unclear, "example_ids": ids}, seed),
        ("expected_steps", {"log_p": log_p}, {}),
        ("expected_loss", {"log_p": log_p, "step_losses": losses}, {}),
        ("expected_prediction", {"log_p": log_p, "y_hat": y_hat}, {}),
        ("kl_divergence", {"log_p": log_p, "log_prior": prior}, {}),
        ("quantile_steps", {"log_p": log_p}, {"q": 0.9}),
        ("weighted_mean", {"values": np.where(weights == 0, np.nan, 2.0), "weights": weights}, {}),
        (
            "ponder_loss",
            {"log_p": left_out, "step_losses": losses, "log_prior": prior, "weights": weights},
            {"beta": 0.5},
        ),
        ("act_output", {"weights": np.where(np.isnan(losses), 0, 0.5), "y_hat": y_hat}, {}),
    ]


@check("B7", "signatures", dtypes=ANY_DTYPE)
def what_nobody_looks_at_is_left_alone(trial: Trial) -> None:
    """NaN and infinities that have no influence are not cleaned in the caller's arrays; nor are lengths or weights."""
    for function, arrays, arguments in _dirty():
        if trial.subject.takes(function, arrays, arguments):
            arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
            given = trial.subject.arguments(function, arrays, arguments, trial.dtype)
            watched = Watched(trial, function, **{name: given[name] for name in arrays})
            with trial.subject.blamed(function, arrays, arguments, trial.dtype):
                getattr(trial.subject.backend, function)(**given)
            watched.check()


@check("B7", "gradients", *OBJECTIVES["grad_ponder_loss"].needs, "value_and_grad", dtypes=ANY_DTYPE)
def gradients_are_of_their_own_call(trial: Trial) -> None:
    """The same call on the same arrays gives the same gradients again, and leaves the arrays alone."""
    arrays, arguments = ponder_arguments(Enumerated(trial, 6, (3,), 0), weights=False)
    arrays = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
    objective = OBJECTIVES["grad_ponder_loss"].make(trial.subject, arrays, arguments, trial.dtype)
    given = [trial.subject.array("", arrays[name], trial.dtype) for name in objective.wrt]
    watched, seen = Watched(trial, "value_and_grad", arrays=given, constants=objective.constants), []
    for _ in range(3):
        value, grads = trial.subject.backend.value_and_grad(objective.fn, *given, constants=objective.constants)
        seen.append([np.array(trial.subject.numpy("value_and_grad", part)) for part in (value, *grads)])
        watched.check()
    for name, first, *later in zip(("value", *objective.wrt), *seen, strict=True):
        for again in later:
            what = f"value_and_grad called again on the same arrays: {name}"
            size = np.full(first.shape, np.abs(first).max(initial=0.0))
            assert_close("B7", what, again, first, kind="gradient", dtype=trial.dtype, terms=size)


@check("B7", "module", "ponder", "training_loss", "cross_entropy", level="module", dtypes=ANY_DTYPE)
def pondering_leaves_its_arguments_alone(trial: Trial) -> None:
    """The input, the initial state and what the step network returned; targets, weights and prior."""
    backend = trial.subject.backend
    network, _ = clear_network(trial)
    weights = on_backend(trial, network.weights)
    for way, (_, options) in WAYS.items():
        x, state, targets = (on_backend(trial, part) for part in (network.x, start(network), network.targets))
        watched = Watched(trial, f"ponder, {way},", x=x, state=state)
        out = backend.ponder(step_with(weights), x, state, **{"max_steps": N, **options})
        watched.check()
        share = on_backend(trial, np.array([0.5, 0.0, 1.0, 2.0]))
        prior = on_backend(trial, round_to(trial.dtype, np.full(N, -np.log(N)))) if out.log_p is not None else None
        fields = {f"out.{name}": value for name, value in out._asdict().items() if value is not None}
        watched = Watched(trial, f"training_loss, {way},", targets=targets, weights=share, log_prior=prior, **fields)
        prices = {"beta": 0.3, "tau": 0.2, "log_prior": prior if options.get("method") is None else None}
        backend.training_loss(out, targets, backend.cross_entropy, weights=share, **prices)
        watched.check()


@check("B7", "module", "ponder", level="module", dtypes=ANY_DTYPE)
def pondering_remembers_nothing(trial: Trial) -> None:
    """The same step network on one input, on another of the same shape, and on the first again."""
    network, _ = clear_network(trial)
    other = network._replace(x=network.x[::-1].copy(), h=network.h * -0.5)
    for way in ("ponder", "epsilon", "act"):
        options: dict[str, Any] = {"max_steps": N, **WAYS[way][1]}
        step, right = step_with(on_backend(trial, network.weights)), step_with(network.weights)
        for what, given in (("first", network), ("second", other), ("third", network)):
            got = trial.subject.backend.ponder(
                step, on_backend(trial, given.x), on_backend(trial, start(given)), **options
            )
            want = ponder_ref.ponder(right, given.x, start(given), **options).state["h"]
            value, size = trial.subject.numpy("ponder", got.state["h"]), np.full(want.shape, np.abs(want).max())
            what = f"ponder, {way}, the {what} call with one step network: state 'h'"
            assert_close("B7", what, value, want, kind="loss", dtype=trial.dtype, terms=size)


@check("B7", "inference", "predict", level="infer", dtypes=ANY_DTYPE)
def serving_leaves_its_arguments_alone(trial: Trial) -> None:
    """The input, the initial state and the ids of `predict`; the same call gives the same again."""
    table = sampled_table(trial.seeded(STEPS, (EXAMPLES,)), seed=6)
    table.z[2], table.a[5] = np.nan, np.inf
    given = {"x": on_backend(trial, table.inputs()), "state": on_backend(trial, table.start())}
    ids, backend, seen = ids_on(trial, table.ids), trial.subject.backend, []
    watched = Watched(trial, "predict", **given, example_ids=ids)
    for _ in range(2):
        got = backend.predict(step_on(trial), *given.values(), example_ids=ids, max_steps=STEPS, seed=6, slots=3)
        seen.append([np.array(trial.subject.numpy("predict", part)) for part in (got.y_hat, got.steps)])
        watched.check()
    for name, first, again in zip(("y_hat", "steps"), *seen, strict=True):
        if not np.array_equal(first, again, equal_nan=True):
            raise Violation(
                "B7", f"predict called again gives another {name}: {describe(first)}, then {describe(again)}"
            )


@check("B7", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def streams_leave_their_examples_alone(trial: Trial) -> None:
    table = sampled_table(trial.seeded(STEPS, (EXAMPLES,)), seed=6)
    examples = examples_of(trial, table)
    watched = Watched(trial, "stream", example=examples)
    for _ in trial.subject.backend.stream(model_on(trial), examples, seed=6, slots=3):
        watched.check()


def _others(function: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Other values of the same shapes: the examples in another order, or all entries reversed."""
    if function not in AXES:
        return {name: np.ascontiguousarray(np.flip(array)) for name, array in arrays.items()}
    axes = {name: batch_axis(function, name, array.ndim) for name, array in arrays.items()}
    return {
        name: array if axes[name] is None else np.ascontiguousarray(np.roll(array, 1, axes[name]))
        for name, array in arrays.items()
    }


@check("B9", "compiled", "compiled", level="full", dtypes=ANY_DTYPE)
def compiled_code_reads_its_arguments(trial: Trial) -> None:
    """All functions compiled as one, called with some values, with others of the same shapes, and with the first."""
    subject = trial.subject
    made = {}
    for function in MAKERS:
        arrays, arguments = MAKERS[function](Enumerated(trial, 6, (3,), 1))
        if arrays and subject.takes(function, arrays, arguments):
            rounded = {name: round_to(trial.dtype, array) for name, array in arrays.items()}
            made[function] = rounded, arguments

    def everything(given: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {name: getattr(subject.backend, name)(**given[name], **made[name][1]) for name in made}

    fast = subject.backend.compiled(everything)
    first = {name: arrays for name, (arrays, _) in made.items()}
    for values in (first, {name: _others(name, arrays) for name, arrays in first.items()}, first):
        given = {name: subject.arguments(name, values[name], {}, trial.dtype) for name in made}
        results = fast(given)
        for name, (_, arguments) in made.items():
            got = subject.fields(name, results[name])
            assert_agrees("B9", name, values[name], arguments, got, trial.dtype)


@check(
    "B9",
    "compiled",
    *OBJECTIVES["grad_ponder_loss"].needs,
    "value_and_grad",
    "compiled",
    level="full",
    dtypes=ANY_DTYPE,
)
def compiled_gradients_read_their_arguments(trial: Trial) -> None:
    """The compiled gradient of one call, and then of others of the same shapes."""
    arrays, arguments = ponder_arguments(Enumerated(trial, 6, (3,), 0), weights=False)
    several = [
        {k: round_to(trial.dtype, v) for k, v in some.items()} for some in (arrays, _others("ponder_loss", arrays))
    ]
    objectives = [OBJECTIVES["grad_ponder_loss"].make(trial.subject, some, arguments, trial.dtype) for some in several]
    backend, fn = trial.subject.backend, objectives[0].fn
    fast = backend.compiled(lambda z, losses, *rest: backend.value_and_grad(fn, z, losses, constants=rest)[1])
    for values, objective in zip([*several, several[0]], [*objectives, objectives[0]], strict=True):
        given = [trial.subject.array("", values[name], trial.dtype) for name in objective.wrt]
        grads = fast(*given, *objective.constants)
        for name, grad, want, noise in zip(objective.wrt, grads, objective.wanted, objective.magnitudes, strict=True):
            got, what = trial.subject.numpy("compiled", grad), f"the compiled gradient by {name}, of several calls"
            assert_close("B9", what, got, want, kind="gradient", dtype=trial.dtype, terms=noise, arguments=values)
