"""Checkpoints that are shipped: a folder with model.safetensors (config and parameters alone, float32) and its card.

`--evaluate` takes such a folder as it takes a run; the word "pretrained" is the one that comes with a task.
"""

import os
from pathlib import Path

from ponder_ref.runtime.checkpoint import PARAMETERS, Checkpoint, read
from ponder_ref.runtime.errors import Refused
from tasks.contracts import Task
from tasks.flags import from_json
from tasks.runs import Run
from tasks.trainers import default_backend

PRETRAINED = "pretrained"
MODEL = "model.safetensors"


def is_shipped(folder: Path) -> bool:
    return os.path.isfile(folder / MODEL)


def open_trained(task: type[Task], name: str, file: str | None = None) -> tuple[Run, Checkpoint]:
    """Run and newest checkpoint (or the one in `file`) of a folder, or of the word "pretrained"."""
    folder = task.PRETRAINED if name == PRETRAINED else Path(name)
    if folder is None or (name == PRETRAINED and not is_shipped(folder)):
        raise Refused(f"no checkpoint of {task.NAME} is shipped here: train one with python -m tasks.{task.NAME}")
    if is_shipped(folder):
        if file is not None:
            raise Refused(f"--checkpoint goes with a run, and {folder} has a single checkpoint")
        found = read(folder / MODEL, PARAMETERS)
        if "config" not in found.about:
            raise Refused(
                f"{folder} has a network alone, without its task: --evaluate needs a run, or one that is shipped"
            )
        config = from_json(task.Config, found.about["config"], str(folder / MODEL))
        run = Run(folder, task.NAME, config, default_backend())
        return run, run.check(found, folder / MODEL)
    run = Run.open(folder, task.NAME, task.Config)
    found = run.load(None if file is None else Path(file))
    if found is None:
        raise Refused(f"there is no checkpoint in {run.checkpoints}")
    return run, found
