"""Networks and trainers of a backend by its package's name, for the checks that both backends share."""

from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting, Optimiser


def make_net(package: str, model: Any, params: Mapping[str, np.ndarray], **halting: Any) -> Any:
    """The PonderNet of a network of the paper with these parameters."""
    net = import_module(f"{package}.models").net_of(Network(model, Halting(**halting)))
    import_module(f"{package}.load").put_variables(net, params, {})
    return net


def make_trainer(package: str, model: Any, halting: Halting, optimiser: Optimiser, **options: Any) -> Any:
    """Its trainer."""
    return import_module(f"{package}.train").make_trainer(Network(model, halting), optimiser, **options)


def run_with(backend: Any, net: Any, params: Mapping[str, Any], x: Any) -> Any:
    """What a network gives with other parameters, as a function of them that can be differentiated."""
    if backend.NAME == "torch":
        import torch

        return torch.func.functional_call(net, {f"step.{name}": value for name, value in params.items()}, (x,))
    from flax import nnx

    held = nnx.clone(net)
    for name, value in params.items():
        reduce(getattr, name.split("."), held.step)[...] = value
    return held(x)
