"""Backends' trainers, found by name and loaded only when they are needed."""

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from ponder_ref.checks import quoted
from ponder_ref.runtime.checkpoint import PREFIX
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.train import REST
from ponder_ref.runtime.values import Integer
from tasks.contracts import Task
from tasks.own_network import Code, in_short

FRAMEWORKS = ("jax", "torch")  # in the order of preference
THREADS = Integer(1, 1024)


def default_backend() -> str:
    """JAX if it is installed, else torch if that is; else JAX, for the sentence that says what to install."""
    return next((name for name in FRAMEWORKS if find_spec(name) is not None), FRAMEWORKS[0])


def backend_of_file(backend: str, file: object) -> str:
    """The backend that a file names. It may be one of the project's: nothing in a file names code to import."""
    if backend not in FRAMEWORKS:
        raise Refused(
            f"{file} names the backend {backend!r}, which is not one of {', '.join(FRAMEWORKS)}: "
            "a module of your own is imported only if --backend names it on the command line"
        )
    return backend


def backend_module(backend: str) -> Any:
    """The module with a backend's `make_trainer`: "torch", "jax", or somebody else's module by its dotted name."""
    unknown = f"--backend must be one of {', '.join(FRAMEWORKS)} or a module with make_trainer, got {quoted(backend)}"
    if not all(backend.split(".")):  # nothing, or a relative name
        raise Refused(unknown)
    name = f"ponder_{backend}.train" if backend in FRAMEWORKS else backend
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if backend not in FRAMEWORKS and (name == missing or name.startswith(f"{missing}.")):
            raise Refused(unknown) from None
        extra = backend if backend in FRAMEWORKS else "jax"
        raise Refused(
            f"backend {quoted(backend)} needs {missing!r}, which is not installed: "
            f"pip install -e '.[{extra},tasks]' in a clone of pondernet installs it"
        ) from None
    except (Exception, SystemExit) as error:  # whatever is wrong with the module, or with the framework's installation
        raise Refused(f"--backend {backend}: the module {name} cannot be imported: {in_short(error)}") from None
    if not hasattr(module, "make_trainer"):
        raise Refused(f"--backend {backend}: the module {name} has no make_trainer")
    return module


def make_trainer(backend: str, task: Task, threads: int, code: Code | None = None) -> Trainer:
    """The backend's trainer for a task's network and optimiser; `code` builds a network of somebody's own."""
    c = task.config
    module = backend_module(backend)
    network, optimiser = task.network(), c.optimiser_settings()
    try:
        return module.make_trainer(network, optimiser, dtype=c.dtype, threads=threads, build=code)
    except Refused:
        raise
    except Exception as error:
        if code is not None:
            raise code.refusal(error) from None
        if isinstance(error, ValueError):
            raise Refused(f"backend {quoted(backend)}: {error}") from None
        # A RuntimeError may be the machine's: JAX raises one where JAX_PLATFORMS names what is not there.
        if backend in FRAMEWORKS and not isinstance(error, RuntimeError):  # a fault of this project, to be seen
            raise
        raise Refused(f"--backend {backend}: its trainer cannot be made: {in_short(error)}") from None


def make_state(make: Callable[[Any], Any], values: Any, file: object) -> Any:
    """A trainer's state: make(values), its `init` of parameters or its `load` of a checkpoint's arrays.

    Values of another model are refused.
    """
    try:
        return make(values)
    except (ValueError, KeyError) as error:
        raise Refused(f"{file} does not fit the run's model: {error}") from None


def first_state(trainer: Trainer, task: Task, values: Mapping[str, np.ndarray] | None) -> Any:
    """The state before the first update with what `first_parameters` gave.

    Somebody's own network begins with all variables of --start: buffers and weights that are not trained, too.
    """
    file = task.config.start
    if values is None or not task.network().is_own:
        return make_state(trainer.init, values, file)
    arrays = trainer.dump(trainer.init())
    names = {name: name.partition(".")[2] for name in arrays if name.startswith((PREFIX, REST))}
    if different := sorted(set(names.values()) ^ set(values)):
        raise Refused(f"{file} does not fit the run's model: not both have {', '.join(different)}")
    return make_state(trainer.load, arrays | {name: values[own] for name, own in names.items()}, file)
