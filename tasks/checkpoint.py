"""Checkpoints: one backend-neutral safetensors file for each; a crash at any instant leaves the last good one.

The metadata is one JSON string (several would be written in no fixed order), so equal states give equal bytes. Nothing
is ever unpickled.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.errors import Refused, cannot_write, reason

FORMAT = "pondernet checkpoint 1"
PARAMETERS = "pondernet parameters 1"  # the format without moments: to be used, not trained on
SUFFIX = ".safetensors"
PREFIX = "params."  # of the names of parameters
INSTALL = "pip install -e '.[jax,tasks]' in a clone of pondernet installs it"


class Checkpoint(NamedTuple):
    """A training at one update: the trainer's arrays and what else goes on (plain JSON values)."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


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


def from_bytes(data: bytes, path: Path, *forms: str) -> Checkpoint:
    """The checkpoint in a file's bytes, in one of the formats (FORMAT); what is cut short or foreign is refused."""
    numpy_files = library()
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        arrays = numpy_files.load(data)
    except Exception as error:  # whatever the parsers raise, the file is not whole
        raise Refused(f"{path} is not a whole safetensors file ({type(error).__name__})") from None
    try:
        about = json.loads(header["__metadata__"]["pondernet"])
        found = about.pop("checksum")
        form = about["format"]
        if form == PARAMETERS and PARAMETERS not in (forms or (FORMAT,)):
            raise Refused(f"{path} has the parameters of a shipped checkpoint and nothing else: a run's is needed")
        if form not in (forms or (FORMAT,)):
            raise KeyError("format")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Refused(f"{path} is a safetensors file, but not a checkpoint of this project") from None
    if checksum(arrays, about) != found:
        raise Refused(f"{path} is damaged: its content does not fit its checksum")
    return Checkpoint(arrays, about)


def write_whole(path: Path, data: bytes, rest: str = "") -> None:
    """Writes a file whole or not at all: temporary name in the same folder, flush to disk, rename, flush the folder.

    The temporary name is another one every time: two that write the same file do not write into one another's.
    """
    temporary = path.with_name(f"{path.name[:40]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error, rest) from None
        raise


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
    """Writes the checkpoint and removes what is no longer kept.

    Kept are this one and the last one before it at a multiple of `every`: a run that was interrupted in between ends
    with the same files as one that was not.
    """
    update = checkpoint.about["update"]
    path = folder / file_name(update)
    older = listed(folder)
    write_whole(path, to_bytes(checkpoint), f"the last good checkpoint is {list(older.values())[-1]}" if older else "")
    regular = [number for number in older if number < update and number % every == 0]
    for number, old in older.items():
        if number != update and number not in regular[-1:]:
            with contextlib.suppress(OSError):
                old.unlink()
    return path


def read(path: Path, *forms: str) -> Checkpoint:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Refused(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise Refused(f"cannot read the checkpoint {path}: {reason(error)}") from None
    return from_bytes(data, path, *forms)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a folder, None if there is none. If it is damaged, the newest good one is named."""
    files = list(listed(folder).values())
    if not files:
        return None
    try:
        return read(files[-1])
    except Refused as error:
        for path in reversed(files[:-1]):
            if is_good(path):
                raise Refused(
                    f"{error}; the one before it is good: add --checkpoint {shlex.quote(str(path))}"
                ) from None
        raise Refused(f"{error}; there is no other good checkpoint in {folder}") from None


def is_good(path: Path) -> bool:
    try:
        read(path)
    except Refused:
        return False
    return True
