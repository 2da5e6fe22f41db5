"""Any step network pondered (spec M1 to M4), at level `module`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.pondered import (
    STEPS,
    WAYS,
    clear_network,
    compare,
    compare_result,
    on_backend,
    ponder_both,
    start,
)
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check
from ponder_ref.conformance.step_networks import Network, readout, step_with, step_without_input, transition


def _register_way(way: str) -> None:
    requirement, options = WAYS[way]

    @check(requirement, "module", "ponder", level="module", name=f"pondered: {way}")
    def run(trial: Trial) -> None:
        network, _ = clear_network(trial)
        compare_result(trial, requirement, f"ponder, {way}", *ponder_both(trial, network, options))


for _way in WAYS:
    _register_way(_way)


@check("M1", "module", "ponder", level="module")
def batches_of_any_rank(trial: Trial) -> None:
    """One example without a batch axis, and a batch of two axes; with and without ε."""
    for batch in ((), (2, 3)):
        network, _ = clear_network(trial, batch)
        for options in ({}, {"epsilon": 0.3}, {"method": "act"}):
            what = f"ponder of a batch of shape {batch}, {options}"
            compare_result(trial, "M1", what, *ponder_both(trial, network, options))


@check("M1", "module", "ponder", level="module")
def input_in_the_state(trial: Trial) -> None:
    """step(h), without an input; the state is a tuple with a list and a dict inside."""
    network, _ = clear_network(trial)
    ways: tuple[dict[str, Any], ...] = ({}, {"epsilon": 0.3})
    for options in ways:
        step = step_without_input(on_backend(trial, network.weights))
        state = (on_backend(trial, network.x), [on_backend(trial, start(network))])
        got = trial.subject.backend.ponder(step, None, state, max_steps=STEPS, **options)
        want = ponder_ref.ponder(step_with(network.weights), network.x, start(network), max_steps=STEPS, **options)
        compare_result(trial, "M1", f"ponder of step(h), {options}", got, want, state=got.state[1][0])


@check("M1", "module", "ponder", level="module")
def input_trees(trial: Trial) -> None:
    """The input is whatever the step understands: here a dict of arrays."""
    network, want = clear_network(trial)
    step = step_with(on_backend(trial, network.weights))
    x = {"first": on_backend(trial, network.x * 2), "second": on_backend(trial, network.x)}
    got = trial.subject.backend.ponder(
        lambda x, h: step(x["first"] + x["second"] * -1.0, h), x, on_backend(trial, start(network)), max_steps=STEPS
    )
    compare_result(trial, "M1", "ponder of an input tree", got, want)


@check("M1", "module", "ponder", level="module")
def read_out_together(trial: Trial) -> None:
    """A step that returns its state alone, and a readout of it: in every way of pondering."""
    network, _ = clear_network(trial)
    weights, x, h = (on_backend(trial, part) for part in (network.weights, network.x, network.h))

    def pondered(backend: Any, weights: Any, x: Any, h: Any, options: dict[str, Any]):
        return backend.ponder(
            lambda x, h: transition(weights, x, h),
            x,
            h,
            readout=lambda h: readout(weights, h),
            **{"max_steps": STEPS, **options},
        )

    for way, (_, options) in WAYS.items():
        got = pondered(trial.subject.backend, weights, x, h, options)
        want = pondered(ponder_ref, network.weights, network.x, network.h, options)
        compare_result(trial, "M1", f"ponder with a readout, {way}", got, want)


@check("M1", "module", "ponder", level="module", dtypes=[d for d in ALL_DTYPES if d not in ("float64", "float32")])
def low_precision(trial: Trial) -> None:
    """A network in half precision: its logits are read as they are, log p is float32 (B8)."""
    network, _ = clear_network(trial)
    step = step_with(on_backend(trial, network.weights))
    given = on_backend(trial, network.x), on_backend(trial, start(network))
    out = trial.subject.backend.ponder(step, *given, max_steps=STEPS)
    numpy = trial.subject.numpy
    log_p = numpy("ponder", out.log_p)
    if log_p.dtype.name != "float32":
        raise Violation("M1", f"log_p of a network in {trial.dtype} is {log_p.dtype.name}, should be float32")
    want = ponder_ref.log_halting(numpy("ponder", out.halt_logits).astype(np.float64))
    compare(trial, "M1", "log_p of a network in half precision", log_p, want)


@check("M2", "module", "ponder", level="module")
def batch_mates(trial: Trial) -> None:
    """An example's result is the same alone, beside others, and beside one whose input is NaN."""
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
            compare(trial, "M2", f"{what}: lengths", numpy("ponder", out.lengths)[place], want.lengths[0])
            for field in ("log_p", "y_hat"):
                value, right = numpy("ponder", getattr(out, field))[:count, place], getattr(want, field)[:, 0]
                compare(trial, "M2", f"{what}: {field}", value, right)


@check("M1", "module", "ponder", level="module", dtypes=ANY_DTYPE)
def states_that_grow(trial: Trial) -> None:
    """A state that the first step makes out of nothing is carried on, or refused by name; no part of it is dropped."""
    network, _ = clear_network(trial)
    step, x = step_with(on_backend(trial, network.weights)), on_backend(trial, network.x)
    h = on_backend(trial, start(network))
    ways: tuple[dict[str, Any], ...] = ({}, {"epsilon": 0.3}, {"method": "act", "act_epsilon": 0.2})
    for nothing in (None, {}):
        for options in ways:
            what = f"ponder with the initial state {nothing}, {options}"
            try:
                got = trial.subject.backend.ponder(
                    lambda x, state: step(x, state or h), x, nothing, max_steps=STEPS, **options
                )
            except ValueError as error:
                if "state" not in str(error):
                    raise Violation("M1", f"{what}: the sentence {error} does not name state") from None
                continue
            want = ponder_ref.ponder(step_with(network.weights), network.x, start(network), max_steps=STEPS, **options)
            compare_result(trial, "M1", what, got, want)


@check("M1", "module", "ponder", level="module", dtypes=ANY_DTYPE)
def complaints(trial: Trial) -> None:
    """Arguments of no meaning, and a halting logit that is not one number an example."""
    network, _ = clear_network(trial)
    weights, x, h = (on_backend(trial, part) for part in (network.weights, network.x, start(network)))
    step, backend = step_with(weights), trial.subject.backend

    def column(x, state):
        y_hat, state, z = step(x, state)
        return y_hat, state, z[..., None]

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
            raise Violation("M1", f"ponder with {options}: no ValueError that names {name}")
