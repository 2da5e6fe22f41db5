"""Any step network pondered, its loss and its gradients (spec M1 to M8), at level `module`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation, assert_close
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.step_networks import HIDDEN, OUTPUTS, Network, make_network, step_with, step_without_input
from ponder_ref.conformance.subject import round_to
from ponder_ref.init import initial_parameters
from ponder_ref.settings import Model

STEPS = 7
PRIOR = np.log(np.arange(STEPS, 0.0, -1) / np.arange(1, STEPS + 1).sum())
# Ways to ponder, with the requirement that speaks for each.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ponder": ("M1", {}),
    "normalize": ("M1", {"remainder": "normalize"}),
    "epsilon": ("M2", {"epsilon": 0.3}),
    "epsilon, two steps at least": ("M2", {"epsilon": 0.6, "min_steps": 2, "remainder": "normalize"}),
    "repeat": ("M3", {"method": "repeat"}),
    "once": ("M3", {"method": "once"}),
    "act": ("M4", {"method": "act", "act_epsilon": 0.2, "min_steps": 3}),
}


def margin(out) -> float:
    """How far the sums that decide on Nᵢ are from their thresholds: too near, and rounding decides."""
    z = np.real(out.halt_logits)
    left, reached = np.cumsum(-np.logaddexp(0, z), axis=0), np.cumsum(1 / (1 + np.exp(-z)), axis=0)
    gaps = [np.abs(left - np.log(0.3)), np.abs(left - np.log(0.6)), np.abs(reached - 0.8)]
    return min(float(gap.min()) for gap in gaps)


def clear_network(trial: Trial, halting: float = -0.5) -> tuple[Network, Any]:
    """A seeded network without near ties, and what the reference makes of it."""
    rng = trial.rng()
    while True:
        network = make_network(rng, halting=halting)
        out = ponder_ref.ponder(step_with(network.weights), network.x, start(network), max_steps=STEPS)
        if margin(out) > 1e-3:
            return network, out


def start(network: Network) -> dict[str, np.ndarray]:
    return {"h": network.h, "taken": np.zeros(len(network.h)), "calls": np.zeros(())}


def on_backend(trial: Trial, tree: Any) -> Any:
    """Arrays of the backend in the dtype on trial, integers as they are."""
    if isinstance(tree, dict):
        return {name: on_backend(trial, part) for name, part in tree.items()}
    return trial.subject.array("", np.asarray(tree), trial.dtype)


def compare(trial: Trial, requirement: str, what: str, got: Any, want: np.ndarray, kind: str = "loss") -> None:
    want = np.asarray(np.real(want))
    size = np.full(want.shape, np.abs(want[np.isfinite(want)]).max(initial=1.0))
    kind = "exact" if want.dtype.kind in "iu" else kind
    got = trial.subject.numpy("ponder", got)
    assert_close(requirement, f"{what}[{trial.dtype}]", got, want, kind=kind, dtype=trial.dtype, terms=size)


def up_to(array: Any, count: int) -> Any:
    """The first entries of a step axis, which may be longer than the unroll (M2)."""
    return np.asarray(array)[:count]


def compare_result(trial: Trial, requirement: str, what: str, got: Any, want: Any) -> None:
    """Every field of what was pondered, as far as it has influence."""
    if tuple(got._fields) != tuple(want._fields):
        raise Violation(requirement, f"{what}: fields {tuple(got._fields)}, should be {tuple(want._fields)}")
    count, numpy = len(want.halt_logits), trial.subject.numpy
    length = len(numpy("ponder", got.halt_logits))
    if not count <= length <= STEPS:
        raise Violation(requirement, f"{what}: {length} steps in the result, should be {count} to {STEPS}")
    counts = {"calls": got.state["calls"], "taken": got.state["taken"]}
    for name, value in counts.items():
        compare(trial, requirement, f"{what}: steps {name}", value, want.state[name])
    compare(trial, requirement, f"{what}: lengths", got.lengths, want.lengths)
    used = np.arange(1, count + 1)[:, None] <= want.lengths
    for name in ("y_hat", "halt_logits"):
        value, right = up_to(numpy("ponder", getattr(got, name)), count), np.real(getattr(want, name))
        mask = used.reshape(*used.shape, *[1] * (right.ndim - 2))
        compare_numpy(trial, requirement, f"{what}: {name}", np.where(mask, value, 0), np.where(mask, right, 0))
    compare(trial, requirement, f"{what}: state", got.state["h"], want.state["h"])
    if want.act is not None:
        for field in ("weights", "steps", "remainder"):
            value, right = numpy("ponder", getattr(got.act, field)), getattr(want.act, field)
            value = up_to(value, count) if field == "weights" else value
            compare_numpy(trial, requirement, f"{what}: act.{field}", value, right)
        return
    log_p = numpy("ponder", got.log_p)
    if (log_p[count:] > -np.inf).any():
        raise Violation(requirement, f"{what}: log_p beyond step {count} is not -inf")
    compare_numpy(trial, requirement, f"{what}: log_p", log_p[:count], want.log_p)


def compare_numpy(trial: Trial, requirement: str, what: str, got: np.ndarray, want: np.ndarray) -> None:
    want = np.asarray(np.real(want))
    size = np.full(want.shape, np.abs(want[np.isfinite(want)]).max(initial=1.0))
    kind = "exact" if want.dtype.kind in "iu" else "loss"
    assert_close(requirement, f"{what}[{trial.dtype}]", got, want, kind=kind, dtype=trial.dtype, terms=size)


def ponder_both(trial: Trial, network: Network, options: dict[str, Any]) -> tuple[Any, Any]:
    """The network pondered by the backend and by the reference."""
    step = step_with(on_backend(trial, network.weights))
    given = on_backend(trial, network.x), on_backend(trial, start(network))
    got = trial.subject.backend.ponder(step, *given, max_steps=STEPS, **options)
    want = ponder_ref.ponder(step_with(network.weights), network.x, start(network), max_steps=STEPS, **options)
    return got, want


def _register_way(way: str) -> None:
    requirement, options = WAYS[way]

    @check(requirement, "module", "ponder", level="module", name=f"pondered: {way}")
    def run(trial: Trial) -> None:
        network, _ = clear_network(trial)
        got, want = ponder_both(trial, network, options)
        compare_result(trial, requirement, f"ponder, {way}", got, want)


for _way in WAYS:
    _register_way(_way)


@check("M1", "module", "ponder", level="module")
def input_in_the_state(trial: Trial) -> None:
    """step(h), without an input; and a batch without axes."""
    network, want = clear_network(trial)
    step = step_without_input(on_backend(trial, network.weights))
    state = on_backend(trial, {"x": network.x, "rest": start(network)})
    got = trial.subject.backend.ponder(step, None, state, max_steps=STEPS)
    compare_result(trial, "M1", "ponder of step(h)", got._replace(state=got.state["rest"]), want)
    weights = on_backend(trial, network.weights)
    alone = {name: value[0] if name != "calls" else value for name, value in start(network).items()}
    one = trial.subject.backend.ponder(
        step_with(weights), on_backend(trial, network.x[0]), on_backend(trial, alone), max_steps=STEPS
    )
    compare_numpy(trial, "M1", "ponder of one example", trial.subject.numpy("ponder", one.log_p), want.log_p[:, 0])


@check("M1", "module", "ponder", level="module")
def read_out_together(trial: Trial) -> None:
    """A step that returns its state alone, and a readout of it; also with ε, where each step needs its logit."""
    network, _ = clear_network(trial)

    def pondered(backend: Any, weights: Any, x: Any, h: Any, **options):
        def step(x, h):
            return h @ weights["a"] + x @ weights["b"] + h * h * 0.1

        def readout(h):
            return h @ weights["v"], (h * weights["u"]).sum(-1) + weights["c"]

        return backend.ponder(step, x, h, max_steps=STEPS, readout=readout, **options)

    given = [on_backend(trial, part) for part in (network.weights, network.x, network.h)]
    for options in ({}, {"epsilon": 0.3}):
        got = pondered(trial.subject.backend, *given, **options)
        want = pondered(ponder_ref, network.weights, network.x, network.h, **options)
        count = len(want.log_p)
        log_p = up_to(trial.subject.numpy("ponder", got.log_p), count)
        compare_numpy(trial, "M1", f"ponder with a readout, {options}: log_p", log_p, want.log_p)


@check("M2", "module", "ponder", "pondering_loss", "cross_entropy", level="module")
def batch_mates(trial: Trial) -> None:
    """An example's result is the same alone, beside others, and beside one whose state is NaN."""
    network, _ = clear_network(trial)
    options = {"epsilon": 0.3}
    together, _ = ponder_both(trial, network, options)
    broken = network._replace(x=np.where(np.arange(4)[:, None] == 1, np.nan, network.x))
    beside, _ = ponder_both(trial, broken, options)
    for i in range(4):
        cut = Network(network.weights, network.x[i : i + 1], network.h[i : i + 1], network.targets[i : i + 1])
        alone, want = ponder_both(trial, cut, options)
        count = len(want.log_p)
        for name, out, place in (("alone", alone, 0), ("together", together, i), ("beside a NaN", beside, i)):
            if name == "beside a NaN" and i == 1:
                continue
            what, numpy = f"example {i} {name}", trial.subject.numpy
            compare_numpy(trial, "M2", f"{what}: lengths", numpy("ponder", out.lengths)[place], want.lengths[0])
            log_p = up_to(numpy("ponder", out.log_p), count)[:, place]
            compare_numpy(trial, "M2", f"{what}: log_p", log_p, want.log_p[:, 0])


