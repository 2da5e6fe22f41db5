"""What the Transformers share: checks of their sizes, and dropout of attention weights (spec annex/tasks.md).

Masks are made in NumPy, so that every backend drops the same weights.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ponder_ref import checks

LEVELS = 1 << 16  # a weight is dropped if its 16 random bits are below rate·2¹⁶


class Attention:
    """Settings of a network whose blocks attend: what both dataclasses of them inherit."""

    kind: str
    output: str
    outputs: int
    attention: int
    heads: int
    layers: int
    dropout: float

    def check_sizes(self, kind: str, *counts: str) -> None:
        """Checks what both have, and that these settings are whole numbers from 1 on."""
        checks.check_choice("kind", self.kind, (kind,))
        checks.check_choice("output", self.output, ("classes",))
        for name in (*counts, "attention", "heads"):
            checks.check_count(name, getattr(self, name), 1)
        checks.check_count("layers", self.layers, 1, checks.MOST_LAYERS)
        checks.check_count("outputs", self.outputs, 2)
        if self.attention % self.heads:
            said = f"must be a multiple of heads, got {self.attention} and {self.heads}"
            raise checks.SettingError("attention", said)
        checks.check_number("dropout", self.dropout, "[0, 1)")

    def mask_shapes(self, inputs: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By the name of their input, the stream and the shape `[b, heads, queries, keys]` of a step's masks."""
        raise NotImplementedError

    def with_masks(self, inputs: Mapping[str, Any], seed: int, updates: Sequence[int], steps: int) -> dict[str, Any]:
        """The inputs of these updates, K in front of every shape, with the bits that dropout leaves."""
        chunk = ({name: x[k] for name, x in inputs.items()} for k in range(len(updates)))
        made = [with_masks(self, one, seed, update, steps) for one, update in zip(chunk, updates, strict=True)]
        return {**inputs, **{name: np.stack([one[name] for one in made]) for name in made[0] if name not in inputs}}


def with_masks(model: Attention, inputs: Mapping[str, Any], seed: int, update: int, steps: int) -> dict[str, Any]:
    """The inputs of one update with the masks of dropout; unchanged if the model has none."""
    shapes = model.mask_shapes(inputs) if model.dropout else {}
    given = {"rate": model.dropout, "seed": seed, "update": update, "steps": steps}
    return {**inputs, **{name: packed_masks(*each, **given) for name, each in shapes.items()}}


def dropped_share(model: Attention) -> float:
    """The share that dropout takes, in the resolution of its 16 bits: what is left is divided by 1 less this."""
    return round(model.dropout * LEVELS) / LEVELS


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
