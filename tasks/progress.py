"""What is seen of a training while it runs: a bar on a terminal, plain lines elsewhere, both on stderr."""

import time
from collections.abc import Callable
from typing import Any, TextIO


def figures(record: dict[str, Any]) -> dict[str, str]:
    """The numbers that are shown of a record."""
    return {
        "loss": f"{record['loss']:.4f}",
        "accuracy": f"{record['accuracy']:.3f}",
        "steps": f"{record['expected_steps']:.2f}",
    }


def duration(seconds: float) -> str:
    """
    >>> duration(3725), duration(59)
    ('1:02:05', '0:59')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Careful:
    """A stream whose faults are nobody's concern: a training does not end because its log cannot be written.

    None is a stream that was closed from the start. After the first fault nothing more is written.
    """

    def __init__(self, stream: TextIO | None):
        self.stream: TextIO | None = stream

    def _try(self, what: Callable[[TextIO], Any]) -> Any:
        try:
            return None if self.stream is None else what(self.stream)
        except (OSError, ValueError):  # a full disk, a terminal that has gone; a stream that was closed since
            self.stream = None
            return None

    def write(self, text: str) -> int:
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        return bool(self._try(lambda stream: stream.isatty()))

    def fileno(self) -> int:  # asked for the terminal's width
        if self.stream is None:
            raise OSError("there is no terminal")
        return self.stream.fileno()

    @property
    def encoding(self) -> str:
        return getattr(self.stream, "encoding", None) or "ascii"


class Lines:
    """One line for each logging window and each evaluation."""

    def __init__(self, total: int, start: int, stream: Careful):
        self.total, self.stream = total, stream
        self.last = (start, time.monotonic())

    def advance(self, update: int) -> None:
        """Nothing to draw between windows."""

    def logged(self, record: dict[str, Any]) -> None:
        # The rate since the line before: the first one has the compilation in it.
        (before, began), self.last = self.last, (record["update"], time.monotonic())
        rate = (record["update"] - before) / max(self.last[1] - began, 1e-9)
        left = duration((self.total - record["update"]) / max(rate, 1e-9))
        shown = " ".join(f"{name} {text}" for name, text in figures(record).items())
        self.say(f"{record['update']:>8}/{self.total} {shown}  {rate:.0f} updates/s, {left} left")

    def evaluated(self, record: dict[str, Any]) -> None:
        shown = " ".join(f"{name} {text}" for name, text in figures(record).items())
        self.say(f"{record['update']:>8}/{self.total} {record['split']}: {shown}")

    def say(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def close(self) -> None:
        """Nothing is left open."""


class Bar(Lines):
    """tqdm's bar with rate and time left; evaluations are lines above it."""

    def __init__(self, total: int, start: int, stream: Careful, tqdm: Any):
        super().__init__(total, start, stream)
        self.bar = tqdm(
            total=total, initial=start, unit=" updates", file=stream, dynamic_ncols=True, mininterval=0.2, smoothing=0.1
        )

    def advance(self, update: int) -> None:
        self.bar.update(update - self.bar.n)

    def logged(self, record: dict[str, Any]) -> None:
        self.bar.set_postfix(figures(record), refresh=False)

    def say(self, text: str) -> None:
        self.bar.write(text, file=self.stream)

    def close(self) -> None:
        self.bar.close()


def progress(total: int, start: int, stream: TextIO | None) -> Lines:
    """A bar if the stream is a terminal and tqdm is installed, else lines. No fault of the stream is raised."""
    careful = Careful(stream)
    if careful.isatty():
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:
            pass
        else:
            return Bar(total, start, careful, tqdm)
    return Lines(total, start, careful)
