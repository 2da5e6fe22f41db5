"""The Transformer of paired associative inference (spec M10), at level `module`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.pondered import compare, compare_slopes, on_backend
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.models.pairs import PairTransformer

NEEDED = ("pairs_encode", "pairs_query", "pairs_transition", "pairs_decode", "pairs_readout")
HEADS, IMAGES, ROWS, WIDTH = 2, 5, 4, 6
Batch = dict[str, np.ndarray]


def _weights(trial: Trial, layers: int) -> Batch:
    """Initial parameters moved a little, so that keys are not queries, no bias is 0 and no scale 1."""
    rng = trial.rng()
    sizes: dict[str, Any] = {"width": WIDTH, "outputs": 3, "embedding": 4, "attention": 6, "transition": 3, "steps": 2}
    params = PairTransformer(**sizes, heads=HEADS, layers=layers).initial_parameters(3)
    return {name: round_to(trial.dtype, x + 0.2 * rng.normal(size=x.shape)) for name, x in params.items()}


def _inputs(trial: Trial, rng: np.random.Generator, batch: tuple[int, ...], masked: bool) -> Batch:
    """Images and where they stand; with masks for encoder, encoder with earlier states, and decoder."""
    given = {
        "images": round_to(trial.dtype, rng.normal(size=(*batch, IMAGES, WIDTH))),
        "rows": rng.integers(0, IMAGES, (*batch, ROWS, 2)).astype(np.int32),
        "query": rng.integers(0, IMAGES, (*batch, 3)).astype(np.int32),
    }
    shapes = {"first": (ROWS, ROWS), "xl": (ROWS, 2 * ROWS), "decoder": (3, ROWS + 3)}
    masks = {name: rng.random((*batch, HEADS, *shape)) < 0.7 for name, shape in shapes.items()}
    return {**given, **masks} if masked else given


def _run(backend: Any, params: Any, given: Any, steps: int, xl: bool) -> tuple[Any, ...]:
    h, earlier = backend.pairs_encode(params, given["images"], given["rows"]), None
    for n in range(1, steps + 1):
        kept = given.get("first" if earlier is None else "xl")
        rule = {"heads": HEADS, "earlier": earlier, "kept": kept, "dropout": 0.25}
        h, earlier = backend.pairs_transition(params, h, n, **rule), h if xl else None
    tokens = backend.pairs_query(params, given["images"], given["query"])
    rule = {"heads": HEADS, "kept": given.get("decoder"), "dropout": 0.25}
    decoded = backend.pairs_decode(params, h, tokens, steps, **rule)
    return h, decoded, *backend.pairs_readout(params, decoded)


@check("M10", "module", *NEEDED, level="module")
def pair_transformer(trial: Trial) -> None:
    """Values after one step and after more than the step signals, with and without dropout and earlier states."""
    rng = trial.rng()
    cases = ((2, (3,), 1, False, False), (1, (2, 2), 3, True, False), (2, (1,), 3, True, True), (1, (), 2, False, True))
    for layers, batch, steps, masked, xl in cases:
        params, given = _weights(trial, layers), _inputs(trial, rng, batch, masked)
        got = _run(trial.subject.backend, on_backend(trial, params), on_backend(trial, given), steps, xl)
        want = _run(ponder_ref, params, given, steps, xl)
        for name, value, right in zip(("h", "tokens", "y_hat", "halt_logit"), got, want, strict=True):
            what = f"the {name} of pairs after step {steps}, batch {batch}, {layers} layers"
            compare(trial, "M10", what, value, right)


@check("M10", "module", *NEEDED, "value_and_grad", level="module")
def pair_transformer_slopes(trial: Trial) -> None:
    """Slopes by every parameter of answer and logit; earlier states have none, nor has a slot that nobody names."""
    rng = trial.rng()
    params, given = _weights(trial, 1), _inputs(trial, rng, (2,), True)
    given["images"] = np.concatenate([given["images"], np.full((2, 1, WIDTH), np.nan)], 1)

    def objective(backend: Any, given: Any, xl: bool):
        def total(*values: Any) -> Any:
            *_, y_hat, z = _run(backend, dict(zip(params, values, strict=True)), given, 2, xl)
            return (y_hat * y_hat).sum() + z.sum()

        return total

    arrays, held = list(params.values()), on_backend(trial, given)
    for xl in (False, True):
        _, grads = trial.subject.gradients(objective(trial.subject.backend, held, xl), arrays, trial.dtype)
        _, wanted = ponder_ref.value_and_grad(objective(ponder_ref, given, xl), *arrays)
        compare_slopes(trial, "M10", "the Transformer of pairs", list(params), grads, wanted)
