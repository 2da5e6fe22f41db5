"""What the checks of level `module` share: networks without near ties, runs on both sides, and comparisons."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation, assert_close
from ponder_ref.conformance.registry import Trial
from ponder_ref.conformance.step_networks import Network, make_network, step_with
from ponder_ref.trees import map_tree

STEPS = 7
FIELDS = ("y_hat", "halt_logits", "log_p", "lengths", "state", "act")
PRIOR = np.log(np.arange(STEPS, 0.0, -1) / np.arange(1, STEPS + 1).sum())
# Ways to ponder, with the requirement that speaks for each.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ponder": ("M1", {}),
    "normalize": ("M1", {"remainder": "normalize"}),
    "one step": ("M1", {"max_steps": 1}),
    "epsilon": ("M2", {"epsilon": 0.3}),
    "epsilon, two steps at least": ("M2", {"epsilon": 0.6, "min_steps": 2, "remainder": "normalize"}),
    "repeat": ("M3", {"method": "repeat"}),
    "once": ("M3", {"method": "once"}),
    "act": ("M4", {"method": "act", "act_epsilon": 0.2, "min_steps": 3}),
}


def margin(out: Any) -> float:
    """How far the sums that decide on Nᵢ are from their thresholds: too near, and rounding decides."""
    z = np.real(out.halt_logits)
    left, reached = np.cumsum(-np.logaddexp(0, z), axis=0), np.cumsum(1 / (1 + np.exp(-z)), axis=0)
    gaps = [np.abs(left - np.log(0.3)), np.abs(left - np.log(0.6)), np.abs(reached - 0.8)]
    return min(float(gap.min()) for gap in gaps)


def start(network: Network) -> dict[str, np.ndarray]:
    """h₀ and the counters."""
    return {"h": network.h, "taken": np.zeros(network.h.shape[:-1]), "calls": np.zeros(())}


def telling(halt_logits: np.ndarray) -> bool:
    """Whether every option of WAYS has an effect on these logits, so that one that is ignored shows."""
    lengths = ponder_ref.halting_lengths(halt_logits, epsilon=0.3)
    loose, strict = (ponder_ref.act_halting(1 / (1 + np.exp(-halt_logits)), epsilon=e).steps for e in (0.2, 0.01))
    early = ponder_ref.halting_lengths(halt_logits, epsilon=0.6)
    cut = len(np.unique(lengths)) > 1 and lengths.max() < STEPS
    return bool(cut and early.min() == 1 and ((loose != strict) & (strict > 3)).any())


def clear_network(trial: Trial, batch: tuple[int, ...] = (4,)) -> tuple[Network, Any]:
    """A seeded network without near ties, on which every option has an effect, and what the reference makes of it."""
    rng = trial.rng()
    while True:
        network = make_network(rng, batch, halting=-0.5)
        out = ponder_ref.ponder(step_with(network.weights), network.x, start(network), max_steps=STEPS)
        if margin(out) > 1e-3 and (batch == () or telling(out.halt_logits)):
            return network, out


def on_backend(trial: Trial, tree: Any) -> Any:
    """Arrays of the backend in the dtype on trial, integers and booleans as they are."""
    return map_tree(lambda leaf: trial.subject.array("", np.asarray(leaf), trial.dtype), tree)


def ponder_both(trial: Trial, network: Network, options: dict[str, Any]) -> tuple[Any, Any]:
    """The network pondered by the backend and by the reference."""
    step, given = step_with(on_backend(trial, network.weights)), {"max_steps": STEPS, **options}
    got = trial.subject.backend.ponder(step, on_backend(trial, network.x), on_backend(trial, start(network)), **given)
    return got, ponder_ref.ponder(step_with(network.weights), network.x, start(network), **given)


def compare(trial: Trial, requirement: str, what: str, got: Any, want: Any) -> None:
    """A backend's array, or one that is NumPy's already, against the reference's."""
    want = np.asarray(np.real(want))
    got = got if isinstance(got, np.ndarray | np.generic) else trial.subject.numpy("ponder", got)
    size = np.full(want.shape, np.abs(want[np.isfinite(want)]).max(initial=1.0))
    kind = "exact" if want.dtype.kind in "iu" else "loss"
    assert_close(requirement, f"{what}[{trial.dtype}]", got, want, kind=kind, dtype=trial.dtype, terms=size)


def compare_slopes(trial: Trial, requirement: str, what: str, names: Any, grads: Any, wanted: Any) -> None:
    """Gradients by name, against rounding of the largest of them."""
    largest = max(float(np.abs(want).max()) for want in wanted)
    for name, got, want in zip(names, grads, wanted, strict=True):
        sentence, noise = f"the gradient of {what} by {name}[{trial.dtype}]", np.full(want.shape, largest)
        assert_close(requirement, sentence, got, want, kind="gradient", dtype=trial.dtype, terms=noise)


def compare_result(trial: Trial, requirement: str, what: str, got: Any, want: Any, *, state: Any = None) -> None:
    """Every field of what was pondered, as far as it has influence; `state` is where the counters are, if elsewhere."""
    missing = [name for name in FIELDS if not hasattr(got, name)]
    if missing:
        raise Violation(requirement, f"{what}: the result lacks {', '.join(missing)}")
    numpy, count = trial.subject.numpy, len(want.halt_logits)
    length = len(numpy("ponder", got.halt_logits))
    if not count <= length <= STEPS:
        raise Violation(requirement, f"{what}: {length} steps in the result, should be {count} to {STEPS}")
    state = got.state if state is None else state
    if isinstance(want.state, dict):
        for name in ("calls", "taken", "h"):
            compare(trial, requirement, f"{what}: state {name!r}", state[name], want.state[name])
    else:
        compare(trial, requirement, f"{what}: state", state, want.state)
    compare(trial, requirement, f"{what}: lengths", got.lengths, want.lengths)
    used = np.arange(1, count + 1).reshape(-1, *[1] * want.lengths.ndim) <= want.lengths
    for name in ("y_hat", "halt_logits"):
        value, right = numpy("ponder", getattr(got, name))[:count], np.real(getattr(want, name))
        mask = used.reshape(*used.shape, *[1] * (right.ndim - used.ndim))
        compare(trial, requirement, f"{what}: {name}", np.where(mask, value, 0), np.where(mask, right, 0))
    if want.act is not None:
        for field in ("weights", "steps", "remainder"):
            value = numpy("ponder", getattr(got.act, field))
            value = value[:count] if field == "weights" else value
            compare(trial, requirement, f"{what}: act.{field}", value, getattr(want.act, field))
        return
    log_p = numpy("ponder", got.log_p)
    if (log_p[count:] > -np.inf).any():
        raise Violation(requirement, f"{what}: log_p beyond step {count} is not -inf")
    compare(trial, requirement, f"{what}: log_p", log_p[:count], want.log_p)
