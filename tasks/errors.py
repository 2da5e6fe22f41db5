"""What ends a command early: one sentence for the user and an exit code."""

from pathlib import Path


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
