"""Backends' trainers, found by name and loaded only when they are needed."""

import importlib
import os
from importlib.util import find_spec
from typing import Any

from ponder_ref.checks import quoted
from ponder_ref.runtime.checkpoint import parameters
from ponder_ref.runtime.errors import Refused

FRAMEWORKS = ("jax", "torch")  # in the order of preference


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


def in_short(error: BaseException) -> str:
    """An error of somebody else's code: its type and the first line of what it says."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


def load(backend: str, dtype: str) -> Any:
    """The module with the `Trainer` of a backend: "torch", "jax", or a module of somebody else's by its dotted name."""
    unknown = f"--backend must be one of {', '.join(FRAMEWORKS)} or a module with a Trainer, got {quoted(backend)}"
    if not all(backend.split(".")):  # nothing, or a relative name
        raise Refused(unknown)
    name = f"ponder_{backend}.train" if backend in FRAMEWORKS else backend
    if backend == "jax" and dtype == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"  # read when jax is first imported
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
    if not hasattr(module, "Trainer"):
        raise Refused(f"--backend {backend}: the module {name} has no Trainer")
    return module


def make_trainer(backend: str, task: Any, threads: int) -> Any:
    """The backend's trainer for a task's model, method and optimiser."""
    c = task.config
    module = load(backend, c.dtype)
    settings = task.model(), c.method_settings(), c.optimiser_settings()
    try:
        if hasattr(module, "limit_threads"):
            module.limit_threads(threads)
        return module.Trainer(*settings, dtype=c.dtype, threads=threads)
    except ValueError as error:
        raise Refused(f"backend {quoted(backend)}: {error}") from None
    except RuntimeError as error:  # JAX's, where JAX_PLATFORMS names what this machine does not have
        raise Refused(f"backend {quoted(backend)} cannot be started: {in_short(error)}") from None
    except Exception as error:
        if backend in FRAMEWORKS:  # a fault of this project, which should be seen
            raise
        raise Refused(f"--backend {backend}: its Trainer cannot be made: {in_short(error)}") from None


def load_parameters(trainer: Any, arrays: dict[str, Any], file: object) -> Any:
    """A state with the checkpoint's parameters and nothing else of it: enough for evaluation."""
    try:
        return trainer.init(parameters(arrays))
    except ValueError as error:
        raise Refused(f"{file} does not fit the run's model: {error}") from None


def load_state(trainer: Any, arrays: dict[str, Any], file: object) -> Any:
    """The trainer's state from a checkpoint's arrays; those of another model are refused."""
    try:
        return trainer.load(arrays)
    except (ValueError, KeyError) as error:
        raise Refused(f"{file} does not fit the run's model: {error}") from None
