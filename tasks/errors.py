"""What ends a command early: one sentence for the user and an exit code."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

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


def cannot_write(path: Path, error: OSError, rest: str = "") -> Refused:
    """The sentence for a full disk, a read-only folder and the like."""
    reason = (error.strerror or str(error)).lower()
    return Refused(f"cannot write {path}: {reason}{'; ' + rest if rest else ''}")


def one_sentence(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` that ends in one sentence and its exit code where something ends it early."""

    @functools.wraps(main)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except (Refused, Diverged, Interrupted) as error:
            print(error, file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            return 130

    return told
