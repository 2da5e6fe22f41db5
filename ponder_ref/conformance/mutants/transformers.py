"""Defects of the Universal Transformer (spec M9)."""

import numpy as np

from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.models import transformer as right


def _padding_is_attended(params, words, h, step, *, heads, kept=None, dropout=0.0):
    """Rows of padding are keys like any other."""
    everything = np.ones_like(words)
    return right.transformer_transition(params, everything, h, step, heads=heads, kept=kept, dropout=dropout)


def _not_scaled(params, words, h, step, *, heads, kept=None, dropout=0.0):
    return right.transformer_transition(params, words, h, step, heads=heads, kept=kept, dropout=0.0)


def _signals_run_out(params, words, h, step, *, heads, kept=None, dropout=0.0):
    """Steps beyond the last signal have none."""
    if step > len(params["embed.steps"]):
        params = {**params, "embed.steps": params["embed.steps"] * 0}
    return right.transformer_transition(params, words, h, step, heads=heads, kept=kept, dropout=dropout)


def _one_head(params, words, h, step, *, heads, kept=None, dropout=0.0):
    kept = None if kept is None else kept[..., :1, :, :]
    return right.transformer_transition(params, words, h, step, heads=1, kept=kept, dropout=dropout)


def _counted_from_the_front(params, words):
    """Positions begin with the first sentence, padding or not."""
    h = right.transformer_encode({**params, "embed.positions": params["embed.positions"] * 0}, words)
    return h + params["embed.positions"][: words.shape[-2]]


def _averaged(params, h):
    """Padding averaged into the answer."""
    return right.transformer_readout(params, h.mean(-2, keepdims=True))


def _bag_of_words(params, words):
    """The mask of places is forgotten."""
    return right.transformer_encode({**params, "embed.mask": np.ones_like(params["embed.mask"])}, words)


def _detached_words(params, words):
    return right.transformer_encode({**params, "embed.words": detach(params["embed.words"])}, words)


MUTANTS = tuple(
    Mutant(name, defect, "M9", replaced)
    for name, defect, replaced in (
        ("padding-attended", "padding rows are keys", {"transformer_transition": _padding_is_attended}),
        ("dropout-not-scaled", "what is left is not divided by 1 − rate", {"transformer_transition": _not_scaled}),
        ("step-signals-run-out", "no signal beyond the last", {"transformer_transition": _signals_run_out}),
        ("one-head", "one head of the whole width", {"transformer_transition": _one_head}),
        ("positions-from-the-front", "positions count from the front", {"transformer_encode": _counted_from_the_front}),
        ("answer-of-the-mean", "the answer is read from the mean of all rows", {"transformer_readout": _averaged}),
        ("bag-of-words", "the order of words is lost", {"transformer_encode": _bag_of_words}),
        ("words-detached", "no gradient into the words", {"transformer_encode": _detached_words}),
    )
)
