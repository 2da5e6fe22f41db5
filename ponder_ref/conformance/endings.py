"""How the judge's commands end: as all of this project do (`ponder_ref.runtime.errors`), with sentences of its own."""

import argparse
import functools
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ponder_ref.runtime import errors
from ponder_ref.runtime.errors import Arguments, Refused, interrupted, on_one_line, reason, unwritable
from ponder_ref.runtime.files import replace_whole

LONGEST = 400  # characters of a sentence about flags


class Parser(argparse.ArgumentParser):
    """A parser that answers bad flags with one sentence and exit code 2."""

    def error(self, message: str) -> NoReturn:
        text, half = on_one_line(message), (LONGEST - 3) // 2
        text = text if len(text) <= LONGEST else f"{text[:half]}...{text[-half:]}"
        self.exit(2, f"{text}; {self.prog} --help lists the flags\n")


def one_sentence(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` that ends in one sentence where something ends it early; after Ctrl-C it says nothing.

    Exit code 2 where it cannot be run or its output cannot be written, 130 after Ctrl-C, 143 after SIGTERM, 141 where
    nobody reads it.
    """

    @errors.one_sentence
    @functools.wraps(main)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        try:
            code = main(*args, **kwargs)
            if problem := unwritable(sys.stdout):
                raise problem
            return code
        except KeyboardInterrupt as error:
            return interrupted(error).exit_code
        except OSError as error:
            if error.filename is not None or isinstance(error, BrokenPipeError):
                raise
            raise Refused(f"cannot write the standard output: {reason(error)}") from None

    return told


def check_target(path: Path, flag: str) -> None:
    """Refuses a file that cannot be written, or that would be replaced though it is no plain file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise Refused(f"{flag}: cannot write {path} ({error.strerror or error})") from None
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}
        raise Refused(f"{flag}: {path} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file")
    if not path.resolve().parent.is_dir():
        raise Refused(f"{flag}: the folder {path.parent} does not exist")


def write_whole(path: Path, text: str, flag: str, *, new: bool = False) -> None:
    """Writes a file whole or not at all, and never over what is no plain file; `new` never over another file."""
    check_target(path, flag)
    if new and os.path.lexists(path):
        raise Refused(f"{flag}: {path} exists already; choose another name")
    try:
        replace_whole(path, text.encode())
    except OSError as error:
        raise Refused(f"{flag}: cannot write {path} ({reason(error)})") from None
