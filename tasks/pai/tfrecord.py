"""TFRecord files without TensorFlow: framing with checksums, and `tf.train.Example` messages parsed by hand.

A record is its length (8 bytes), the length's checksum (4), the data and their checksum (4). The data are a protobuf
message: Example {1: Features {1: entry {1: name, 2: Feature {2: FloatList {1: ...} or 3: Int64List {1: ...}}}}}. Only
one record is held at a time.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ponder_ref.checks import quoted
from ponder_ref.runtime import files
from ponder_ref.runtime.errors import Refused

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FLOATS, INTEGERS = 2, 3  # fields of a Feature


class Malformed(ValueError):
    """A message that cannot be parsed; the sentence says where."""


def masked_bytes(data: bytes) -> bytes:
    """The checksum as TFRecord writes it: CRC-32C turned right by 15 bits, plus a constant."""
    try:
        from google_crc32c import value
    except ModuleNotFoundError:
        raise Refused(
            "released files need 'google-crc32c', which is not installed: "
            "pip install -e '.[tasks]' in a clone of pondernet installs it"
        ) from None
    crc = value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file; what goes wrong while it is used is told in a sentence."""
    with files.opened(path) as file:
        if file.read(2) == b"\x1f\x8b":
            raise Refused(f"{path} is compressed: unpack it with gunzip first")
        file.seek(0)
        yield file


def read_length(file: BinaryIO, name: Path | str, number: int) -> int | None:
    """The length of the record at the file's place, None at its end. Record numbers count from 1."""
    head = file.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise Refused(f"{name}, record {number}: cut short within its length")
    if masked_bytes(head[:8]) != head[8:]:
        raise Refused(f"{name}, record {number}: the checksum of its length is wrong")
    (length,) = struct.unpack("<Q", head[:8])
    here = file.tell()
    left = file.seek(0, os.SEEK_END) - here
    file.seek(here)
    if length + 4 > left:  # asked before anything of that size is allocated
        raise Refused(f"{name}, record {number}: cut short, {left} of {length + 4} bytes are left")
    return length


def read_data(file: BinaryIO, length: int, name: Path | str, number: int, *, check: bool = True) -> bytes:
    """The data of a record whose length was read; `check` off for those that were checked before."""
    data, checksum = file.read(length), file.read(4)
    if len(data) < length or len(checksum) < 4:
        raise Refused(f"{name}, record {number}: cut short while it was read")
    if check and masked_bytes(data) != checksum:
        raise Refused(f"{name}, record {number}: the checksum of its data is wrong")
    return data


def framing(path: Path) -> list[tuple[int, bytes]]:
    """Where each record begins, and the checksum of its data. Lengths are read and checked, data are skipped."""
    found = []
    with opened(path) as file:
        while (length := read_length(file, path, len(found) + 1)) is not None:
            begin = file.tell() - 12
            file.seek(length, os.SEEK_CUR)
            found.append((begin, file.read(4)))
    return found


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a place and the place behind it."""
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise Malformed("a number is cut short")
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & 2**64 - 1, at + place + 1
    raise Malformed("a number has more than ten bytes")


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """(field, wire type, value) of a message: numbers for varints, bytes for all others."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        field, wire = key >> 3, key & 7
        if field == 0:
            raise Malformed("a field has the number 0")
        if wire == VARINT:
            value, at = varint(data, at)
            yield field, wire, value
            continue
        if wire == BYTES:
            length, at = varint(data, at)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise Malformed(f"a field has the wire type {wire}")
        if at + length > len(data):
            raise Malformed("a field is cut short")
        yield field, wire, data[at : at + length]
        at += length


def parts(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The sub-messages in one field; other fields are skipped."""
    for field, wire, value in fields(data):
        if field == wanted:
            if wire != BYTES or isinstance(value, int):
                raise Malformed(f"field {field} is no message")
            yield value


def floats(data: memoryview) -> np.ndarray:
    """A FloatList, packed or not, `[n]` float32."""
    pieces = []
    for field, wire, value in fields(data):
        if field == 1:
            if isinstance(value, int) or wire not in (BYTES, FIXED32) or len(value) % 4:
                raise Malformed("a list of floats has a piece that is no float")
            pieces.append(value)
    # A packed list is one piece and is not copied; one join for a list that was written number by number.
    return np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), "<f4").astype(np.float32, copy=False)


def integers(data: memoryview) -> np.ndarray:
    """An Int64List, packed or not, `[n]` int64."""
    found: list[int] = []
    for field, wire, value in fields(data):
        if field == 1:
            if isinstance(value, int):
                found.append(value)
                continue
            if wire != BYTES:
                raise Malformed("a list of integers has a piece that is no integer")
            if max(value, default=0) < 128:  # all are single bytes, as sides, distances and types are
                found.extend(value)
                continue
            at = 0
            while at < len(value):
                number, at = varint(value, at)
                found.append(number)
    return np.array(found, np.uint64).view(np.int64)


def parse_example(data: bytes) -> dict[str, np.ndarray]:
    """The features of an Example that hold floats or integers, as flat arrays; a name that comes twice counts last."""
    found: dict[str, np.ndarray] = {}
    for features in parts(memoryview(data), 1):
        for entry in parts(features, 1):
            names, values = list(parts(entry, 1)), list(parts(entry, 2))
            try:
                name = str(names[-1], "utf-8") if names else ""
            except UnicodeDecodeError:
                raise Malformed("the name of a feature is no text") from None
            for feature in values[-1:]:
                for field, _, value in fields(feature):
                    if field in (FLOATS, INTEGERS):
                        if isinstance(value, int):
                            raise Malformed(f"feature {quoted(name)} is no list")
                        found[name] = floats(value) if field == FLOATS else integers(value)
    return found
