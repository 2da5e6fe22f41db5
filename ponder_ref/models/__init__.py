"""The networks of the paper's experiments under canonical names (annex of the standard; spec M8 to M10).

One file per network; its settings are a frozen dataclass that knows the names, shapes and first values of its
parameters. Files that begin with an underscore are shared by several of them. A new network is a file here and one of
the same name in `models/` of each backend; its `SETTINGS` is the dataclass, whose `kind` is the file's name.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ponder_ref import checks


class Model(Protocol):
    """The settings of a network: plain values, and what follows from them."""

    @property
    def kind(self) -> str: ...

    @property
    def output(self) -> str: ...

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in canonical order."""
        ...

    def matrices(self) -> tuple[str, ...]:
        """The parameters that Muon trains."""
        ...

    def initial_parameters(self, seed: int) -> dict[str, np.ndarray]:
        """Parameters by canonical name, float64."""
        ...

    def with_masks(self, inputs: Any, seed: int, updates: Sequence[int], steps: int) -> Any:
        """The inputs of these updates, K in front of every shape, with the masks of the network's dropout if any."""
        ...


def check_parameters(model: Model, params: Mapping[str, Any]) -> None:
    """Names and shapes are the model's, no more and no fewer."""
    checks.check_arrays("the model", params, model.shapes())


def kinds() -> tuple[str, ...]:
    """The networks there are, by the names of their files."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"))


def step_of(settings: Model, params: Mapping[str, Any]) -> Any:
    """The step network of settings with these parameters."""
    check_parameters(settings, params)
    return importlib.import_module(f"{__name__}.{settings.kind}").Step(settings, params)


def settings_of(values: Mapping[str, Any]) -> Model:
    """The settings of a network from plain values; "kind" says which network it is."""
    kind: Any = values.get("kind")
    checks.check_choice("kind", kind, kinds())  # so that no file names code to import
    return importlib.import_module(f"{__name__}.{kind}").SETTINGS(**values)
