"""Networks from files (`ponder_ref.runtime.saved`)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from ponder_ref import checks

if TYPE_CHECKING:  # Flax and what reads files are imported when they are needed
    from ponder_jax.net import PonderNet


def load(path: str | Path, *, build: Callable | None = None) -> "PonderNet":
    """The network at a path, ready for `net(x)`, `net.predict` and `stream`, in evaluation mode.

    Args:
      path: the folder of a run, a folder that `net.save` wrote on any backend, or a file of one.
      build: `build(problem) -> PonderNet`, for a network of somebody's own (`ponder_ref.runtime.network.Problem`).

    Parameters have the dtype of the file, in which half precision is float32; those that `build` made in half precision
    keep it. float64 needs JAX_ENABLE_X64=1.

    ValueError if there is no such network, or it is damaged.
    """
    from ponder_jax.models import net_of
    from ponder_ref.runtime.saved import load_net

    def put(net: "PonderNet", params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
        dtypes = {x.dtype.name for x in (*params.values(), *rest.values())}
        if "float64" in dtypes and not jax.config.jax_enable_x64:  # type: ignore
            raise ValueError("it holds float64, for which JAX needs JAX_ENABLE_X64=1 in the environment")
        put_variables(net, params, rest)

    return load_net(path, build, net_of, put)


def put_variables(net: "PonderNet", params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
    """Gives a net its variables; ValueError if they are not those of the net."""
    from flax import nnx

    from ponder_jax.net import as_array, as_variable

    _, *parts = net.take_apart()
    for part, own, arrays in zip(parts, net.variables(), (params, rest), strict=True):
        checks.check_arrays("the network", arrays, {name: as_array(x).shape for name, x in own.items()})
        new = [as_variable(arrays[name], like) for name, like in own.items()]
        nnx.update(net, jax.tree.unflatten(jax.tree.structure(part), new))
