"""Dropout's packed masks, read: a helper of the tests."""

import numpy as np


def unpack_bits(bits: np.ndarray, length: int) -> np.ndarray:
    """Booleans `[..., length]` of packed bits `[..., ⌈length/8⌉]`."""
    return np.unpackbits(bits, axis=-1, count=length, bitorder="little").astype(bool)
