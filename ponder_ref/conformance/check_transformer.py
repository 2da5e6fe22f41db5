"""The Universal Transformer of the bAbI experiment (spec M9), at level `module`."""

from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.pondered import compare, compare_slopes, on_backend
from ponder_ref.conformance.registry import Trial, check
from ponder_ref.conformance.subject import round_to
from ponder_ref.models.transformer import Transformer

NEEDED = ("transformer_encode", "transformer_transition", "transformer_readout")
HEADS, LENGTH, TOKENS = 2, 4, 3


def _model(layers: int) -> Transformer:
    sizes: dict[str, Any] = {
        "vocabulary": 5,
        "outputs": 3,
        "tokens": TOKENS,
        "sentences": 5,
        "embedding": 4,
        "attention": 4,
    }
    return Transformer(**sizes, heads=HEADS, transition=3, layers=layers, steps=2)


def _weights(trial: Trial, layers: int) -> dict[str, np.ndarray]:
    """Initial parameters moved a little, so that no bias is 0 and no scale 1."""
    rng = trial.rng()
    params = _model(layers).initial_parameters(3)
    return {name: round_to(trial.dtype, x + 0.1 * rng.normal(size=x.shape)) for name, x in params.items()}


def _stories(rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
    """Words of stories of different lengths, and sentences of different numbers of words."""
    words = rng.integers(1, 6, (*batch, LENGTH, TOKENS)).astype(np.int32)
    words[..., 1, 2] = words[..., 3, 1:] = 0
    for k, index in enumerate(np.ndindex(batch)):
        words[index][: k % LENGTH] = 0
    return words


def _run(backend: Any, params: Any, words: Any, kept: Any, steps: int) -> tuple[Any, Any, Any]:
    h = backend.transformer_encode(params, words)
    for n in range(1, steps + 1):
        h = backend.transformer_transition(params, words, h, n, heads=HEADS, kept=kept, dropout=0.25)
    return h, *backend.transformer_readout(params, h)


@check("M9", "module", *NEEDED, level="module")
def babi_transformer(trial: Trial) -> None:
    """Values after one step and after more than the step signals, with and without dropout, of one and two layers."""
    rng = trial.rng()
    for layers, batch, steps, masked in ((1, (4,), 1, False), (2, (2, 2), 3, True), (1, (1,), 2, True)):
        params, words = _weights(trial, layers), _stories(rng, batch)
        kept = rng.random((*batch, HEADS, LENGTH, LENGTH)) < 0.7 if masked else None
        held, given = on_backend(trial, params), on_backend(trial, words)
        mask = None if kept is None else on_backend(trial, kept)
        got = _run(trial.subject.backend, held, given, mask, steps)
        want = _run(ponder_ref, params, words, kept, steps)
        real = np.asarray(words.any(-1))[..., None]  # what stands in rows of padding is free
        got = (np.where(real, trial.subject.numpy("transformer_transition", got[0]), 0), *got[1:])
        for name, value, right in zip(("h", "y_hat", "halt_logit"), got, want, strict=True):
            what = f"the Transformer's {name} after step {steps}, batch {batch}, {layers} layers"
            compare(trial, "M9", what, value, right)


@check("M9", "module", *NEEDED, "value_and_grad", level="module")
def babi_transformer_slopes(trial: Trial) -> None:
    """Slopes by every parameter of answer and logit, which no padding reaches."""
    rng = trial.rng()
    params, words = _weights(trial, 1), _stories(rng, (2,))
    kept = rng.random((2, HEADS, LENGTH, LENGTH)) < 0.7

    def objective(backend: Any, words: Any, kept: Any):
        def total(*values: Any) -> Any:
            _, y_hat, z = _run(backend, dict(zip(params, values, strict=True)), words, kept, 2)
            return (y_hat * y_hat).sum() + z.sum()

        return total

    held = (on_backend(trial, words), on_backend(trial, kept))
    arrays = list(params.values())
    _, grads = trial.subject.gradients(objective(trial.subject.backend, *held), arrays, trial.dtype)
    _, wanted = ponder_ref.value_and_grad(objective(ponder_ref, words, kept), *arrays)
    compare_slopes(trial, "M9", "the Transformer", list(params), grads, wanted)
