"""What the tests of `tasks` share: the command line in a fresh process, and folders compared."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from tasks.parity.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
TINY = ["--preset", "smoke", "--updates", "120", "--chunk", "10", "--log-every", "30", "--eval-every", "50"]
TINY += ["--checkpoint-every", "40", "--eval-examples", "100", "--batch-size", "16"]


def environment(**extra: str) -> dict[str, str]:
    places = (ROOT, ROOT / "backends" / "torch", ROOT / "backends" / "jax", ROOT / "tests")
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places)), "JAX_PLATFORMS": "cpu"} | extra


def command(*arguments: object, module: str = "tasks.parity") -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def parity(*arguments: object, cwd: Path, module: str = "tasks.parity", **extra: str) -> subprocess.CompletedProcess:
    """`python -m tasks.parity` with the arguments, to its end."""
    return subprocess.run(
        command(*arguments, module=module),
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
    )


def inside(*arguments: object, cwd: Path, main: Callable = main) -> subprocess.CompletedProcess:
    """The same in this process, which is quicker: no interpreter to start, nothing to compile twice."""
    out, err = io.StringIO(), io.StringIO()
    own = mock.patch.dict(os.environ)  # a command may set variables, for its own process
    with own, contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def refused(done: subprocess.CompletedProcess) -> str:
    """The one sentence of a command that ended with exit code 2 and no traceback."""
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.strip().splitlines()
    return sentence


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run that must not depend on how often it was interrupted."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "sessions.jsonl"
    }