def _losses(backend: Any, out: Any, targets: Any, prior: Any, weights: Any, options: dict[str, Any]):
    has_prior = options.get("method", "ponder") == "ponder"
    return backend.pondering_loss(
        out, targets, backend.cross_entropy, log_prior=prior if has_prior else None, beta=0.3, tau=0.2, weights=weights
    )


def _register_loss(way: str) -> None:
    _, options = WAYS[way]

    @check("M6", "module", "ponder", "pondering_loss", "cross_entropy", level="module", name=f"loss: {way}")
    def run(trial: Trial) -> None:
        network, _ = clear_network(trial)
        got_out, want_out = ponder_both(trial, network, options)
        weights = np.array([0.5, 0.0, 1.0, 2.0])
        prior, targets = round_to(trial.dtype, PRIOR), network.targets
        given = [trial.subject.array("", part, trial.dtype) for part in (targets, prior, weights)]
        got = _losses(trial.subject.backend, got_out, *given, options)
        want = _losses(ponder_ref, want_out, targets, prior, weights, options)
        for field in want._fields:
            live = weights > 0 if field.startswith("example") else np.array(True)
            value = np.where(live, trial.subject.numpy("pondering_loss", getattr(got, field)), 0)
            right = np.where(live, np.real(getattr(want, field)), 0)
            compare_numpy(trial, "M6", f"pondering_loss, {way}: {field}", value, right)


