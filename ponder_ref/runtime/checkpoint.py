"""Checkpoints: one backend-neutral safetensors file for each; a crash at any instant leaves the last good one.

The metadata is one JSON string (several would be written in no fixed order), so equal states give equal bytes. Nothing
is ever unpickled.
"""

import contextlib
import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from ponder_ref.runtime.errors import Refused, shell_word
from ponder_ref.runtime.files import opened, write_whole
from ponder_ref.runtime.schemas import Count, Name, check_settings, decoded
from ponder_ref.runtime.train import TRAIN_KEYS

FORMAT = "pondernet checkpoint 1"
PARAMETERS = "pondernet parameters 1"  # the format without moments: to be used, not trained on
SUFFIX = ".safetensors"
MAX_BYTES, MAX_HEADER = 2**32, 2**24
PREFIX = "params."  # of the names of parameters
INSTALL = "pip install -e '.[jax,tasks]' in a clone of pondernet installs it"


class Checkpoint(NamedTuple):
    """A training at one update: the trainer's arrays and what else goes on (plain JSON values)."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


class Damaged(Refused):
    """A newest checkpoint that is damaged, and the good one before it."""

    def __init__(self, said: str, good: Path, advice: str = "add --checkpoint"):
        super().__init__(f"{said}; the one before it is good: {advice} {shell_word(str(good))}")
        self.said, self.good = said, good


def library() -> Any:
    """safetensors' NumPy functions, or the sentence that says how to get them."""
    try:
        import safetensors.numpy
    except ModuleNotFoundError:
        raise Refused(f"checkpoints need 'safetensors', which is not installed: {INSTALL}") from None
    return safetensors.numpy


def canonical(value: Any) -> str:
    """JSON with one spelling for equal values; floats are written so that they read back exactly."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    """SHA-256 over everything that a file says: names, dtypes, shapes, bytes and metadata."""
    digest = hashlib.sha256(canonical(about).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(canonical([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def parameters(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters among the arrays of a checkpoint, by their own names."""
    return {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}


