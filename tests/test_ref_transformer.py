"""The reference's Transformer: padding bit for bit, dropout masks as data, buckets, refusals."""

import zlib
from typing import Any

import numpy as np
import pytest
from masks import unpack_bits
from train_transformer import MODEL, make_inputs

import ponder_ref
from ponder_ref.models._attention import dropped_share, packed_masks, with_masks
from ponder_ref.models._buckets import bucket_lengths
from ponder_ref.models.transformer import Transformer


def answers(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    params = MODEL.initial_parameters(0)
    h = ponder_ref.transformer_encode(params, words)
    for n in (1, 2, 3):
        h = ponder_ref.transformer_transition(params, words, h, n, heads=MODEL.heads)
    return ponder_ref.transformer_readout(params, h)


def test_padding_has_no_influence_bit_for_bit():
    words = make_inputs(0)["words.3"]
    longer = np.pad(words, ((0, 0), (4, 0), (0, 0)))
    for one, other in zip(answers(words), answers(longer), strict=True):
        assert np.array_equal(one, other)


def test_every_row_has_influence():
    words = np.ones((1, 4, 3), np.int16)
    before = answers(words)[0]
    for row, token in ((0, 0), (1, 2), (3, 1)):
        changed = words.copy()
        changed[0, row, token] = 2
        assert not np.allclose(answers(changed)[0], before)
    assert not np.allclose(
        answers(np.array([[[1, 2, 0], [3, 0, 0]]]))[0], answers(np.array([[[2, 1, 0], [3, 0, 0]]]))[0]
    )


def dropout_bits(model: Transformer, seed: int, update: int, *, length: int, count: int, steps: int) -> np.ndarray:
    """The masks of a bucket."""
    shape = (count, model.heads, length, length)
    return packed_masks("attention.dropout", shape, rate=model.dropout, seed=seed, update=update, steps=steps)


def test_dropout_bits_are_a_function_of_seed_update_step_and_length():
    model = Transformer(dropout=0.1, heads=8)
    given = {"length": 12, "count": 5, "steps": 3}
    bits = dropout_bits(model, 1, 7, **given)
    assert bits.shape == (3, 5, 8, 12, 2) and bits.dtype == np.uint8
    kept = unpack_bits(bits, 12)
    assert np.array_equal(bits[:2], dropout_bits(model, 1, 7, length=12, count=5, steps=2))  # steps are their own
    assert np.array_equal(bits[:, :3], dropout_bits(model, 1, 7, length=12, count=3, steps=3))  # and so are examples
    others = [dropout_bits(model, 2, 7, **given), dropout_bits(model, 1, 8, **given), bits[[1, 0, 2]]]
    assert all((unpack_bits(other, 12) != kept).mean() > 0.1 for other in others)
    assert abs(kept.mean() - 0.9) < 4 * np.sqrt(0.09 / kept.size)
    # The first numbers of the stream, written out.
    key, counter = np.array([1, 0], np.uint64), np.array([0, 1, 12, 7], np.uint64)
    key[1] = zlib.crc32(b"attention.dropout")
    raw = int(np.random.Philox(key=key, counter=counter).random_raw())
    assert kept[0, 0, 0, 0, :4].tolist() == [(raw >> shift & 0xFFFF) >= 6554 for shift in (0, 16, 32, 48)]
    assert dropped_share(model) == 6554 / 65536


def test_inputs_get_masks_for_every_bucket():
    inputs = with_masks(MODEL, make_inputs(0), 0, 0, 2)
    assert bucket_lengths(inputs) == (3, 9)
    assert {name: x.shape for name, x in inputs.items() if name.startswith("dropout")} == {
        "dropout.3": (2, 4, 2, 3, 1),
        "dropout.9": (2, 3, 2, 9, 2),
    }
    assert set(with_masks(Transformer(dropout=0.0), make_inputs(0), 0, 0, 2)) == {"words.3", "words.9"}


def test_the_paper_s_sizes():
    model = Transformer()
    shapes = model.shapes()
    assert shapes["block.q"] == (128, 512) and shapes["block.hidden1.w"] == (128, 128)
    assert shapes["embed.positions"] == (321, 128) and shapes["embed.mask"] == (11, 128)
    assert model.matrices() == tuple(f"block.{name}" for name in ("q", "k", "v", "o", "hidden1.w", "out.w"))
    params = model.initial_parameters(0)
    assert {name: x.shape for name, x in params.items()} == shapes
    assert (params["final.scale"] == 1).all() and (params["final.bias"] == 0).all()
    assert abs(params["embed.mask"].mean() - 1) < 0.1 and abs(params["embed.words"].std() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("field", "value"), [("heads", 7), ("dropout", 1.0), ("outputs", 1), ("layers", 0), ("kind", "rnn")]
)
def test_settings_that_make_no_sense_are_refused(field: str, value: Any):
    with pytest.raises(ValueError, match="attention" if field == "heads" else field):
        Transformer(**{field: value})
