"""Networks from files (`ponder_ref.runtime.saved`)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from ponder_ref import checks
from ponder_torch.models import net_of
from ponder_torch.net import PonderNet


def load(path: str | Path, *, build: Callable | None = None) -> PonderNet:
    """The network at a path, ready for `net(x)`, `net.predict` and `stream`, in evaluation mode.

    Args:
      path: the folder of a run, a folder that `net.save` wrote on any backend, or a file of one.
      build: `build(problem) -> PonderNet`, for a network of somebody's own (`ponder_ref.runtime.network.Problem`).

    ValueError if there is no such network, or it is damaged.
    """
    from ponder_ref.runtime.saved import load_net  # needs what only files need

    def put(net: PonderNet, params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
        dtypes = {x.dtype.name for x in params.values() if x.dtype.name in checks.FLOATS}
        if len(dtypes) == 1:  # that of its training; where somebody's own network has several, they are as built
            net.to(getattr(torch, dtypes.pop()))
        put_variables(net, params, rest)

    return load_net(path, build, net_of, put)


def put_variables(net: PonderNet, params: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]) -> None:
    """Gives a net its variables; ValueError if they are not those of the net."""
    own, others = net.variables()
    wanted, found = {**own, **others}, {**params, **rest}  # a parameter that was not trained may be among the rest
    checks.check_arrays("the network", found, {name: x.shape for name, x in wanted.items()})
    with torch.no_grad():
        for name, x in wanted.items():
            x.copy_(torch.from_numpy(np.array(found[name])))
