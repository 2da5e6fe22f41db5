"""Runs a command again and again, each time ended as by SIGKILL at another call of `os`: for tests.

    python kill_at.py FOLDER ship RUN --out place

FOLDER/place is copied to FOLDER/deaths/CALL-NUMBER/place for the command of each death, which runs in CALL-NUMBER. As
each is a fork of one process, the modules are imported once.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from task_helpers import environment

ENDED = 99
CALLS = ("replace", "unlink", "fsync")


def arm(name: str, count: int) -> None:
    """Ends the process at the nth call of the function."""
    original = getattr(os, name)

    def call(*arguments: Any, **settings: Any) -> Any:
        nonlocal count
        count -= 1
        if count == 0:
            os._exit(ENDED)
        return original(*arguments, **settings)

    setattr(os, name, call)


def exit_code(folder: Path, call: str, number: int, main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """That of a fork of this process which runs the command in the folder."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        arm(call, number)
        code = main(arguments)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def commands() -> dict[str, Callable[[list[str]], int]]:
    from tasks.babi import generate, ship
    from tasks.export import __main__ as export

    ship.scores = lambda *_: []  # which need a backend
    return {"generate": generate.main, "ship": ship.main, "export": export.main}


def deaths(folder: Path, command: str, *arguments: object) -> dict[str, Path]:
    """The folders that the deaths of a command left, each with its own `place`."""
    words = [sys.executable, str(Path(__file__)), str(folder), command, *map(str, arguments)]
    done = subprocess.run(
        words, env=environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path for path in sorted((folder / "deaths").iterdir())}


if __name__ == "__main__":
    place, chosen, *rest = sys.argv[1:]
    run = commands()[chosen]
    for name in CALLS:
        for count in itertools.count(1):
            made = Path(place) / "deaths" / f"{name}-{count}"
            shutil.copytree(Path(place) / "place", made / "place")
            code = exit_code(made, name, count, run, rest)
            if code != ENDED:
                shutil.rmtree(made)
                if code != 0:
                    sys.exit(code)
                break
