"""Defects of the Transformers of bAbI (spec M9) and of paired associative inference (M10)."""

import numpy as np

from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.models import pairs
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


def _one_application(params, h, tokens, step, *, heads, kept=None, dropout=0.0):
    return pairs.pairs_decode(params, h, tokens, 1, heads=heads, kept=kept, dropout=dropout)


def _memory_not_normed(params, h, tokens, step, *, heads, kept=None, dropout=0.0):
    """The memory's norm is the tokens' own."""
    swapped = {f"decoder.memory.{part}": params[f"decoder.norm1.{part}"] for part in ("scale", "bias")}
    return pairs.pairs_decode({**params, **swapped}, h, tokens, step, heads=heads, kept=kept, dropout=dropout)


def _earlier_forgotten(params, h, step, *, heads, earlier=None, kept=None, dropout=0.0):
    kept = None if kept is None else np.asarray(kept)[..., -h.shape[-2] :]
    return pairs.pairs_transition(params, h, step, heads=heads, kept=kept, dropout=dropout)


def _earlier_attached(params, h, step, *, heads, earlier=None, kept=None, dropout=0.0):
    """A gradient flows through the states of the step before."""
    added = pairs.signal(params, "encoder", step)
    seen = None if earlier is None else pairs.layer_norm(params, "encoder.norm1", earlier + added)
    return pairs.block(params, "encoder", h + added, seen, heads=heads, kept=kept, dropout=dropout)


def _order_lost(params, images, rows):
    """First and second image of a pair are taken for each other."""
    return pairs.pairs_encode(params, images, np.sort(rows, axis=-1))


def _points_at_the_left(params, tokens):
    return pairs.pairs_readout(params, tokens[..., [0, 1, 1], :])


def _detached_images(params, images, query):
    return pairs.pairs_query({**params, "embed.images": detach(params["embed.images"])}, images, query)


def _product_with_all(params, images, query):
    """Images are taken by a product with ones and zeros, in which 0·NaN is NaN."""
    embedded = pairs.layer_norm(params, "embed.norm", images @ params["embed.images"])
    chosen = np.asarray(query)[..., None] == np.arange(images.shape[-2])
    return chosen.astype(float) @ embedded + params["embed.roles"]


OF_STORIES = (
    ("padding-attended", "padding rows are keys", {"transformer_transition": _padding_is_attended}),
    ("dropout-not-scaled", "what is left is not divided by 1 − rate", {"transformer_transition": _not_scaled}),
    ("step-signals-run-out", "no signal beyond the last", {"transformer_transition": _signals_run_out}),
    ("one-head", "one head of the whole width", {"transformer_transition": _one_head}),
    ("positions-from-the-front", "positions count from the front", {"transformer_encode": _counted_from_the_front}),
    ("answer-of-the-mean", "the answer is read from the mean of all rows", {"transformer_readout": _averaged}),
    ("bag-of-words", "the order of words is lost", {"transformer_encode": _bag_of_words}),
    ("words-detached", "no gradient into the words", {"transformer_encode": _detached_words}),
)
OF_PAIRS = (
    ("decoder-applied-once", "the decoder is applied once at every step", {"pairs_decode": _one_application}),
    ("memory-norm-shared", "states are normed as tokens are", {"pairs_decode": _memory_not_normed}),
    ("earlier-forgotten", "the states of the step before are not seen", {"pairs_transition": _earlier_forgotten}),
    ("earlier-attached", "the states of the step before have a gradient", {"pairs_transition": _earlier_attached}),
    ("pairs-without-order", "the order of a pair is lost", {"pairs_encode": _order_lost}),
    ("cue-points-left", "the right image is not looked at", {"pairs_readout": _points_at_the_left}),
    ("slots-all-mixed", "slots that nobody names reach the query", {"pairs_query": _product_with_all}),
    ("query-detached", "no gradient from the query into the embedding", {"pairs_query": _detached_images}),
)
MUTANTS = tuple(
    Mutant(name, defect, requirement, replaced)
    for requirement, rows in (("M9", OF_STORIES), ("M10", OF_PAIRS))
    for name, defect, replaced in rows
)
