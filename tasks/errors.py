"""What ends a command early: one sentence for the user and an exit code."""

import functools
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TextIO

Arguments = ParamSpec("Arguments")


class Refused(Exception):
    """A flag, file, folder or environment that the command cannot work with: exit code 2."""

    exit_code = 2


class Diverged(Exception):
    """Training that left the finite numbers: exit code 1."""

    exit_code = 1


class Interrupted(Exception):
    """SIGINT or SIGTERM: exit code 128 + the signal's number."""

    def __init__(self, sentence: str, signal_number: int):
        super().__init__(sentence)
        self.exit_code = 128 + signal_number


def reason(error: OSError) -> str:
    """What the system says, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def cannot_write(path: Path, error: OSError, rest: str = "") -> Refused:
    """The sentence for a full disk, a read-only folder and the like."""
    return Refused(f"cannot write {path}: {reason(error)}{'; ' + rest if rest else ''}")


def never_strict() -> None:
    """Lets the streams show a question mark where their encoding lacks a letter, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def flush(stream: TextIO | None) -> None:
    if stream is not None:  # as it is where its descriptor was closed from the start
        stream.flush()


def silence() -> None:
    """Turns away the streams that nobody reads: what is still buffered must not be tried again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            flush(stream)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def one_sentence(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` that ends in one sentence and its exit code where something ends it early.

    So it does where the system refuses a file or a folder. A reader that leaves (`| head`) ends it with exit code 141.
    """

    def ended(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except (Refused, Diverged, Interrupted) as error:
            print(error, file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            return 130
        except OSError as error:
            if error.filename is None:  # a closed pipe, or a fault of the program
                raise
            print(f"cannot use {error.filename}: {reason(error)}", file=sys.stderr)
            return Refused.exit_code
        finally:
            flush(sys.stdout)  # at exit it would be too late to say what went wrong

    @functools.wraps(main)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        never_strict()
        try:
            return ended(*args, **kwargs)
        except BrokenPipeError:
            silence()
            return 141

    return told