def fingerprint(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of arrays alone: what a run knows the parameters or the data by that it began with."""
    return checksum(arrays, {})


def to_bytes(checkpoint: Checkpoint, form: str = FORMAT) -> bytes:
    """The content of the file."""
    # np.array with order="C" keeps 0-d arrays 0-d; safetensors would scramble arrays in any other order.
    arrays = {name: np.array(value, order="C") for name, value in checkpoint.arrays.items()}
    about = {"format": form, **checkpoint.about}
    text = canonical({**about, "checksum": checksum(arrays, about)})
    return library().save(arrays, metadata={"pondernet": text})


class Tensor(msgspec.Struct):
    """What a safetensors header says of an array."""

    dtype: str
    shape: list[Count]
    data_offsets: tuple[Count, Count]


class State(msgspec.Struct, forbid_unknown_fields=True):
    """A window of training metrics (`tasks.metrics.Window`)."""

    sums: dict[str, float] = {}
    count: Count = 0
    forward_passes: Count = 0

    def __post_init__(self) -> None:
        if self.sums and self.sums.keys() != set(TRAIN_KEYS):
            raise ValueError(f"sums must be of {', '.join(TRAIN_KEYS)}")


class Form(msgspec.Struct):
    """Whether it is a checkpoint at all."""

    format: str
    checksum: str


class Alone(Form, forbid_unknown_fields=True):
    """What the file of a network says that was saved without a task."""

    spec: Name
    network: dict[str, Any]


class About(Form, forbid_unknown_fields=True):
    """What a checkpoint of a run, or a shipped one, says beside its arrays."""

    spec: Name
    task: Name
    config: dict[str, Any]
    update: Count
    window: State = msgspec.field(default_factory=State)
    network: dict[str, Any] | None = None  # older ones lack it (`ponder_ref.runtime.translate`)


def header_of(file: BinaryIO, size: int, path: Path) -> bytes:
    """The metadata of a safetensors file, b"" without any; it must declare just as many bytes as the file has."""
    broken = f"{path} is not a whole safetensors file"
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, MAX_HEADER):
        raise Refused(broken)
    try:
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(header.pop("__metadata__", b"{}"), type=dict[str, str])
        ends = [msgspec.json.decode(each, type=Tensor).data_offsets[1] for each in header.values()]
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise Refused(broken) from None
    if max(ends, default=0) != size - 8 - length:
        raise Refused(broken)
    return metadata.get("pondernet", "").encode()


def parsed(file: BinaryIO, size: int, path: Path, forms: tuple[str, ...]) -> Checkpoint:
    """The checkpoint in a file of this many bytes, in one of the formats. Its header is checked before all else."""
    text, forms = header_of(file, size, path), forms or (FORMAT,)
    try:
        form = decoded(text, Form, path).format
    except Refused:
        form = ""
    if form == PARAMETERS and form not in forms:
        raise Refused(f"{path} has the parameters of a shipped checkpoint and nothing else: a run's is needed")
    if form not in forms:
        raise Refused(f"{path} is a safetensors file, but not a checkpoint of this project")
    about = decoded(text, dict[str, Any], path)
    alone = form == PARAMETERS and "network" in about and "task" not in about
    decoded(text, Alone if alone else About, path)
    check_settings(about.get("config", {}), f"{path}: config")
    found = about.pop("checksum")
    file.seek(0)
    try:
        arrays = library().load(file.read(size))
    except Refused:
        raise
    except Exception as error:  # whatever the parser raises, the file is not whole
        raise Refused(f"{path} is not a whole safetensors file ({type(error).__name__})") from None
    if checksum(arrays, about) != found:
        raise Refused(f"{path} is damaged: its content does not fit its checksum")
    for name, array in sorted(arrays.items()):
        if not np.isfinite(array).all():
            raise Refused(f"{path}: {name} holds a number that is not finite")
    return Checkpoint(arrays, about)


def from_bytes(data: bytes, path: Path, *forms: str) -> Checkpoint:
    """The checkpoint in a file's bytes, in one of the formats (FORMAT); what is cut short or foreign is refused."""
    return parsed(io.BytesIO(data), len(data), path, forms)


def read(path: Path, *forms: str) -> Checkpoint:
    with opened(path, MAX_BYTES, f"there is no checkpoint {path}") as file:
        return parsed(file, os.fstat(file.fileno()).st_size, path, forms)


def file_name(update: int) -> str:
    return f"update-{update:08d}{SUFFIX}"


def listed(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by update, oldest first."""
    found = {}
    for path in folder.glob(f"update-*{SUFFIX}"):
        if match := re.fullmatch(r"update-(\d{8,})", path.stem):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def save(folder: Path, checkpoint: Checkpoint, every: int) -> Path:
    """Writes the checkpoint and removes what is no longer kept."""
    update, older = checkpoint.about["update"], list(listed(folder).values())
    path = folder / file_name(update)
    write_whole(path, to_bytes(checkpoint), f"the last good checkpoint is {older[-1]}" if older else "")
    prune(folder, update, every)
    return path


def prune(folder: Path, update: int, every: int) -> None:
    """Removes the checkpoints before that of `update`, but for the last of them at a multiple of `every`.

    So a run that was interrupted, or killed right here, ends with the same files as one that was not.
    """
    found = listed(folder)
    older = {number: path for number, path in found.items() if number < update and update in found}
    kept = [number for number in older if number % every == 0][-1:]
    for number, path in older.items():
        if number not in kept:
            with contextlib.suppress(OSError):  # tried again when the next one is saved, or the run goes on
                path.unlink()


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a folder, None if there is none. If it is damaged, the newest good one is named."""
    files = list(listed(folder).values())
    if not files:
        return None
    try:
        return read(files[-1])
    except Refused as error:
        if good := good_before(files[-1]):
            raise Damaged(str(error), good) from None
        raise Refused(f"{error}; there is no other good checkpoint in {folder}") from None


def good_before(file: Path) -> Path | None:
    """The newest good checkpoint before a file in its folder, None if there is none."""
    files = list(listed(file.parent).values())
    older = files[: files.index(file)] if file in files else []
    return next((path for path in reversed(older) if is_good(path)), None)


def is_good(path: Path) -> bool:
    try:
        read(path)
    except Refused:
        return False
    return True
