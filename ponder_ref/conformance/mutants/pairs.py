"""Defects of the Transformer of paired associative inference (spec M10)."""

import numpy as np

from ponder_ref.conformance.mutants.base import Mutant, detach
from ponder_ref.models import pairs as right


def _one_application(params, h, tokens, step, *, heads, kept=None, dropout=0.0):
    return right.pairs_decode(params, h, tokens, 1, heads=heads, kept=kept, dropout=dropout)


def _memory_not_normed(params, h, tokens, step, *, heads, kept=None, dropout=0.0):
    """The memory's norm is the tokens' own."""
    swapped = {f"decoder.memory.{part}": params[f"decoder.norm1.{part}"] for part in ("scale", "bias")}
    return right.pairs_decode({**params, **swapped}, h, tokens, step, heads=heads, kept=kept, dropout=dropout)


def _earlier_forgotten(params, h, step, *, heads, earlier=None, kept=None, dropout=0.0):
    kept = None if kept is None else np.asarray(kept)[..., -h.shape[-2] :]
    return right.pairs_transition(params, h, step, heads=heads, kept=kept, dropout=dropout)


def _earlier_attached(params, h, step, *, heads, earlier=None, kept=None, dropout=0.0):
    """A gradient flows through the states of the step before."""
    added = right.signal(params, "encoder", step)
    seen = None if earlier is None else right.layer_norm(params, "encoder.norm1", earlier + added)
    return right.block(params, "encoder", h + added, seen, heads=heads, kept=kept, dropout=dropout)


def _order_lost(params, images, rows):
    """First and second image of a pair are taken for each other."""
    return right.pairs_encode(params, images, np.sort(rows, axis=-1))


def _points_at_the_left(params, tokens):
    return right.pairs_readout(params, tokens[..., [0, 1, 1], :])


def _detached_images(params, images, query):
    return right.pairs_query({**params, "embed.images": detach(params["embed.images"])}, images, query)


def _product_with_all(params, images, query):
    """Images are taken by a product with ones and zeros, in which 0·NaN is NaN."""
    embedded = right.layer_norm(params, "embed.norm", images @ params["embed.images"])
    chosen = np.asarray(query)[..., None] == np.arange(images.shape[-2])
    return chosen.astype(float) @ embedded + params["embed.roles"]


MUTANTS = tuple(
    Mutant(name, defect, "M10", replaced)
    for name, defect, replaced in (
        ("decoder-applied-once", "the decoder is applied once at every step", {"pairs_decode": _one_application}),
        ("memory-norm-shared", "states are normed as tokens are", {"pairs_decode": _memory_not_normed}),
        ("earlier-forgotten", "the states of the step before are not seen", {"pairs_transition": _earlier_forgotten}),
        ("earlier-attached", "the states of the step before have a gradient", {"pairs_transition": _earlier_attached}),
        ("pairs-without-order", "the order of a pair is lost", {"pairs_encode": _order_lost}),
        ("cue-points-left", "the right image is not looked at", {"pairs_readout": _points_at_the_left}),
        ("slots-all-mixed", "slots that nobody names reach the query", {"pairs_query": _product_with_all}),
        ("query-detached", "no gradient from the query into the embedding", {"pairs_query": _detached_images}),
    )
)
