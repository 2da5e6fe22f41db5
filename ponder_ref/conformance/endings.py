"""How the judge's commands end: with one sentence and an exit code; and files that are whole or absent."""

import argparse
import contextlib
import functools
import io
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, ParamSpec

Arguments = ParamSpec("Arguments")
LONGEST = 400  # characters of a sentence


class CannotRun(Exception):
    """The judge could not be run; one sentence says why."""


def one_line(text: str) -> str:
    """The text with its control characters quoted, and its middle left out if it is long."""
    quoted = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    half = (LONGEST - 3) // 2
    return quoted if len(quoted) <= LONGEST else f"{quoted[:half]}...{quoted[-half:]}"


class Parser(argparse.ArgumentParser):
    """A parser that answers bad flags with one sentence and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{one_line(message)}; {self.prog} --help lists the flags\n")


def _silence() -> None:
    """Turns away the streams that cannot be written to: what is still buffered must not be tried again at exit."""
    for stream in (stream for stream in (sys.stdout, sys.stderr) if stream is not None):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _say(sentence: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(one_line(sentence), file=sys.stderr, flush=True)


def one_sentence(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` that ends in one sentence where something ends it early.

    Exit code 2 where it cannot be run or its output cannot be written, 130 after Ctrl-C, 141 where nobody reads it.
    """

    @functools.wraps(main)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        for stream in (sys.stdout, sys.stderr):  # a letter that their encoding lacks is shown as a question mark
            if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
                stream.reconfigure(errors="replace")
        try:
            try:
                code = main(*args, **kwargs)
            except SystemExit as ended:  # --help, and flags that argparse refuses
                code = ended.code if isinstance(ended.code, int) else 0
            if sys.stdout is not None:
                sys.stdout.flush()  # at exit it would be too late to say what went wrong
            return code
        except CannotRun as error:
            _say(str(error))
            return 2
        except KeyboardInterrupt:
            _silence()
            return 130
        except BrokenPipeError:
            _silence()
            return 141
        except OSError as error:
            _silence()
            _say(f"cannot write {error.filename or 'the standard output'}: {(error.strerror or str(error)).lower()}")
            return 2

    return told


def check_target(path: Path, flag: str) -> None:
    """Refuses a file that cannot be written, or that would be replaced though it is no plain file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise CannotRun(f"{flag}: cannot write {path} ({error.strerror or error})") from None
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}
        raise CannotRun(f"{flag}: {path} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file")
    if not path.resolve().parent.is_dir():
        raise CannotRun(f"{flag}: the folder {path.parent} does not exist")


def write_whole(path: Path, text: str, flag: str, *, new: bool = False) -> None:
    """Writes a file under a temporary name in the same folder, flushes and renames it; `new` never over another."""
    check_target(path, flag)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if new and os.path.lexists(path):
                raise CannotRun(f"{flag}: {path} exists already; choose another name")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CannotRun(f"{flag}: cannot write {path} ({(error.strerror or str(error)).lower()})") from None
