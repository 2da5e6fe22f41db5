"""CRC-32C (Castagnoli) of whole records in NumPy, and the mask that TFRecord puts on it.

The register of a CRC is linear in message and start value. So a long message is cut into lanes that go through the
tables side by side, and the lanes are joined two by two: register(a ∥ b) = shift(register(a), len b) ⊕ register(b).
"""

import functools
import struct

import numpy as np

POLYNOMIAL = 0x82F63B78  # bits reversed
LANES = 2048
SHORT = 4096  # bytes below which a plain loop is as quick
ONES = 0xFFFFFFFF


def byte_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = byte_table()


def register(data: bytes, start: int = 0) -> int:
    """The register after the bytes, one at a time."""
    for byte in data:
        start = TABLE[(start ^ byte) & 255] ^ start >> 8
    return start


@functools.cache
def half_word_tables() -> tuple[np.ndarray, np.ndarray]:
    """What the lower and the upper half of a register become after four bytes 0, `[65536]` uint32 each."""
    bytes_first = [np.array([register(b"\0\0\0\0", byte << 8 * place) for byte in range(256)]) for place in range(4)]
    low, high = (np.bitwise_xor.outer(bytes_first[i + 1], bytes_first[i]).ravel() for i in (0, 2))
    return low.astype(np.uint32), high.astype(np.uint32)


def apply(columns: np.ndarray, registers: np.ndarray) -> np.ndarray:
    """A linear map, given by its values `[32]` on single bits, on registers `[n]` uint32."""
    out = np.zeros_like(registers)
    for bit in range(32):
        out ^= columns[bit] * (registers >> np.uint32(bit) & np.uint32(1))
    return out


@functools.lru_cache(maxsize=256)
def shift(length: int) -> np.ndarray:
    """The map of a register over `length` bytes 0, as its values on single bits `[32]` uint32."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if length < 2:
        return np.array([register(b"\0" * length, int(bit)) for bit in bits], np.uint32)
    half = shift(length // 2)
    return apply(shift(length % 2), apply(half, half))


def crc32c(data: bytes) -> int:
    """The checksum of the bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(data) < SHORT:
        return register(data, ONES) ^ ONES
    steps = -(-len(data) // (4 * LANES))
    padded = np.zeros(4 * LANES * steps, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)  # bytes 0 in front leave a register of 0 as it is
    columns = np.ascontiguousarray(padded.view("<u4").astype(np.uint32, copy=False).reshape(LANES, steps).T)
    low, high = half_word_tables()
    lanes = np.zeros(LANES, np.uint32)
    for column in columns:
        lanes ^= column
        lanes = low[lanes & np.uint32(0xFFFF)] ^ high[lanes >> np.uint32(16)]
    length = 4 * steps
    while len(lanes) > 1:
        lanes = apply(shift(length), lanes[0::2]) ^ lanes[1::2]
        length *= 2
    started = apply(shift(len(data)), np.array([ONES], np.uint32))
    return int(lanes[0] ^ started[0]) ^ ONES


def masked(data: bytes) -> int:
    """The checksum as TFRecord writes it: turned right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & ONES


def masked_bytes(data: bytes) -> bytes:
    return struct.pack("<I", masked(data))
