"""The Transformers of bAbI (spec M9) and of paired associative inference (M10), at level `module`."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.pondered import compare, compare_slopes, on_backend
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.models.transformer import Transformer

OF_STORIES = ("transformer_encode", "transformer_transition", "transformer_readout")
OF_PAIRS = ("pairs_encode", "pairs_query", "pairs_transition", "pairs_decode", "pairs_readout")
HEADS, LENGTH, TOKENS = 2, 4, 3  # heads of both; of stories
IMAGES, ROWS, WIDTH = 5, 4, 6  # of pairs
Arrays = dict[str, np.ndarray]


def _moved(trial: Trial, model: Any, spread: float) -> Arrays:
    """Initial parameters moved a little, so that keys are not queries, no bias is 0 and no scale 1."""
    rng = trial.rng()
    return {
        name: round_to(trial.dtype, x + spread * rng.normal(size=x.shape))
        for name, x in model.initial_parameters(3).items()
    }


def _compare_slopes(trial: Trial, requirement: str, what: str, params: Arrays, given: Arrays, run: Callable) -> None:
    """Slopes by every parameter of answer and logit; run(backend, parameters, given) ends with these two."""

    def objective(backend: Any, given: Any) -> Callable:
        def total(*values: Any) -> Any:
            *_, y_hat, z = run(backend, dict(zip(params, values, strict=True)), given)
            return (y_hat * y_hat).sum() + z.sum()

        return total

    arrays = list(params.values())
    _, grads = trial.subject.gradients(objective(trial.subject.backend, on_backend(trial, given)), arrays, trial.dtype)
    _, wanted = ponder_ref.value_and_grad(objective(ponder_ref, given), *arrays)
    compare_slopes(trial, requirement, what, list(params), grads, wanted)


def _story_weights(trial: Trial, layers: int) -> Arrays:
    sizes: dict[str, Any] = {"vocabulary": 5, "outputs": 3, "tokens": TOKENS, "sentences": 5, "embedding": 4}
    return _moved(trial, Transformer(**sizes, attention=4, heads=HEADS, transition=3, layers=layers, steps=2), 0.1)


def _stories(rng: np.random.Generator, batch: tuple[int, ...]) -> Arrays:
    """Words of stories of different lengths, and sentences of different numbers of words."""
    words = rng.integers(1, 6, (*batch, LENGTH, TOKENS)).astype(np.int32)
    words[..., 1, 2] = words[..., 3, 1:] = 0
    for k, index in enumerate(np.ndindex(batch)):
        words[index][: k % LENGTH] = 0
    return {"words": words}


def _run_story(backend: Any, params: Any, given: Any, steps: int = 2) -> tuple[Any, Any, Any]:
    h = backend.transformer_encode(params, given["words"])
    for n in range(1, steps + 1):
        rule = {"heads": HEADS, "kept": given.get("kept"), "dropout": 0.25}
        h = backend.transformer_transition(params, given["words"], h, n, **rule)
    return h, *backend.transformer_readout(params, h)


@check("M9", "module", *OF_STORIES, level="module")
def babi_transformer(trial: Trial) -> None:
    """Values after one step and after more than the step signals, with and without dropout, of one and two layers."""
    rng = trial.rng()
    for layers, batch, steps, masked in ((1, (4,), 1, False), (2, (2, 2), 3, True), (1, (1,), 2, True)):
        params, given = _story_weights(trial, layers), _stories(rng, batch)
        if masked:
            given["kept"] = rng.random((*batch, HEADS, LENGTH, LENGTH)) < 0.7
        got = _run_story(trial.subject.backend, on_backend(trial, params), on_backend(trial, given), steps)
        want = _run_story(ponder_ref, params, given, steps)
        real = np.asarray(given["words"].any(-1))[..., None]  # what stands in rows of padding is free
        got = (np.where(real, trial.subject.numpy("transformer_transition", got[0]), 0), *got[1:])
        for name, value, right in zip(("h", "y_hat", "halt_logit"), got, want, strict=True):
            what = f"the Transformer's {name} after step {steps}, batch {batch}, {layers} layers"
            compare(trial, "M9", what, value, right)


@check("M9", "module", *OF_STORIES, "value_and_grad", level="module")
def babi_transformer_slopes(trial: Trial) -> None:
    """Slopes by every parameter of answer and logit, which no padding reaches."""
    rng = trial.rng()
    params, given = _story_weights(trial, 1), _stories(rng, (2,))
    given["kept"] = rng.random((2, HEADS, LENGTH, LENGTH)) < 0.7
    _compare_slopes(trial, "M9", "the Transformer", params, given, _run_story)


def _pair_weights(trial: Trial, layers: int) -> Arrays:
    sizes: dict[str, Any] = {"width": WIDTH, "outputs": 3, "embedding": 4, "attention": 6, "transition": 3, "steps": 2}
    return _moved(trial, PairTransformer(**sizes, heads=HEADS, layers=layers), 0.2)


def _pairs(trial: Trial, rng: np.random.Generator, batch: tuple[int, ...], masked: bool) -> Arrays:
    """Images and where they stand; with masks for encoder, encoder with earlier states, and decoder."""
    given = {
        "images": round_to(trial.dtype, rng.normal(size=(*batch, IMAGES, WIDTH))),
        "rows": rng.integers(0, IMAGES, (*batch, ROWS, 2)).astype(np.int32),
        "query": rng.integers(0, IMAGES, (*batch, 3)).astype(np.int32),
    }
    shapes = {"first": (ROWS, ROWS), "xl": (ROWS, 2 * ROWS), "decoder": (3, ROWS + 3)}
    masks = {name: rng.random((*batch, HEADS, *shape)) < 0.7 for name, shape in shapes.items()}
    return {**given, **masks} if masked else given


def _run_pairs(backend: Any, params: Any, given: Any, steps: int, xl: bool) -> tuple[Any, ...]:
    h, earlier = backend.pairs_encode(params, given["images"], given["rows"]), None
    for n in range(1, steps + 1):
        kept = given.get("first" if earlier is None else "xl")
        rule = {"heads": HEADS, "earlier": earlier, "kept": kept, "dropout": 0.25}
        h, earlier = backend.pairs_transition(params, h, n, **rule), h if xl else None
    tokens = backend.pairs_query(params, given["images"], given["query"])
    rule = {"heads": HEADS, "kept": given.get("decoder"), "dropout": 0.25}
    decoded = backend.pairs_decode(params, h, tokens, steps, **rule)
    return h, decoded, *backend.pairs_readout(params, decoded)


@check("M10", "module", *OF_PAIRS, level="module")
def pair_transformer(trial: Trial) -> None:
    """Values after one step and after more than the step signals, with and without dropout and earlier states."""
    rng = trial.rng()
    cases = ((2, (3,), 1, False, False), (1, (2, 2), 3, True, False), (2, (1,), 3, True, True), (1, (), 2, False, True))
    for layers, batch, steps, masked, xl in cases:
        params, given = _pair_weights(trial, layers), _pairs(trial, rng, batch, masked)
        got = _run_pairs(trial.subject.backend, on_backend(trial, params), on_backend(trial, given), steps, xl)
        want = _run_pairs(ponder_ref, params, given, steps, xl)
        for name, value, right in zip(("h", "tokens", "y_hat", "halt_logit"), got, want, strict=True):
            what = f"the {name} of pairs after step {steps}, batch {batch}, {layers} layers"
            compare(trial, "M10", what, value, right)


@check("M10", "module", *OF_PAIRS, "value_and_grad", level="module")
def pair_transformer_slopes(trial: Trial) -> None:
    """Slopes by every parameter of answer and logit; earlier states have none, nor has a slot that nobody names."""
    params, given = _pair_weights(trial, 1), _pairs(trial, trial.rng(), (2,), True)
    given["images"] = np.concatenate([given["images"], np.full((2, 1, WIDTH), np.nan)], 1)
    for xl in (False, True):
        run = functools.partial(_run_pairs, steps=2, xl=xl)
        _compare_slopes(trial, "M10", "the Transformer of pairs", params, given, run)
