"""The networks of the paper's experiments under canonical names (annex of the standard; spec M8 to M10).

One file per network; its settings are a frozen dataclass that knows the names, shapes and first values of its
parameters. Files that begin with an underscore are shared by several of them.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


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


def check_parameters(model: Model, params: Mapping[str, Any]) -> None:
    """Names and shapes are the model's, no more and no fewer."""
    wanted = model.shapes()
    if set(params) != set(wanted):
        missing, unknown = sorted(set(wanted) - set(params)), sorted(set(params) - set(wanted))
        raise ValueError(f"params must have the names of the model: missing {missing}, unknown {unknown}")
    for name, shape in wanted.items():
        if tuple(params[name].shape) != shape:
            raise ValueError(f"params[{name!r}] must have the shape {shape}, got {tuple(params[name].shape)}")
