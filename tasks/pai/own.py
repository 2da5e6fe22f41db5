"""The task from one's own embedded images: `--embeddings FILE.npy --labels FILE.npy`.

Embeddings are `[images, width]` floats, labels `[images]` integers. Images of each class go to training, validation and
test as 10 : 1 : 2, the paper's shares, with at least one in each; which one goes where depends on the files alone, so
that runs with different seeds are tested on the same images.

Everything is checked when the files are opened, every number too (about a second for each gigabyte, or as long as the
disk takes), so that no training ends at an image that is drawn late.
"""

import hashlib
import math
import os
import re
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.files import opened
from tasks.batches import words
from tasks.pai.images import STREAM

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # as NumPy has it
HEADER = {
    "descr": r"""['"]([<>|=]?[a-zA-Z?][0-9]{0,4})['"]""",
    "fortran_order": "(True|False)",
    "shape": r"\(((?:\s*[0-9]{1,15}\s*,)*(?:\s*[0-9]{1,15})?\s*)\)",
}
MAX_IMAGES = 10**8  # labels are held in memory, images are not
SHARES = {"train": 10, "valid": 1, "test": 2}
BLOCK = 2**22  # numbers looked at together: some thousand images


def read_header(file: BinaryIO, path: Path) -> tuple[np.dtype, Literal["C", "F"], tuple[int, ...]]:
    """Dtype, order and shape of a .npy file whose magic bytes were read. The header is matched, and not evaluated."""
    version = file.read(2)
    length = int.from_bytes(file.read(2 if version[:1] == b"\1" else 4), "little")
    text = file.read(length).decode("latin-1") if length <= MAX_HEADER else ""
    found = {
        name: re.search(f"""['"]{name}['"]\\s*:\\s*{value}\\s*,?""", text, re.ASCII) for name, value in HEADER.items()
    }
    rest = text
    for match in found.values():
        rest = rest.replace(match[0], "", 1) if match else "odd"
    if re.fullmatch(r"\{\s*\}\s*", rest) is None:
        raise Refused(f"{path} is not a whole .npy file of numbers")
    descr, order, numbers = (match[1] for match in found.values() if match)
    try:
        dtype = np.dtype(descr)
    except TypeError:
        raise Refused(f"{path} is not a whole .npy file of numbers") from None
    shape = tuple(map(int, re.findall("[0-9]+", numbers)))
    return dtype, "F" if order == "True" else "C", shape


def load(path: Path, flag: str, kinds: str, dimensions: int) -> np.ndarray:
    """The array of a file, mapped and not read. Nothing is unpickled."""
    try:
        with opened(path) as file:
            if file.read(len(MAGIC)) != MAGIC:  # an archive, or text, or a pickle
                raise Refused(f"{path} is not a .npy file")
            dtype, order, shape = read_header(file, path)
            if len(shape) != dimensions or dtype.kind not in kinds:
                what = "numbers [images, width]" if dimensions == 2 else "integers [images]"
                raise Refused(f"{path} must hold {what}, got {dtype} {list(shape)}")
            size = os.fstat(file.fileno()).st_size - file.tell()
            if math.prod(shape) * dtype.itemsize > size:
                raise Refused(f"{path} is not a whole .npy file of numbers")
            if not math.prod(shape):  # nothing can be mapped
                return np.empty(shape, dtype, order)
            return np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape, order=order)
    except Refused as error:
        raise Refused(f"{flag}: {error}") from None


def first_not_finite(array: np.ndarray) -> int | None:
    """The first row of `[images, width]` with a number that is not finite in float32; a block is held at a time."""
    rows = max(1, BLOCK // array.shape[1])
    for start in range(0, len(array), rows):
        with np.errstate(over="ignore"):  # a double too large for float32 becomes infinite
            good = np.isfinite(np.asarray(array[start : start + rows], np.float32)).all(axis=1)
        if not good.all():
            return start + int(np.argmin(good))
    return None


def split_sizes(count: int) -> dict[str, int]:
    """How many of a class's images go where.

    >>> split_sizes(1300)
    {'train': 1000, 'valid': 100, 'test': 200}
    """
    valid, test = (max(1, count * SHARES[name] // sum(SHARES.values())) for name in ("valid", "test"))
    return {"train": count - valid - test, "valid": valid, "test": test}


class Own:
    """Images from two files, as a `tasks.pai.data.Source`. Classes are numbered in the order of their labels."""

    def __init__(self, embeddings: Path, labels: Path):
        self.array = load(embeddings, "--embeddings", "f", 2)
        given = np.asarray(load(labels, "--labels", "iu", 1))
        if len(given) != len(self.array):
            raise Refused(f"--labels {labels} has {len(given)} entries for {len(self.array)} images in {embeddings}")
        if len(given) > MAX_IMAGES:
            raise Refused(f"--labels {labels} has {len(given)} entries, at most {MAX_IMAGES}")
        if not self.array.size:
            raise Refused(f"--embeddings {embeddings} holds no numbers")
        self.width = int(self.array.shape[1])
        self.names, self.label, counts = np.unique(given, return_inverse=True, return_counts=True)
        self.classes = len(self.names)
        if counts.min() < len(SHARES):
            rare = int(np.argmin(counts))
            raise Refused(
                f"--labels {labels}: the class {self.names[rare]} has {counts[rare]} images, at least 3 are needed: "
                "one each for training, validation and test"
            )
        if (bad := first_not_finite(self.array)) is not None:
            raise Refused(f"--embeddings {embeddings}: image {bad} holds a number that is not finite")
        self.members = self._split(counts)

    def _split(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Places in the file of each split's images, in the file's order."""
        order = np.lexsort((words(0, STREAM, [0], len(self.label))[0], self.label))  # by class, then at random
        ends = np.cumsum(counts)
        members: dict[str, list[np.ndarray]] = {name: [] for name in SHARES}
        for end, count in zip(ends, counts, strict=True):
            start = end - count
            for name, size in split_sizes(int(count)).items():
                members[name].append(order[start : start + size])
                start += size
        return {name: np.sort(np.concatenate(pieces)) for name, pieces in members.items()}

    def checksum(self) -> str:
        """SHA-256 of labels and images; a block is held at a time."""
        digest = hashlib.sha256(repr((self.array.shape, self.array.dtype.str)).encode())
        digest.update(self.names[self.label].astype(np.int64).tobytes())
        rows = max(1, BLOCK // self.width)
        for start in range(0, len(self.array), rows):
            digest.update(np.ascontiguousarray(self.array[start : start + rows]).tobytes())
        return digest.hexdigest()

    def size(self, split: str) -> int:
        return len(self.members[split])

    def labels(self, split: str, picks: np.ndarray) -> np.ndarray:
        return self.label[self.members[split][picks]]

    def embeddings(self, split: str, picks: np.ndarray) -> np.ndarray:
        """The images `[..., width]` float32."""
        return np.asarray(self.array[self.members[split][picks]], np.float32)