def _register_gradient(way: str) -> None:
    _, options = WAYS[way]

    @check(
        "M7",
        "module",
        "ponder",
        "pondering_loss",
        "cross_entropy",
        "value_and_grad",
        level="module",
        name=f"slope: {way}",
    )
    def run(trial: Trial) -> None:
        network, _ = clear_network(trial)
        names = ("a", "b", "v", "u", "c")
        prior = round_to(trial.dtype, PRIOR)

        def objective(backend: Any, targets: Any, prior: Any, x: Any, state: Any):
            def loss(*weights):
                step = step_with(dict(zip(names, weights, strict=True)))
                out = backend.ponder(step, x, state, max_steps=STEPS, **options)
                return _losses(backend, out, targets, prior, None, options).loss

            return loss

        held = [trial.subject.array("", part, trial.dtype) for part in (network.targets, prior, network.x)]
        fn = objective(trial.subject.backend, *held, on_backend(trial, start(network)))
        arrays = [network.weights[name] for name in names]
        _, grads = trial.subject.gradients(fn, arrays, trial.dtype)
        right = objective(ponder_ref, network.targets, prior, network.x, start(network))
        _, wanted = ponder_ref.value_and_grad(right, *arrays)
        largest = max(np.abs(want).max() for want in wanted)
        for name, got, want in zip(names, grads, wanted, strict=True):
            what = f"the gradient of pondering_loss ({way}) by the weight {name}[{trial.dtype}]"
            noise = np.full(want.shape, largest)
            assert_close("M7", what, got, want, kind="gradient", dtype=trial.dtype, terms=noise)


for _way in WAYS:
    _register_loss(_way)
    _register_gradient(_way)


@check("M6", "module", "ponder", "pondering_loss", "squared_error", level="module")
def axes_beyond_the_batch(trial: Trial) -> None:
    """Predictions of several numbers: their losses are averaged, not summed, and not over the batch."""
    network, _ = clear_network(trial)
    got_out, want_out = ponder_both(trial, network, {})
    targets = round_to(trial.dtype, trial.rng().normal(size=(4, OUTPUTS)))
    prior = round_to(trial.dtype, PRIOR)
    backend, given = trial.subject.backend, [trial.subject.array("", x, trial.dtype) for x in (targets, prior)]
    got = backend.pondering_loss(got_out, given[0], backend.squared_error, log_prior=given[1], beta=0.3)
    want = ponder_ref.pondering_loss(want_out, targets, ponder_ref.squared_error, log_prior=prior, beta=0.3)
    compare(
        trial, "M6", "pondering_loss of predictions with two numbers: example_rec", got.example_rec, want.example_rec
    )


