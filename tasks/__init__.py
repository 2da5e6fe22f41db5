"""The paper's experiments, the same on every backend: `python -m tasks.parity --help`.

No module here imports a framework but `tasks.export.stablehlo`; that one, and a backend, is loaded by name when a
command needs it.
"""

import contextlib
import itertools
import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def is_command() -> bool:
    """Whether `python -m` starts a module of this project, and not somebody else's that imports this one."""
    after = (word for option, word in itertools.pairwise(sys.orig_argv) if option[:1] == "-" and option[-1:] == "m")
    return sys.argv[:1] == ["-m"] and next(after, "").split(".")[0] in ("tasks", "benchmarks")


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """A signal while modules are still being imported: a library could take an exception for one of its own."""
    what = "terminated" if number == signal.SIGTERM else "interrupted"
    with contextlib.suppress(OSError):
        os.write(2, f"{what} before anything was done: give the command again\n".encode())
    os._exit(128 + number)


for each in (signal.SIGINT, signal.SIGTERM) if is_command() else ():
    if signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(each, end_at_once)
try:
    import msgspec  # noqa: F401

    from ponder_ref.runtime import errors

    errors.early.append(end_at_once)
except ModuleNotFoundError as error:
    sentence = (
        f"tasks needs {error.name!r}, which is not installed: pip install -e '.[jax,tasks]' in a clone of pondernet"
    )
    if is_command():  # one sentence instead of a traceback
        print(sentence, file=sys.stderr)
        raise SystemExit(2) from None
    raise ImportError(sentence) from None
