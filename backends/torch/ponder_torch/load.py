"""Networks from and into files, and the names of their variables (`ponder_ref.runtime.saved`)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ponder_ref import checks
from ponder_torch.arrays import to_numpy
from ponder_torch.models import net_of
from ponder_torch.net import PonderNet

Tensors = dict[str, torch.Tensor]


def load(path: str | Path, *, build: Callable | None = None) -> PonderNet:
    """The network at a path, ready for `net(x)`, `net.predict` and `stream`, in evaluation mode.

    Args:
      path: the folder of a run, a folder that `net.save` wrote on any backend, or a file of one.
      build: `build(problem) -> PonderNet`, for a network of somebody's own (`ponder_ref.runtime.network.Problem`).

    ValueError if there is no such network, or it is damaged.
    """
    from ponder_ref.runtime.errors import Refused
    from ponder_ref.runtime.saved import read_saved  # needs what only files need

    try:
        saved = read_saved(path)
    except Refused as error:
        raise ValueError(str(error)) from None
    net = net_of(saved.network, build)
    dtypes = {x.dtype.name for x in saved.params.values() if x.dtype.name in checks.FLOATS}
    if len(dtypes) == 1:  # that of its training; where somebody's own network has several, they are as built
        net = net.to(getattr(torch, dtypes.pop()))
    try:
        put_variables(net, saved.params, saved.rest)
    except ValueError as error:
        raise ValueError(f"{saved.path} does not fit the network: {error}") from None
    return net.eval()


def save(net: PonderNet, folder: str | Path) -> Path:
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


def variables(net: PonderNet) -> tuple[Tensors, Tensors]:
    """Parameters, and the other variables (running statistics), by name.

    The names are paths in the module, of a network of the paper below its step. What is tied counts once.
    """
    module: nn.Module = net if net.settings is None else net.step  # type: ignore[assignment]
    saved = module.state_dict(keep_vars=True)
    return dict(module.named_parameters()), {name: x for name, x in module.named_buffers() if name in saved}


def put_variables(net: PonderNet, params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a net's variables; ValueError if they are not those of the net."""
    own, others = variables(net)
    wanted, found = {**own, **others}, {**params, **rest}  # a parameter that was not trained may be among the rest
    check_arrays(wanted, found)
    with torch.no_grad():
        for name, x in wanted.items():
            x.copy_(torch.from_numpy(np.array(found[name])))


def check_arrays(wanted: Mapping[str, torch.Tensor], found: Mapping[str, np.ndarray]) -> None:
    """Names and shapes are those of the variables."""
    if set(wanted) != set(found):
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise ValueError(f"the names must be those of the network's variables: missing {missing}, unknown {unknown}")
    for name, x in wanted.items():
        if tuple(found[name].shape) != tuple(x.shape):
            raise ValueError(f"{name} must have the shape {tuple(x.shape)}, got {tuple(found[name].shape)}")
