"""What ends a command early: one sentence for the user and an exit code."""

import contextlib
import errno
import functools
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TextIO

Arguments = ParamSpec("Arguments")
SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}  # those that end a command on purpose

LONGEST = 5000  # letters of a sentence; a path has 4096 at most
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


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


class Terminated(KeyboardInterrupt):
    """What SIGTERM raises in a command, as SIGINT raises KeyboardInterrupt."""


def interrupted(error: KeyboardInterrupt, rest: str = "") -> Interrupted:
    """The end by a signal as one sentence, with what is to be said of it: `rest`."""
    number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    return Interrupted(f"{SIGNALS[number]}{rest}", number)


def reason(error: OSError) -> str:
    """What the system says, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def cannot_write(path: Path, error: OSError, rest: str = "") -> Refused:
    """The sentence for a full disk, a read-only folder and the like."""
    return Refused(f"cannot write {path}: {reason(error)}{'; ' + rest if rest else ''}")


def on_one_line(text: str) -> str:
    r"""A sentence without line breaks and codes that a terminal would obey: they are written as Python writes them.

    >>> print(on_one_line("no file a\nb"))
    no file a\nb
    """
    # An unpaired surrogate stands for a byte of a name: how it is shown is the stream's matter.
    shown = (c if c.isprintable() or "\ud800" <= c <= "\udfff" else repr(c)[1:-1] for c in text)
    return "".join(shown)


def shell_word(text: str) -> str:
    r"""A word of a command that is printed to be given again; letters that do not print are written as $'…' has them.

    >>> print(shell_word("runs/a b"), shell_word("it's\n"))
    'runs/a b' $'it\'s\012'
    """
    if text.isprintable():
        return shlex.quote(text)

    def letter(c: str) -> str:
        return f"\\{c}" if c in "\\'" else c if c.isprintable() else "".join(f"\\{b:03o}" for b in os.fsencode(c))

    return f"$'{''.join(map(letter, text))}'"


def never_strict() -> None:
    """Lets the streams show a question mark where their encoding lacks a letter, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def hold_places() -> None:
    """Opens those of the descriptors 0 to 2 that are closed; Python's own streams stay None.

    Otherwise a file of the run would get such a number, and a library that writes to stderr would write into the file.
    """
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(place)


def unwritable(stream: TextIO | None) -> OSError | None:
    """Why the stream cannot be written: a full disk, a reader that has left. None if it can."""
    try:
        if stream is not None:  # as it is where its descriptor was closed from the start
            stream.flush()
    except OSError as error:
        return error
    return None


def silence() -> None:
    """Turns away the streams that cannot be written: what is still buffered must not be tried again at exit."""
    for stream in (sys.stdout, sys.stderr):
        if unwritable(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def say(sentence: object) -> None:
    """Prints a sentence on stderr, on one line. Where that cannot be written, nobody is left to be told."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            text = on_one_line(str(sentence))
            if len(text) > LONGEST:  # no command with a path that exists is cut
                text = f"{text[:200]}… ({len(text) - 400} more characters) …{text[-200:]}"
            print(text, file=sys.stderr, flush=True)


early: list[Any] = []  # handlers for the time while modules are imported (tasks/__init__.py)


def take_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Sets the handler of the signals that are free; what each had before. Only the main thread can do so."""
    before = {}
    free = (signal.SIG_DFL, signal.default_int_handler, *early)  # what a signal has where nobody else has taken it
    for number in SIGNALS:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) in free:
            before[number] = signal.signal(number, handler)
    return before


class Raising:
    """Lets SIGINT and SIGTERM raise within it, and remembers the one that came."""

    def __init__(self) -> None:
        self.received: int | None = None

    def _raise(self, number: int, frame: FrameType | None) -> NoReturn:
        self.received = number
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def __enter__(self) -> "Raising":
        self._before = take_signals(self._raise)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler in early:  # which was for the time before
                handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, handler)


def not_written(error: OSError) -> int:
    """The exit code of a command whose output cannot be written: 141 where the reader has left (`| head`)."""
    if isinstance(error, BrokenPipeError):
        return 141
    say(f"cannot write the output: {reason(error)}")
    return Refused.exit_code


def ending(error: BaseException, received: int | None) -> int:
    """Says what ended a command, and returns its exit code; a fault of the program is raised again."""
    if isinstance(error, KeyboardInterrupt):
        error = interrupted(error)
    elif received is not None and not isinstance(error, Interrupted):  # a library made an error of its own of it
        error = Interrupted(SIGNALS[signal.Signals(received)], received)
    if isinstance(error, OSError) and error.filename is not None:
        error = Refused(f"cannot use {error.filename}: {reason(error)}")
    if isinstance(error, Refused | Diverged | Interrupted):
        say(error)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in NO_ROOM:  # print's: a file's own are refused where it is written
        return not_written(error)
    raise error


def one_sentence(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` that ends in one sentence and its exit code where something ends it early.

    So it does where the system refuses a file or a folder, or the output, and on SIGINT (130) and SIGTERM (143). A
    reader that leaves (`| head`) ends it with exit code 141.
    """

    @functools.wraps(main)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        never_strict()
        hold_places()
        with Raising() as signals:
            try:
                code = main(*args, **kwargs)
            except (Exception, KeyboardInterrupt) as error:
                code = ending(error, signals.received)
            except SystemExit as error:  # argparse has shown its help
                if error.code or not unwritable(sys.stdout):
                    raise
                code = 0
            # At exit it would be too late to say what went wrong.
            if code == 0 and (problem := unwritable(sys.stdout)):
                code = not_written(problem)
            silence()
            return code

    return told
