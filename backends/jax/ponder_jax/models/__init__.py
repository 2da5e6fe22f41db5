"""The networks of the paper's experiments as step networks (spec M8 to M10), a file for each, and how one is built.

A file has the name of that in `ponder_ref.models`; its `Step(settings)` is a module whose parameters have the canonical
names as paths. `PonderNet(Step(settings), ...)` ponders with it; it brings its own start and a fast unroll.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ponder_jax.net import PonderNet
from ponder_ref import checks
from ponder_ref.models import Model, kinds
from ponder_ref.runtime.network import Network


class Group(nnx.Module):
    """Parameters whose names begin alike."""


class CanonicalStep(nnx.Module):
    """A step network with parameters by canonical name: "rnn.w_x" is the attribute `w_x` of the attribute `rnn`.

    They begin as the settings' initial parameters of seed 0.
    """

    def __init__(self, settings: Any):
        self.settings = settings
        for name, value in settings.initial_parameters(0).items():
            *groups, last = name.split(".")
            place: Any = self
            for group in groups:
                if not hasattr(place, group):
                    setattr(place, group, Group())
                place = getattr(place, group)
            setattr(place, last, nnx.Param(jnp.asarray(value, jnp.float32)))

    def params(self) -> dict[str, jax.Array]:
        """The parameters by canonical name, as the standard's functions take them."""
        return {name: reduce(getattr, name.split("."), self)[...] for name in self.settings.shapes()}  # type: ignore


def is_canonical(step: Any) -> bool:
    """Whether it is a step network of this folder itself, and not one that somebody has derived from it."""
    return isinstance(step, CanonicalStep) and type(step).__module__ == f"{__name__}.{step.settings.kind}"


def step_of(settings: Model) -> Any:
    """The step network of settings, with the initial parameters of seed 0."""
    checks.check_choice("kind", settings.kind, kinds())  # so that no file names code to import
    return import_module(f"{__name__}.{settings.kind}").Step(settings)


def net_of(network: Network, build: Callable | None = None) -> PonderNet:
    """The PonderNet that is described; `build(problem) -> PonderNet` makes one of somebody's own."""
    if not network.is_own:
        if build is not None:
            raise ValueError(f"build must not be given for a network of the paper, here {network.model.kind!r}")
        return PonderNet(step_of(network.model), **asdict(network.halting))
    if build is None:
        raise ValueError(
            f"build must be given, the function that makes this network ({network.model.name}): it is not of the paper"
        )
    net = build(network.model.problem(network.halting))
    if not isinstance(net, PonderNet):
        raise ValueError(f"build must return a PonderNet of ponder_jax, got {type(net).__name__}")
    network.check_built(net.halting)
    net.describe(network)
    return net
