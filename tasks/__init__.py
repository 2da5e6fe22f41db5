"""The paper's experiments, the same on every backend: `python -m tasks.parity --help`.

No module here imports a framework but `tasks.export.stablehlo`; that one, and a backend, is loaded by name when a
command needs it.
"""

import itertools
import sys

from ponder_ref.runtime.errors import end_at_once, take_signals


def is_command() -> bool:
    """Whether `python -m` starts a module of this project, and not somebody else's that imports this one."""
    after = (word for option, word in itertools.pairwise(sys.orig_argv) if option[:1] == "-" and option[-1:] == "m")
    return sys.argv[:1] == ["-m"] and next(after, "").split(".")[0] in ("tasks", "benchmarks")


if is_command():  # signals end it in one sentence while modules are imported, too
    take_signals(end_at_once)
try:
    import msgspec  # noqa: F401

    import ponder_ref  # noqa: F401
except ModuleNotFoundError as error:
    sentence = (
        f"tasks needs {error.name!r}, which is not installed: pip install -e '.[jax,tasks]' in a clone of pondernet"
    )
    if is_command():  # one sentence instead of a traceback
        print(sentence, file=sys.stderr)
        raise SystemExit(2) from None
    raise ImportError(sentence) from None
