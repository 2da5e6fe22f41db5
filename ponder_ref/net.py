"""A PonderNet in NumPy: a network that was trained on any backend, for answers without a framework and as an oracle."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref import pondering
from ponder_ref.base import Pondered, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.infer import predict
from ponder_ref.models import step_of
from ponder_ref.priors import named_log_prior
from ponder_ref.runtime.module import AS_BUILT, PonderModule
from ponder_ref.runtime.settings import Halting


class PonderNet(PonderModule):
    """A step network of `ponder_ref.models` and how it ponders (M1 to M4). It answers; it is not trained.

    step: `step(x, h) -> (y_hat, h, halt_logit)` with `project(x)` and `initial_state(x)`.
    """

    maths, named_log_prior, log_prior = pondering, staticmethod(named_log_prior), None

    def __init__(self, step: Any, halting: Halting):
        self._build(step, (None, None, None), **asdict(halting))
        self._check_log_prior(None, None)

    def __call__(self, x: Any, *, max_steps: int | None = None) -> Pondered:
        """Ponders over a batch, step by step; `max_steps` stands in for the network's own."""
        return self._ponder(x, max_steps, self.method, AS_BUILT)

    def _step_by_step(self, x: Any, **options: Any) -> Pondered:
        return pondering.ponder(self.step, *self.start(x), **options)

    def predict(self, x: Any, *, max_steps: int | None = None, policy: str | None = None, **options: Any) -> Predicted:
        """The answer of each example after as many steps as it needs; options as for `ponder_ref.predict`."""
        return predict(self.step, *self.start(x), **{**own_exit(self, max_steps, policy), **options})


def load(path: str | Path) -> PonderNet:
    """The network at a path: a run's folder, a folder that `save` of any backend wrote, or a file of one.

    ValueError if there is none, if it is damaged, or if it is somebody's own, which only its framework can run.
    """
    from ponder_ref.runtime.saved import read_saved  # what reads files needs msgspec and safetensors

    saved = read_saved(path)
    if saved.network.is_own:
        raise ValueError(f"{saved.path} is a network of somebody's own ({saved.network.model.name}), not of the paper")
    params = {name: np.asarray(x, np.float64) for name, x in saved.params.items()}
    return PonderNet(step_of(saved.network.model, params), saved.network.halting)
