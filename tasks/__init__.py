"""The paper's experiments, the same on every backend: `python -m tasks.parity --help`.

No module here imports a framework but `tasks.export.stablehlo`; that one, and a backend, is loaded by name when a
command needs it.
"""

import sys

from tasks.errors import end_at_once, take_signals

if sys.argv[:1] == ["-m"]:  # `python -m tasks.…` is on its way in
    take_signals(end_at_once)
try:
    import msgspec  # noqa: F401

    import ponder_ref  # noqa: F401
except ModuleNotFoundError as error:
    sentence = (
        f"tasks needs {error.name!r}, which is not installed: pip install -e '.[jax,tasks]' in a clone of pondernet"
    )
    if sys.argv[:1] == ["-m"]:  # one sentence instead of a traceback
        print(sentence, file=sys.stderr)
        raise SystemExit(2) from None
    raise ImportError(sentence) from None
