"""Criteria, the loss of what was pondered, its gradients, and the parity RNN (spec M5 to M8), at level `module`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.base import Pondered
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.pondered import (
    PRIOR,
    STEPS,
    WAYS,
    clear_network,
    compare,
    compare_slopes,
    on_backend,
    ponder_both,
    start,
)
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import OUTPUTS, step_with
from ponder_ref.conformance.subject import round_to
from ponder_ref.models.rnn import Rnn

WEIGHTS = {"fractions": np.array([0.5, 0.0, 1.0, 2.0]), "a mask": np.array([True, False, True, True])}


def _loss(
    backend: Any, out: Any, targets: Any, prior: Any, weights: Any, options: dict[str, Any], criterion: Any = None
) -> Any:
    prior = prior if options.get("method", "ponder") == "ponder" else None
    prices = {"beta": 0.3, "tau": 0.2}
    criterion = backend.cross_entropy if criterion is None else criterion
    return backend.training_loss(out, targets, criterion, log_prior=prior, weights=weights, **prices)


def _compare_loss(trial: Trial, what: str, got: Any, want: Any, live: np.ndarray) -> None:
    for field in want._fields:
        mask = live if field.startswith("example") else np.array(True)
        value = np.where(mask, trial.subject.numpy("training_loss", getattr(got, field)), 0)
        compare(trial, "M6", f"training_loss, {what}: {field}", value, np.where(mask, np.real(getattr(want, field)), 0))


def _register_loss(way: str) -> None:
    _, options = WAYS[way]

    @check("M6", "module", "ponder", "training_loss", "cross_entropy", level="module", name=f"loss: {way}")
    def run(trial: Trial) -> None:
        network, _ = clear_network(trial)
        got_out, want_out = ponder_both(trial, network, options)
        prior, targets = round_to(trial.dtype, PRIOR), network.targets
        for kind, weights in {**WEIGHTS, "none": None}.items():
            held_targets, held_prior = (on_backend(trial, x) for x in (targets, prior))
            share = None if weights is None else on_backend(trial, weights)
            got = _loss(trial.subject.backend, got_out, held_targets, held_prior, share, options)
            want = _loss(ponder_ref, want_out, targets, prior, weights, options)
            live = np.full(4, True) if weights is None else weights > 0
            _compare_loss(trial, f"{way}, weights: {kind}", got, want, live)


@check("M6", "module", "ponder", "training_loss", "cross_entropy", level="module")
def priors(trial: Trial) -> None:
    """A prior for each example, and none at all; both of a cut and of a whole distribution."""
    network, _ = clear_network(trial)
    own = PRIOR[:, None] + np.linspace(-0.5, 0.5, STEPS)[:, None] * np.arange(4)
    own = round_to(trial.dtype, own - np.log(np.exp(own).sum(axis=0)))
    for options in ({}, {"epsilon": 0.3}):
        got_out, want_out = ponder_both(trial, network, options)
        for kind, prior in (("an own prior", own), ("no prior", None)):
            targets, held = on_backend(trial, network.targets), None if prior is None else on_backend(trial, prior)
            got = _loss(trial.subject.backend, got_out, targets, held, None, options)
            want = _loss(ponder_ref, want_out, network.targets, prior, None, options)
            _compare_loss(trial, f"{kind}, {options}", got, want, np.full(4, True))


@check("M6", "module", "ponder", "training_loss", "squared_error", level="module")
def axes_beyond_the_batch(trial: Trial) -> None:
    """Predictions of several numbers: their losses are averaged, not summed, and not over the batch."""
    network, _ = clear_network(trial)
    targets, prior = round_to(trial.dtype, trial.rng().normal(size=(4, OUTPUTS))), round_to(trial.dtype, PRIOR)
    backend = trial.subject.backend
    for options in ({}, {"method": "act"}):
        got_out, want_out = ponder_both(trial, network, options)
        kept = prior if not options else None
        given = [None if x is None else on_backend(trial, x) for x in (targets, kept)]
        got = backend.training_loss(got_out, given[0], backend.squared_error, log_prior=given[1], beta=0.3)
        want = ponder_ref.training_loss(want_out, targets, ponder_ref.squared_error, log_prior=kept, beta=0.3)
        compare(trial, "M6", f"example_rec of two numbers, {options}", got.example_rec, want.example_rec)


@check("M6", "module", "ponder", "training_loss", level="module")
def criteria_of_one_s_own(trial: Trial) -> None:
    """The criterion is asked step by step: one that looks at its batch sees the examples of one step."""
    network, _ = clear_network(trial)
    got_out, want_out = ponder_both(trial, network, {})

    def spread(y_hat, targets):
        centred = y_hat + (y_hat[0] + y_hat[1] + y_hat[2] + y_hat[3]) * -0.25
        return centred * centred

    targets = on_backend(trial, network.targets)
    got = trial.subject.backend.training_loss(got_out, targets, spread)
    want = ponder_ref.training_loss(want_out, network.targets, spread)
    compare(trial, "M6", "example_rec of a criterion that looks at its batch", got.example_rec, want.example_rec)


@check("M6", "module", "ponder", "training_loss", "cross_entropy", level="module")
def what_lies_beyond(trial: Trial) -> None:
    """NaN in what lies beyond Nᵢ has no influence; a NaN example does not reach the others."""
    network, _ = clear_network(trial)
    got, want = ponder_both(trial, network, {"epsilon": 0.3})
    backend, numpy = trial.subject.backend, trial.subject.numpy
    y_hat = np.array(numpy("ponder", got.y_hat), np.float64)
    beyond = np.arange(1, len(y_hat) + 1)[:, None] > want.lengths
    y_hat[beyond] = np.nan
    y_hat[:, 1] = np.nan
    fields = {name: getattr(got, name) for name in ("halt_logits", "log_p", "lengths", "state", "act")}
    hurt = Pondered(on_backend(trial, y_hat), **fields)
    prior, targets = (on_backend(trial, x) for x in (round_to(trial.dtype, PRIOR), network.targets))
    value = backend.training_loss(hurt, targets, backend.cross_entropy, log_prior=prior, beta=0.3).example_rec
    right = ponder_ref.training_loss(want, network.targets, ponder_ref.cross_entropy, log_prior=PRIOR).example_rec
    others = np.array([0, 2, 3])
    compare(trial, "M6", "example_rec beside a NaN", numpy("training_loss", value)[others], np.real(right)[others])


def _batch_bound(y_hat: Any, targets: Any) -> Any:
    """A criterion of two targets that looks at its batch: what it is given of one row reaches the losses of all."""
    first, (second,) = targets["first"], targets["rest"]
    off = y_hat * second - (first[0] + first[1] + first[2] + first[3]) * 0.25 + (y_hat[0] + y_hat[1] + y_hat[3]) * 0.5
    return off * off


def _register_weightless(way: str) -> None:
    _, options = WAYS[way]
    needs = ("ponder", "training_loss", "cross_entropy", "value_and_grad")

    @check("M6", "module", *needs, level="module", name=f"rows of weight 0: {way}")
    def run(trial: Trial) -> None:
        """Predictions and targets of weight 0 are kept from the criterion: values and slopes do not depend on them."""
        network, _ = clear_network(trial)
        _, out = ponder_both(trial, network, options)
        backend, dead = trial.subject.backend, np.array([False, True, False, True])
        held = {name: on_backend(trial, np.real(getattr(out, name))) for name in ("halt_logits", "lengths")}
        held["log_p"] = None if out.log_p is None else on_backend(trial, np.real(out.log_p))
        held["act"] = None if out.act is None else type(out.act)(*(on_backend(trial, np.real(x)) for x in out.act))
        prior = on_backend(trial, round_to(trial.dtype, PRIOR))
        weights = on_backend(trial, np.where(dead, 0, [0.5, 1.0, 2.0, 1.0]))
        numbers = round_to(trial.dtype, trial.rng().normal(size=(2, 4, OUTPUTS)))

        def loss(y_hat, targets, criterion):
            given = Pondered(y_hat=y_hat, state=None, **held)
            return _loss(backend, given, targets, prior, weights, options, criterion).loss

        def by_batch(y_hat, first, second):
            return loss(y_hat, {"first": first, "rest": (second,)}, _batch_bound)

        def by_class(y_hat, targets):
            return loss(y_hat, targets, backend.cross_entropy)

        for name, fn, clean in (
            ("looks at its batch", by_batch, numbers),
            ("has classes", by_class, [network.targets]),
        ):

            def slopes(spoilt: float, wrong: int, fn=fn, clean=clean) -> tuple[np.ndarray, np.ndarray]:
                y_hat = np.where(dead[:, None], spoilt, np.real(out.y_hat))
                targets = [np.where(dead.reshape(4, *[1] * (part.ndim - 1)), wrong, part) for part in clean]
                try:
                    constants = tuple(on_backend(trial, part) for part in targets)
                    value, (slope,) = trial.subject.gradients(fn, [y_hat], trial.dtype, constants)
                except (ValueError, IndexError, RuntimeError) as error:
                    raise Violation("M6", f"training_loss, {way}, fails on targets of weight 0: {error}") from None
                return value, slope

            right = slopes(1.0, 1)
            for spoilt, wrong in ((np.nan, -100), (3.0, OUTPUTS), (-np.inf, -1)):
                got = slopes(spoilt, wrong)
                what = f"training_loss, {way}, of a criterion that {name}"
                for part, value, expected in zip(("value", "slope"), got, right, strict=True):
                    if not np.array_equal(value, expected):
                        given = f"predictions {spoilt} and targets {wrong} of weight 0"
                        raise Violation("M6", f"{what}: {given} change the {part} from {expected} to {value}")
                if got[1][:, dead].any():
                    raise Violation("M6", f"{what}: the slope by predictions of weight 0 is {got[1][:, dead]}, not 0")


def _register_gradient(way: str) -> None:
    _, options = WAYS[way]
    needs = ("ponder", "training_loss", "cross_entropy", "value_and_grad")

    @check("M7", "module", *needs, level="module", name=f"slope: {way}")
    def run(trial: Trial) -> None:
        """By every weight, by the input and by the initial state: encoders and projections are trained through them."""
        network, _ = clear_network(trial)
        names = ("a", "b", "v", "u", "c", "x", "h")
        arrays = [*network.weights.values(), network.x, network.h]
        prior = round_to(trial.dtype, PRIOR)

        def objective(backend: Any, targets: Any, prior: Any, rest: Any):
            def loss(*values):
                *weights, x, h = values
                step = step_with(dict(zip(names, weights, strict=False)))
                out = backend.ponder(step, x, {**rest, "h": h}, **{"max_steps": STEPS, **options})
                return _loss(backend, out, targets, prior, None, options).loss

            return loss

        rest = {name: value for name, value in start(network).items() if name != "h"}
        held = [on_backend(trial, part) for part in (network.targets, prior, rest)]
        _, grads = trial.subject.gradients(objective(trial.subject.backend, *held), arrays, trial.dtype)
        _, wanted = ponder_ref.value_and_grad(objective(ponder_ref, network.targets, prior, rest), *arrays)
        compare_slopes(trial, "M7", f"training_loss ({way})", names, grads, wanted)


for _way in WAYS:
    _register_loss(_way)
    _register_gradient(_way)
for _way in ("ponder", "epsilon", "repeat", "act"):
    _register_weightless(_way)


@check("M7", "module", "ponder", "value_and_grad", level="module")
def steps_that_would_explode(trial: Trial) -> None:
    """An example that has halted is not carried a step further, where its state would overflow and its slope be NaN."""
    x, h = on_backend(trial, np.array([1.0, -0.001])), on_backend(trial, np.ones(2))
    z = on_backend(trial, np.array([30.0, -30.0]))  # the first halts after two steps, the second never

    def objective(weight):
        def step(x, h):
            fourth = h * h * h * h
            h = fourth * fourth * fourth * (x * weight)  # 300, 1.6e32, and then beyond every dtype
            return h * 1e-30, h, z

        out = trial.subject.backend.ponder(step, x, h, max_steps=5, epsilon=0.05, min_steps=2)
        return (out.y_hat[0] + out.y_hat[1]).sum()

    _, (slope,) = trial.subject.gradients(objective, [np.array(300.0)], trial.dtype)
    if not np.isfinite(slope).all():
        raise Violation("M7", f"the gradient by a weight is {slope} where an example that has halted would overflow")


@check("M5", "module", "cross_entropy", "binary_cross_entropy", "squared_error", level="module")
def criteria(trial: Trial) -> None:
    """Values and slopes, of one and of two batch axes, of soft targets and of saturated logits."""
    rng, subject = trial.rng(), trial.subject
    logits = round_to(trial.dtype, np.concatenate([rng.normal(size=(4, 3)) * 3, [[1e4, -1e4, 0], [-1e4, 1e4, 90]]]))
    labels, soft = rng.integers(0, 3, 6), np.round(rng.random((6, 3)) * 8) / 8
    numbers = round_to(trial.dtype, rng.normal(size=(6, 3)))
    cases = [("cross_entropy", logits, labels), ("binary_cross_entropy", logits, soft)]
    cases += [("squared_error", numbers[::-1].copy(), numbers)]
    cases += [(name, y.reshape(2, 3, 3), t.reshape(2, 3, *t.shape[1:])) for name, y, t in cases]
    for name, y_hat, targets in cases:
        fn, right = getattr(subject.backend, name), getattr(ponder_ref, name)
        given = [on_backend(trial, x) for x in (y_hat, targets)]
        compare(trial, "M5", name, fn(*given), right(y_hat, targets))
        if subject.offers("value_and_grad") and y_hat.ndim == 2:
            _, grads = subject.gradients(lambda y, t, fn=fn: fn(y, t).sum(), [y_hat], trial.dtype, (given[1],))
            _, wanted = ponder_ref.value_and_grad(lambda y, t=targets, fn=right: fn(y, t).sum(), y_hat)
            compare_slopes(trial, "M5", name, ("y_hat",), grads, wanted)


@check("M5", "module", "cross_entropy", "binary_cross_entropy", "squared_error", level="module", dtypes=ANY_DTYPE)
def criteria_do_not_stretch(trial: Trial) -> None:
    """Shapes that would only broadcast are an error that names the targets (B4)."""
    y_hat = on_backend(trial, np.zeros((3, 2)))
    for name, targets in (
        ("cross_entropy", np.zeros((3, 1), int)),
        ("cross_entropy", np.zeros(1, int)),
        ("binary_cross_entropy", np.zeros((3, 1))),
        ("squared_error", np.zeros(2)),
    ):
        try:
            getattr(trial.subject.backend, name)(y_hat, on_backend(trial, targets))
        except ValueError as error:
            if "targets" not in str(error):
                raise Violation("M5", f"{name}: the sentence {error} does not name the targets") from None
        else:
            raise Violation("M5", f"{name} of shapes (3, 2) and {targets.shape}: no ValueError")


@check("M8", "module", "rnn_project", "rnn_transition", "rnn_readout", level="module")
def parity_rnn(trial: Trial) -> None:
    """Values of one and of several outputs, of stacked states; slopes by every parameter, the input and the state."""
    rng, subject = trial.rng(), trial.subject

    def outputs_of(backend: Any, params: Any, x: Any, h: Any) -> tuple[Any, Any, Any]:
        after = backend.rnn_transition(params, backend.rnn_project(params, x), h)
        return after, *backend.rnn_readout(params, after)

    for outputs, batch in ((1, (3,)), (3, (3,)), (1, (2, 3))):
        params = Rnn(inputs=5, hidden=4, outputs=outputs).initial_parameters(3)
        params = {name: round_to(trial.dtype, value + 0.1) for name, value in params.items()}
        x, h = (round_to(trial.dtype, rng.normal(size=(*batch, size))) for size in (5, 4))
        got = outputs_of(subject.backend, *(on_backend(trial, part) for part in (params, x, h)))
        for name, value, want in zip(
            ("h", "y_hat", "halt_logit"), got, outputs_of(ponder_ref, params, x, h), strict=True
        ):
            compare(trial, "M8", f"the RNN's {name}, {outputs} outputs, batch {batch}", value, want)
    if not subject.offers("value_and_grad"):
        return
    names, arrays = [*params, "x", "h"], [*params.values(), x, h]

    def objective(backend: Any):
        def total(*values):
            *weights, x, h = values
            after, y_hat, z = outputs_of(backend, dict(zip(params, weights, strict=True)), x, h)
            return (after * after).sum() + y_hat.sum() + (z * z).sum()

        return total

    _, grads = subject.gradients(objective(subject.backend), arrays, trial.dtype)
    _, wanted = ponder_ref.value_and_grad(objective(ponder_ref), *arrays)
    compare_slopes(trial, "M8", "the RNN", names, grads, wanted)
