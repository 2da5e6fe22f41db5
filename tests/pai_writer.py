"""Writes TFRecord files of PAI trials. Shares no code with the reader: the checksum goes bit by bit."""

import functools
import struct

import numpy as np


@functools.cache
def crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 * (byte & 1))
    return byte


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ crc_of_byte((crc ^ byte) & 0xFF)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def number(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(tag: int, content: bytes) -> bytes:
    return number(tag << 3 | 2) + number(len(content)) + content


def feature(values: np.ndarray, packed: bool) -> bytes:
    flat = values.ravel()
    if values.dtype == np.float32:
        content = field(1, flat.astype("<f4").tobytes())
        if not packed:
            content = b"".join(b"\x0d" + struct.pack("<f", value) for value in flat)
        return field(2, content)
    if packed:
        return field(3, field(1, b"".join(number(int(value)) for value in flat)))
    return field(3, b"".join(b"\x08" + number(int(value)) for value in flat))


def example(arrays: dict[str, np.ndarray], packed: bool = True) -> bytes:
    entries = (field(1, field(1, name.encode()) + field(2, feature(values, packed))) for name, values in arrays.items())
    return field(1, b"".join(entries))


def trials(random: np.random.Generator, length: int, sequences: int = 16, width: int = 1000) -> dict[str, np.ndarray]:
    """One record as the released files have it: each sequence is asked once for each type of query."""
    images = random.normal(size=(sequences, length, width)).astype(np.float32)
    memory = np.stack([images[:, :-1], images[:, 1:]], axis=2).reshape(-1, 2, width)
    types = [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (0, 3)][: length * (length - 1) // 2]
    queries, sides, distances, kinds = [], [], [], []
    for i, (cue, match) in enumerate(types, start=1):
        for s in range(sequences):
            other = (s + int(random.integers(1, sequences))) % sequences
            side = int(random.integers(2))
            options = [images[s, match], images[other, match]]
            queries.append([images[s, cue], *(options[::-1] if side else options)])
            sides.append(side)
            distances.append(match - cue - 1)
            kinds.append(i)
    return {
        "trials": np.array(queries, np.float32),
        "memory": random.permutation(memory),
        "correct_answer": np.array(sides),
        "difficulty": np.array(distances),
        "trial_type": np.array(kinds),
    }
