"""The Transformer's inputs: examples by length, so that little is computed on padding (spec tasks.md, "Buckets").

Inputs are a dict of arrays. For each length L of a bucket, "words.L" has `[b, L, tokens]` integers: sentences, then the
question in the last row, rows of zeros in front of shorter inputs. "dropout.L" has the bits of the attention weights
that dropout leaves, `[steps, b, heads, L, ⌈L/8⌉]` uint8. Examples count through the buckets, shortest first: targets,
weights and ids are in this order. A chunk of K updates has K in front of every shape.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.models.transformer import Transformer

LEVELS = 1 << 16  # a weight is dropped if its 16 random bits are below rate·2¹⁶


def bucket_lengths(inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """The lengths of the buckets, shortest first."""
    return tuple(sorted(int(name.removeprefix("words.")) for name in inputs if name.startswith("words.")))


def bucket_words(stories: Sequence[Sequence[Sequence[int]]], length: int, tokens: int) -> np.ndarray:
    """Words `[b, length, tokens]` int16 of stories that end in their question; zeros in front and behind.

    >>> bucket_words([[[5, 6], [7]]], 3, 2).tolist()
    [[[0, 0], [5, 6], [7, 0]]]
    """
    words = np.zeros((len(stories), length, tokens), np.int16)
    for row, story in zip(words, stories, strict=True):
        if len(story) > length:
            raise ValueError(f"a story must have at most {length} rows with its question, got {len(story)}")
        for line, sentence in zip(row[length - len(story) :], story, strict=True):
            line[: len(sentence)] = sentence
    return words


def packed_masks(stream: str, shape: tuple[int, ...], *, rate: float, seed: int, update: int, steps: int) -> np.ndarray:
    """The attention weights `[..., keys]` that dropout leaves at each step, `[steps, ..., ⌈keys/8⌉]` uint8, bit by bit.

    Step n takes the words of Philox4x64-10 with the key (seed, CRC-32 of the stream's name) from the counter
    (0, n, keys, update) on; bits are packed along the keys, the lowest first.
    """
    checks.check_count("update", update, 0)
    keys = shape[-1]
    size, threshold = int(np.prod(shape)), round(rate * LEVELS)
    out = np.empty((steps, *shape[:-1], -(-keys // 8)), np.uint8)
    key = np.array([seed, zlib.crc32(stream.encode())], np.uint64)
    for n in range(1, steps + 1):
        counter = np.array([0, n, keys, update], np.uint64)
        random = np.random.Philox(key=key, counter=counter).random_raw(-(-size // 4)).astype("<u8").view("<u2")
        out[n - 1] = np.packbits(random[:size].reshape(shape) >= threshold, axis=-1, bitorder="little")
    return out


def dropout_bits(model: Transformer, seed: int, update: int, *, length: int, count: int, steps: int) -> np.ndarray:
    """The attention weights that dropout leaves in a bucket, `[steps, count, heads, length, ⌈length/8⌉]` uint8."""
    shape = (count, model.heads, length, length)
    return packed_masks("attention.dropout", shape, rate=model.dropout, seed=seed, update=update, steps=steps)


def dropped_share(model: Transformer | PairTransformer) -> float:
    """The share that dropout takes, in the resolution of its 16 bits: what is left is divided by 1 less this."""
    return round(model.dropout * LEVELS) / LEVELS


def with_dropout(
    model: Transformer, inputs: Mapping[str, np.ndarray], seed: int, update: int, steps: int
) -> dict[str, np.ndarray]:
    """The inputs of one update with the masks of their buckets; unchanged if the model has no dropout."""
    if model.dropout == 0:
        return dict(inputs)
    masks = {
        f"dropout.{length}": dropout_bits(
            model, seed, update, length=length, count=len(inputs[f"words.{length}"]), steps=steps
        )
        for length in bucket_lengths(inputs)
    }
    return {**inputs, **masks}


def chunk_masks(
    model: Transformer, inputs: Mapping[str, np.ndarray], seed: int, updates: Sequence[int], steps: int
) -> dict[str, np.ndarray]:
    """`with_dropout` for a chunk of updates."""
    return by_update(partial(with_dropout, model), inputs, seed, updates, steps) if model.dropout else dict(inputs)


def by_update(
    masked: Callable[..., dict[str, np.ndarray]],
    inputs: Mapping[str, np.ndarray],
    seed: int,
    updates: Sequence[int],
    steps: int,
) -> dict[str, np.ndarray]:
    """Adds the masks of each update of a chunk, by the function that makes those of one."""
    made = [masked({name: x[k] for name, x in inputs.items()}, seed, update, steps) for k, update in enumerate(updates)]
    masks = {name: np.stack([one[name] for one in made]) for name in made[0] if name not in inputs}
    return {**inputs, **masks}


def check_inputs(model: Transformer, inputs: Any, steps: int) -> None:
    """Names, shapes and dtypes of one batch that is run for so many steps; ValueError otherwise."""
    if not isinstance(inputs, Mapping) or not bucket_lengths(inputs):
        raise ValueError(f'inputs must be a dict with "words.L" for each length, got {type(inputs).__name__}')
    lengths = bucket_lengths(inputs)
    known = {f"{kind}.{length}" for kind in ("words", "dropout") for length in lengths}
    if set(inputs) - known:
        raise ValueError(
            f"inputs must have words and dropout of their buckets alone, got {sorted(set(inputs) - known)}"
        )
    for length in lengths:
        name, bits = f"words.{length}", inputs.get(f"dropout.{length}")
        checks.check_integer(name, inputs[name])
        shape = tuple(inputs[name].shape)
        if len(shape) != 3 or shape[0] < 1 or shape[1:] != (length, model.tokens):
            raise ValueError(f"{name} must have the shape [b, {length}, {model.tokens}], got {shape}")
        if length > model.sentences + 1:
            raise ValueError(f"{name} must have at most the {model.sentences + 1} rows of the model, got {length}")
        if bits is not None:
            wanted, found = (shape[0], model.heads, length, -(-length // 8)), tuple(bits.shape)
            if found[1:] != wanted or found[0] < steps:
                raise ValueError(
                    f"dropout.{length} must have the shape {(steps, *wanted)} with {steps} steps or more, got {found}"
                )
