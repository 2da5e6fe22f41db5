"""Checkpoints that are shipped: a folder with config.json, model.safetensors (parameters alone, float32) and its card.

`--evaluate` takes such a folder as it takes a run; the word "pretrained" is the one that comes with a task.
"""

from pathlib import Path
from typing import Any

from tasks.checkpoint import PARAMETERS, Checkpoint, read
from tasks.errors import Refused
from tasks.runs import Run

PRETRAINED = "pretrained"
MODEL = "model.safetensors"


def is_shipped(folder: Path) -> bool:
    return (folder / MODEL).is_file()


def open_trained(task: Any, name: str, file: str | None = None) -> tuple[Run, Checkpoint]:
    """Run and newest checkpoint (or the one in `file`) of a folder, or of the word "pretrained"."""
    folder = getattr(task, "PRETRAINED", None) if name == PRETRAINED else Path(name)
    if folder is None or (name == PRETRAINED and not is_shipped(folder)):
        raise Refused(f"no checkpoint of {task.NAME} is shipped here: train one with python -m tasks.{task.NAME}")
    run = Run.open(folder, task.NAME, task.Config)
    if is_shipped(folder):
        if file is not None:
            raise Refused(f"--checkpoint goes with a run, and {folder} has a single checkpoint")
        return run, run.check(read(folder / MODEL, PARAMETERS), folder / MODEL)
    found = run.load(None if file is None else Path(file))
    if found is None:
        raise Refused(f"there is no checkpoint in {run.checkpoints}")
    return run, found
