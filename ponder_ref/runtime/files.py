"""Files: opened once and safely, read within a limit, written whole or not at all.

Every file that a command of this project reads or writes goes through here. What is not a regular file (a folder, link,
FIFO or device) is never written to, and is refused before it is read; nothing in a file names code to import.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ponder_ref.runtime.errors import Refused, cannot_write, reason

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None

MAX_JSON = 2**20  # bytes
TEMPORARY = re.compile(r"\.pondernet-[0-9a-f]{16}\.tmp")
UNFINISHED = b'{"unfinished": true}\n'  # what a description says while the file is written that it describes
NOFOLLOW, NONBLOCK = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
KINDS = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


def refuse_odd(mode: int) -> None:
    """Raises `OSError` unless the mode is that of a regular file."""
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(None, f"it is {kind}, not a regular file")


@contextlib.contextmanager
def opened(path: Path, limit: int | None = None, missing: str | None = None) -> Iterator[BinaryIO]:
    """A regular file, to be read; one of more than `limit` bytes is refused. `missing` is the sentence if it is absent.

    It is looked at before it is opened, as to open a device may do something, and after that, as it may be another now.
    """
    try:
        refuse_odd(os.stat(path).st_mode)
        with open(os.open(path, os.O_RDONLY | NONBLOCK | getattr(os, "O_BINARY", 0)), "rb") as file:
            found = os.fstat(file.fileno())
            refuse_odd(found.st_mode)
            if limit is not None and found.st_size > limit:
                raise Refused(f"{path} is too large: {found.st_size} bytes, at most {limit}")
            yield file
    except FileNotFoundError as error:
        raise Refused(missing or f"cannot read {path}: {reason(error)}") from None
    except OSError as error:
        raise Refused(f"cannot read {path}: {reason(error)}") from None


def read_bytes(path: Path, limit: int, missing: str | None = None) -> bytes:
    with opened(path, limit, missing) as file:
        return file.read(limit)  # no more, even if it grows


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, where they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Refused(f"{path} is a file, not a folder") from None
    except OSError as error:
        raise cannot_write(path, error) from None


@contextlib.contextmanager
def alone(path: Path, what: str = "training in") -> Iterator[None]:
    """Keeps other processes from working in the folder, where the system can; ends with the process, however."""
    if fcntl is None:
        yield
        return
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Refused(f"cannot open {path}: {reason(error)}") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another process is {what} {path}: wait for it or stop it") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(folder)


def check_target(path: Path) -> None:
    """Refuses to replace what is not a regular file."""
    with contextlib.suppress(FileNotFoundError):
        refuse_odd(os.lstat(path).st_mode)


def clear_leftovers(folder: Path) -> None:
    """Removes this project's temporary files whose writers were killed: a living one holds a lock on its own."""
    if fcntl is None:
        return
    for name in filter(TEMPORARY.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            number = os.open(folder / name, os.O_RDWR | NOFOLLOW | NONBLOCK)
            try:
                refuse_odd(os.fstat(number).st_mode)
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(folder / name)
            finally:
                os.close(number)


@contextlib.contextmanager
def staged(path: Path, data: bytes) -> Iterator[Path]:
    """A temporary file beside `path` with these bytes, flushed to disk. If it is not renamed, it is removed.

    Its name is another one every time: two that write the same file do not write into one another's.
    """
    temporary, file = _own_file(path.parent)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # there an open file cannot be renamed
                file.close()
            yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _own_file(folder: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file that is locked, so that nobody takes it for a leftover (`clear_leftovers`)."""
    while True:
        temporary = folder / f".pondernet-{secrets.token_hex(8)}.tmp"
        file = open(temporary, "xb")  # noqa: SIM115 (closed by the caller)
        try:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
            if os.name != "posix" or os.fstat(file.fileno()).st_nlink:
                return temporary, file
        except BaseException:
            file.close()
            raise
        file.close()  # it was cleared before the lock was there


def flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def replace_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: temporary name in the same folder, flush to disk, rename, flush the folder."""
    check_target(path)
    clear_leftovers(path.parent)
    with staged(path, data) as temporary:
        os.replace(temporary, path)
    flush_folder(path.parent)


def write_whole(path: Path, data: bytes, rest: str = "") -> None:
    """As `replace_whole`, or `Refused`; `rest` is what the sentence ends with if it cannot be done."""
    try:
        replace_whole(path, data)
    except OSError as error:
        raise cannot_write(path, error, rest) from None


def write_together(files: Mapping[Path, bytes]) -> None:
    """Writes a file and those in the same folder that describe it, of which the last is JSON.

    A kill leaves the old files, or the new ones, or the first (old or new, and whole) with UNFINISHED as its last
    description and without the others: never a file beside the description of another.
    """
    first, *others = files
    last = others[-1]
    try:
        for path in files:
            check_target(path)
        clear_leftovers(first.parent)
        with contextlib.ExitStack() as stack:
            mark = stack.enter_context(staged(last, UNFINISHED))
            ready = {path: stack.enter_context(staged(path, data)) for path, data in files.items()}
            os.replace(mark, last)
            for path in others[:-1]:
                path.unlink(missing_ok=True)
            flush_folder(last.parent)
            for path, temporary in ready.items():
                if path == last:
                    flush_folder(last.parent)
                os.replace(temporary, path)
        flush_folder(last.parent)
    except OSError as error:
        raise cannot_write(first, error) from None


def is_unfinished(path: Path) -> bool:
    """Whether a description is the mark of `write_together`, left by a process that was killed."""
    try:
        return read_bytes(path, MAX_JSON) == UNFINISHED
    except Refused:
        return False


def drop_half_line(file: BinaryIO) -> None:
    """Removes the end of a file that a crash cut short, so that the next line does not go on with it."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:  # a block at a time, from the end
        begin = max(0, end - 2**16)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end < file.seek(0, os.SEEK_END):
        file.truncate(end)


def append(path: Path, data: bytes, rest: str = "") -> None:
    """Adds whole lines to a file and flushes them to disk; `rest` is what the sentence ends with if it cannot."""
    try:
        check_target(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | NOFOLLOW | NONBLOCK | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags, 0o666), "a+b") as file:
            refuse_odd(os.fstat(file.fileno()).st_mode)
            drop_half_line(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error, rest) from None
