"""Finds the backend a name stands for: an entry point of `pondernet.backends`, a module, or `module:attribute`."""

import importlib
from importlib.metadata import entry_points
from typing import Any

GROUP = "pondernet.backends"
EXTRAS = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "ponder_torch": "torch", "ponder_jax": "jax"}


class CannotRun(Exception):
    """The judge could not be run; one sentence says why."""


def load(name: str) -> Any:
    """The backend of that name, imported."""
    known = {point.name: point.value for point in entry_points(group=GROUP)}
    module_name, _, attribute = known.get(name, name).partition(":")
    try:
        backend: Any = importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else ():
            backend = getattr(backend, part)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in EXTRAS:
            hint = f"pip install -e '.[{EXTRAS[missing]}]' in a clone of pondernet installs it"
            raise CannotRun(f"backend {name!r} needs {missing!r}, which is not installed: {hint}") from None
        if error.name and module_name.split(".")[0] == missing:
            names = ", ".join(sorted(known)) or "none installed"
            raise CannotRun(
                f"no backend {name!r}: no such module, and the entry points of {GROUP} are: {names}"
            ) from None
        raise CannotRun(f"backend {name!r} needs {error.name!r}, which is not installed") from None
    except Exception as error:
        sentence = " ".join(str(error).split())
        raise CannotRun(f"backend {name!r} could not be imported: {type(error).__name__}: {sentence}") from None
    return backend
