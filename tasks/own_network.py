"""A network that is not of the paper: a function builds a PonderNet for a `Problem`.

It is somebody's own, `--model FILE.py:FUNCTION`, or one that a task brings (`Task.NETWORKS`). The file is read when the
command line names it, or the task, and run when the network is built; no run folder ever names code to run.

A run knows somebody's own code by its checksum. What a task brings is part of the project, as the task is: it is known
by its name, one for each task and backend, and may change as long as names and shapes of its parameters do not.
"""

import argparse
import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ponder_ref.checks import quoted
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import Refused, shell_word
from ponder_ref.runtime.files import read_bytes
from ponder_ref.runtime.network import Leaf, Network, Own, Problem, differing, from_plain, to_plain
from ponder_ref.runtime.settings import Halting
from ponder_ref.trees import map_tree
from tasks.contracts import Task
from tasks.flags import show

MAX_SOURCE = 2**22  # bytes
ROOT = Path(__file__).resolve().parent.parent  # of the clone


def in_short(error: BaseException) -> str:
    """An error of somebody else's code: its type and the first line of what it says."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


class Code:
    """The function of --model: called with a problem, it runs the file (once) and builds the network.

    `given` is FILE.py:FUNCTION; of a network that a task brings, the file is below ROOT.
    """

    def __init__(self, given: str, *, is_brought: bool = False):
        self.given, self.is_brought = given, is_brought
        file, _, self.function = given.rpartition(":")
        if not file or not self.function.isidentifier():
            raise Refused(f"--model must look like my_net.py:build, got {quoted(given)}")
        self.path = (ROOT if is_brought else Path()) / file
        self.source = read_bytes(self.path, MAX_SOURCE, f"--model {given}: there is no file {self.path}")
        self.sha256 = hashlib.sha256(self.source).hexdigest()
        self._module: ModuleType | None = None

    def module(self) -> ModuleType:
        """The file as a module: the bytes that the checksum is of are those that are run."""
        if self._module is None:
            module = ModuleType(f"pondernet_own_{self.sha256[:16]}")
            module.__file__ = str(self.path)
            sys.modules[module.__name__] = module  # where dataclasses and frameworks look a class up
            exec(compile(self.source, str(self.path), "exec"), vars(module))
            self._module = module
        return self._module

    def __call__(self, problem: Problem) -> Any:
        build = getattr(self.module(), self.function, None)
        if not callable(build):
            raise Refused(f"--model {self.given}: {self.path} has no function {self.function}")
        net = build(problem)
        found = getattr(net, "halting", None)  # of a PonderNet
        for name, value, wanted in differing(found, problem.halting) if isinstance(found, Halting) else ():
            said = f"its PonderNet has {name} {show(value)}, and the run {show(wanted)}"  # metrics would be of another
            raise Refused(f"--model {self.given}: {said}: it should be PonderNet(step, ..., **problem.halting)")
        return net

    def said(self, error: BaseException) -> str:
        """An error of this code: its type, the first line of what it says, and the line of the file."""
        if isinstance(error, SyntaxError):
            return f"{in_short(error)} (line {error.lineno} of {self.path})"
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self.path)
        ]
        return in_short(error) + (f" (line {lines[-1]} of {self.path})" if lines else "")

    def refusal(self, error: BaseException) -> Refused:
        return Refused(f"--model {self.given}: {self.said(error)}")


def own_code(task: type[Task], options: argparse.Namespace, backend: str) -> Code | None:
    """The code of --model, else that which the task brings for a backend, read and not run; None if it brings none."""
    if hasattr(options, "model"):
        return Code(options.model)
    if not task.NETWORKS:
        return None
    if backend not in task.NETWORKS:
        raise Refused(
            f"tasks.{task.NAME} has networks for the backends {', '.join(task.NETWORKS)}, not for {quoted(backend)}: "
            "give one with --model"
        )
    return Code(task.NETWORKS[backend], is_brought=True)


def describe(code: Code, task: Task) -> Network:
    """The network of this code for a task, as a run notes it."""
    first = task.batches("train", range(1))
    leaves = map_tree(lambda x: Leaf(tuple(x.shape[2:]), x.dtype.name), task.plain(first.inputs))
    outputs, output = task.answer()
    own = Own(
        name=code.given,
        sha256="" if code.is_brought else code.sha256,
        inputs=from_plain(to_plain(leaves)),  # as it is read from a file later
        outputs=outputs,
        output=output,
        answers=tuple(first.targets.shape[2:]),
        seed=task.config.seed,
    )
    return Network(own, task.config.halting())


def check_same(code: Code | None, own: Network | None, folder: Path) -> Network | None:
    """A run's network if it is somebody's own; refuses other code than it began with, and none where it had some."""
    if own is None:
        if code is not None:
            raise Refused(f"--model goes with a run that began with it, and {folder} has the task's own network")
        return None
    name, is_brought = own.model.name, not own.model.sha256
    if code is None or (code.is_brought and not is_brought):
        again = f"--model {shell_word(name)}"
        raise Refused(f"{folder} has a network of somebody's own, whose code is needed again: {again}")
    if is_brought and not code.is_brought:
        raise Refused(f"--model goes with a run that began with it, and {folder} has the task's own network")
    if is_brought and code.given != name:
        raise Refused(
            f"{folder} has the network {name}, and {code.given}, that of the other backend, has other parameters: "
            "give the backend that the run began with"
        )
    if not is_brought and (code.function != name.rpartition(":")[2] or code.sha256 != own.model.sha256):
        raise Refused(f"--model {code.given} is not the code that {folder} began with, {name}, or has changed since")
    return own


def check_start(ours: Network, theirs: Network) -> None:
    """ValueError if a training of our own network cannot begin with theirs: other code, or built for other shapes.

    What its file was called, and the seed that it was built with, may be others.
    """
    one, other = ours.to_json()["model"], theirs.to_json()["model"]
    if any(one[name] != other.get(name) for name in ("kind", "sha256", *(() if one["sha256"] else ("name",)))):
        raise ValueError("it has another network, or the code of the network has changed since")
    for name in ("inputs", "outputs", "output", "answers"):
        if one[name] != other[name]:
            raise ValueError(f"its network was built for other {'inputs' if name == 'inputs' else 'answers'}")


def try_out(code: Code, trainer: Trainer, state: Any, task: Task) -> None:
    """Runs the network on two examples before a folder is made; what it cannot do is refused in one sentence."""
    first = task.batches("train", range(1))
    inputs = map_tree(lambda x: x[0, :2], task.plain(first.inputs))
    try:
        y_hat, halt_logits = trainer.unroll(state, inputs, max_steps=1)
    except Exception as error:  # whatever is wrong with somebody else's code
        raise code.refusal(error) from None
    model = task.network().model
    wanted = (np.shape(halt_logits)[1], *model.answers, *((model.outputs,) if model.output == "classes" else ()))
    if np.shape(y_hat)[1:] != wanted:
        raise Refused(f"--model {code.given}: predictions must have the shape {wanted}, got {np.shape(y_hat)[1:]}")
