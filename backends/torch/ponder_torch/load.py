"""Networks from and into files, and the names of their variables (`ponder_ref.runtime.saved`)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.network import Network, Own
from ponder_ref.runtime.saved import read_saved, write_saved
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
    try:
        saved = read_saved(path)
    except Refused as error:
        raise ValueError(str(error)) from None
    net = net_of(saved.network, build)
    if net.settings is not None:  # in the dtype of its training; what is somebody's own has its own dtypes
        net = net.to(getattr(torch, next(iter(saved.params.values())).dtype.name))
    try:
        put_variables(net, saved.params, saved.rest)
    except ValueError as error:
        raise ValueError(f"{saved.path} does not fit the network: {error}") from None
    return net.eval()


def save(net: PonderNet, folder: str | Path) -> Path:
    """Writes a network into a folder; what `PonderNet.save` does."""
    if net.settings is not None and net.log_prior is not None:
        raise ValueError("a network of the paper is saved with the name of its prior, and log_prior has none")
    if net.settings is not None:
        described = Network(net.settings, net.halting)
    elif net.described is not None:
        described = Network(net.described.model, net.halting)
    else:
        described = Network(Own(type(net.step).__qualname__, "", [], 0, ""), net.halting)
    params, rest = ({name: to_numpy(x) for name, x in part.items()} for part in variables(net))
    try:
        return write_saved(folder, described, params, rest)
    except Refused as error:
        raise ValueError(str(error)) from None


def variables(net: PonderNet) -> tuple[Tensors, Tensors]:
    """Parameters, and the other variables (running statistics, parameters that are not trained), by name.

    The names are paths in the module, of a network of the paper below its step. What is tied counts once.
    """
    module: nn.Module = net if net.settings is None else net.step  # type: ignore[assignment]
    params = dict(module.named_parameters())
    saved = module.state_dict(keep_vars=True)
    rest = {name: x for name, x in module.named_buffers() if name in saved}
    fixed = {name: x for name, x in params.items() if not x.requires_grad}
    return {name: x for name, x in params.items() if name not in fixed}, {**rest, **fixed}


def put_variables(net: PonderNet, params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a net's variables; ValueError if they are not those of the net."""
    for wanted, found in zip(variables(net), (params, rest), strict=True):
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
