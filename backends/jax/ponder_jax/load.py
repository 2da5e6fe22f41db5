"""Networks from and into files, and the names of their variables (`ponder_ref.runtime.saved`)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

if TYPE_CHECKING:  # Flax and what reads files are imported when they are needed
    from ponder_jax.net import PonderNet

Arrays = dict[str, jax.Array]


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
    from ponder_ref.runtime.errors import Refused
    from ponder_ref.runtime.saved import read_saved

    try:
        saved = read_saved(path)
    except Refused as error:
        raise ValueError(str(error)) from None
    net = net_of(saved.network, build)
    dtypes = {x.dtype for x in (*saved.params.values(), *saved.rest.values())}
    if np.dtype(np.float64) in dtypes and not jax.config.jax_enable_x64:  # type: ignore
        raise ValueError(f"{saved.path} holds float64, for which JAX needs JAX_ENABLE_X64=1 in the environment")
    try:
        put_variables(net, saved.params, saved.rest)
    except ValueError as error:
        raise ValueError(f"{saved.path} does not fit the network: {error}") from None
    net.eval()
    return net


def save(net: "PonderNet", folder: str | Path) -> Path:
    """Writes a network into a folder; what `PonderNet.save` does."""
    from ponder_ref.runtime.errors import Refused
    from ponder_ref.runtime.saved import write_saved

    if net.log_prior is not None:
        raise ValueError("a network is saved with the name of its prior, and log_prior has none")
    params, rest = ({name: to_numpy(x) for name, x in part.items()} for part in variables(net))
    try:
        return write_saved(folder, net.network, params, rest)
    except Refused as error:
        raise ValueError(str(error)) from None


def take_apart(net: "PonderNet") -> tuple[Any, Any, Any]:
    """The structure of a net, its parameters, and its other variables; what it has sown is left out."""
    from flax import nnx

    graph, params, _, rest = nnx.split(net, nnx.Param, nnx.Intermediate, ...)
    return graph, params, rest


def names_of(net: "PonderNet", state: Any) -> list[str]:
    """The names of a state's arrays, in the order of its leaves: paths, of a network of the paper below its step."""
    names = []
    for path, _ in jax.tree.leaves_with_path(state):
        parts = [str(getattr(key, "key", getattr(key, "idx", ""))) for key in path if not isinstance(key, GetAttrKey)]
        names.append(".".join(parts[1:] if net.settings is not None and parts[0] == "step" else parts))
    return names


def variables(net: "PonderNet") -> tuple[Arrays, Arrays]:
    """Parameters, and the other variables (running statistics, random keys), by name."""
    _, *parts = take_apart(net)
    params, rest = (dict(zip(names_of(net, part), jax.tree.leaves(part), strict=True)) for part in parts)
    return params, rest


def put_variables(net: "PonderNet", params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a net's variables; ValueError if they are not those of the net."""
    from flax import nnx

    _, *parts = take_apart(net)
    for part, arrays in zip(parts, (params, rest), strict=True):
        names, leaves = names_of(net, part), jax.tree.leaves(part)
        check_arrays(dict(zip(names, leaves, strict=True)), arrays)
        new = [from_numpy(arrays[name], like) for name, like in zip(names, leaves, strict=True)]
        nnx.update(net, jax.tree.unflatten(jax.tree.structure(part), new))


def check_arrays(wanted: Mapping[str, jax.Array], found: Mapping[str, np.ndarray]) -> None:
    """Names and shapes are those of the variables."""
    if set(wanted) != set(found):
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise ValueError(f"the names must be those of the network's variables: missing {missing}, unknown {unknown}")
    for name, like in wanted.items():
        shape = to_numpy(like).shape
        if tuple(found[name].shape) != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {tuple(found[name].shape)}")


def is_key(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def is_half(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4


def to_numpy(x: jax.Array) -> np.ndarray:
    """A variable's array; of random keys their data, of half precision (NumPy lacks bfloat16) float32."""
    array = np.array(jax.random.key_data(x) if is_key(x) else x, order="C")
    return array.astype(np.float32) if is_half(array) else array


def from_numpy(array: np.ndarray, like: jax.Array, dtype: str | None = None) -> jax.Array:
    """The array as a variable's: random keys of their data, floats in a dtype if one is given.

    Else a variable of half precision keeps its own dtype.
    """
    if is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
    if dtype is None and is_half(like):
        return jnp.asarray(array).astype(like.dtype)
    return jnp.asarray(array, dtype if jnp.issubdtype(array.dtype, jnp.floating) else None)