@check("M5", "module", "cross_entropy", "binary_cross_entropy", "squared_error", level="module")
def criteria(trial: Trial) -> None:
    rng = trial.rng()
    logits = round_to(trial.dtype, np.concatenate([rng.normal(size=(4, 3)) * 3, [[1e4, -1e4, 0], [-1e4, 1e4, 90]]]))
    labels, bits = rng.integers(0, 3, 6), rng.integers(0, 2, (6, 3)).astype(float)
    numbers = round_to(trial.dtype, rng.normal(size=(6, 3)))
    cases = (("cross_entropy", labels), ("binary_cross_entropy", bits), ("squared_error", numbers))
    for name, targets in cases:
        y_hat = numbers[::-1] if name == "squared_error" else logits
        given = [trial.subject.array("", np.ascontiguousarray(x), trial.dtype) for x in (y_hat, targets)]
        got, want = getattr(trial.subject.backend, name)(*given), getattr(ponder_ref, name)(y_hat, targets)
        compare(trial, "M5", name, got, want)
        if trial.subject.offers("value_and_grad"):
            fn, constant = getattr(trial.subject.backend, name), (given[1],)
            _, (grad,) = trial.subject.gradients(lambda y, t, fn=fn: fn(y, t).sum(), [y_hat], trial.dtype, constant)
            _, (right,) = ponder_ref.value_and_grad(
                lambda y, n=name, t=targets: getattr(ponder_ref, n)(y, t).sum(), y_hat
            )
            size = np.full(right.shape, np.abs(right).max())
            what = f"the gradient of {name}[{trial.dtype}]"
            assert_close("M5", what, grad, right, kind="gradient", dtype=trial.dtype, terms=size)


@check("M8", "module", "rnn_project", "rnn_transition", "rnn_readout", level="module")
def parity_rnn(trial: Trial) -> None:
    rng, backend = trial.rng(), trial.subject.backend
    for outputs in (1, 3):
        params = initial_parameters(Model(inputs=5, hidden=4, outputs=outputs, output="classes"), 3)
        params = {name: round_to(trial.dtype, value + 0.1) for name, value in params.items()}
        x, h = (round_to(trial.dtype, rng.normal(size=shape)) for shape in ((3, 5), (3, 4)))
        held, given_x, given_h = (on_backend(trial, part) for part in (params, x, h))
        projected = backend.rnn_project(held, given_x)
        after = backend.rnn_transition(held, projected, given_h)
        wanted = ponder_ref.rnn_transition(params, ponder_ref.rnn_project(params, x), h)
        compare(trial, "M8", "rnn_transition", after, wanted)
        for name, got, want in zip(
            ("y_hat", "halt_logit"),
            backend.rnn_readout(held, after),
            ponder_ref.rnn_readout(params, wanted),
            strict=True,
        ):
            compare(trial, "M8", f"rnn_readout with {outputs} outputs: {name}", got, want)


@check("M1", "module", "ponder", level="module")
def complaints(trial: Trial) -> None:
    """Arguments of no meaning, and a halting logit that is not one number an example."""
    network, _ = clear_network(trial)
    weights, x, h = (on_backend(trial, part) for part in (network.weights, network.x, start(network)))
    step, backend = step_with(weights), trial.subject.backend

    def column(x, state):
        y_hat, state, z = step(x, state)
        return y_hat, state, (z * 1.0).reshape(4, 1)

    def bad(**options):
        return {"max_steps": STEPS, **options}

    cases = (
        ("max_steps", step, bad(max_steps=0)),
        ("method", step, bad(method="often")),
        ("min_steps", step, bad(epsilon=0.1, min_steps=STEPS + 1)),
        ("epsilon", step, bad(epsilon=1.0)),
        ("epsilon", step, bad(epsilon=0.1, method="act")),
        ("remainder", step, bad(remainder="none")),
        ("halt_logit", column, bad()),
    )
    for name, network_step, options in cases:
        try:
            backend.ponder(network_step, x, h, **options)
        except ValueError as error:
            if name not in str(error):
                raise Violation("M1", f"ponder with {options}: the sentence {error} does not name {name}") from None
        else:
            raise Violation("M1", f"ponder with {options}: no ValueError that names {name} ({HIDDEN} states)")
