"""The tasks by name, for what works with the runs of any of them. A new task is one line here."""

import importlib
from typing import Any

from ponder_ref.checks import quoted
from ponder_ref.runtime.errors import Refused
from tasks.contracts import Task

TASKS = {
    "parity": "tasks.parity.task:Parity",
    "babi": "tasks.babi.task:Babi",
    "pai": "tasks.pai.task:Pai",
}


def task_class(name: Any) -> type[Task]:
    """The class of a task, imported when it is asked for."""
    if not isinstance(name, str) or name not in TASKS:
        raise Refused(f"the task must be one of {', '.join(TASKS)}, got {quoted(name)}")
    module, _, attribute = TASKS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
