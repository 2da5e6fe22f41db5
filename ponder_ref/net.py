"""A PonderNet in NumPy: a network that was trained on any backend, for answers without a framework and as an oracle."""

from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.base import Pondered, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.infer import predict
from ponder_ref.models import step_of
from ponder_ref.pondering import ponder
from ponder_ref.runtime.module import own_methods
from ponder_ref.runtime.settings import Halting


class PonderNet:
    """A step network of `ponder_ref.models` and how it ponders (M1 to M4). It answers; it is not trained.

    step: `step(x, h) -> (y_hat, h, halt_logit)` with `project(x)` and `initial_state(x)`.
    """

    def __init__(self, step: Any, halting: Halting):
        checks.check_choice("method", halting.method, (*checks.METHODS, *own_methods(step)))
        self.step, self.halting, self.method, self.max_steps = step, halting, halting.method, halting.max_steps
        self.epsilon, self.min_steps, self.remainder = halting.epsilon, halting.min_steps, halting.remainder

    def start(self, x: Any) -> tuple[Any, Any]:
        """What the step sees of an input, and h₀."""
        x = self.step.project(x)
        return x, self.step.initial_state(x)

    def __call__(self, x: Any, *, max_steps: int | None = None) -> Pondered:
        """Ponders over a batch, step by step; `max_steps` stands in for the network's own."""
        steps = self.max_steps if max_steps is None else max_steps
        if self.method not in checks.METHODS:
            return self.step.unroll_by(self.method, x, max_steps=steps, act_epsilon=self.halting.act_epsilon)
        limits = {"min_steps": min(self.min_steps, steps), "epsilon": self.epsilon, "remainder": self.remainder}
        rest = {"method": self.method, "act_epsilon": self.halting.act_epsilon}
        return ponder(self.step, *self.start(x), max_steps=steps, **limits, **rest)

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
