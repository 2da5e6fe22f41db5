"""Finds the backend a name stands for: an entry point of `pondernet.backends`, a module (or a file), an attribute."""

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ponder_ref.runtime.errors import Refused

GROUP = "pondernet.backends"
EXTRAS = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "ponder_torch": "torch", "ponder_jax": "jax"}


def _from_file(path: Path) -> ModuleType:
    """The module of a file, wherever it lies; modules beside it can be imported by it."""
    if not path.is_file():
        raise Refused(f"no backend {str(path)!r}: there is no such file")
    name = path.stem if path.stem not in sys.modules else f"backend_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Refused(f"backend {str(path)!r} is not a Python module")
    sys.path.append(str(path.resolve().parent))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def backend_named(name: str) -> Any:
    """The backend of that name, imported: `module`, `module:attribute`, `file.py` or `file.py:attribute`."""
    known = {point.name: point.value for point in entry_points(group=GROUP)}
    module_name, _, attribute = known.get(name, name).partition(":")
    try:
        is_file = module_name.endswith(".py")
        backend: Any = _from_file(Path(module_name)) if is_file else importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else ():
            backend = getattr(backend, part)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in EXTRAS:
            hint = f"pip install -e '.[{EXTRAS[missing]}]' in a clone of pondernet installs it"
            raise Refused(f"backend {name!r} needs {missing!r}, which is not installed: {hint}") from None
        if error.name and module_name.split(".")[0] == missing:
            names = ", ".join(sorted(known)) or "none installed"
            raise Refused(
                f"no backend {name!r}: no such module, and the entry points of {GROUP} are: {names}"
            ) from None
        raise Refused(f"backend {name!r} needs {error.name!r}, which is not installed") from None
    except Refused:
        raise
    except (Exception, SystemExit) as error:
        sentence = " ".join(str(error).split())
        raise Refused(f"backend {name!r} could not be imported: {type(error).__name__}: {sentence}") from None
    check_lists(name, backend)
    return backend


def check_lists(name: str, backend: Any) -> None:
    """What a backend says of itself must have the form that the judge reads it in."""
    offered = getattr(backend, "NOT_OFFERED", ())  # DTYPES are judged (B1)
    if not isinstance(offered, tuple | list) or not all(isinstance(word, str) for word in offered):
        raise Refused(f"backend {name!r}: NOT_OFFERED must be a tuple of names, got {offered!r}")
    for attribute in ("ENVIRONMENT", "QUICK"):
        value = getattr(backend, attribute, {})
        if not isinstance(value, dict):
            raise Refused(f"backend {name!r}: {attribute} must be a dict, got {value!r}")
