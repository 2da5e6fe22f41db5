"""Contracts between the rooms of the project, as types: step network, trainer. A task has `tasks.contracts`."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ponder_ref.base import Batch, Predicted
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Optimiser


class StepNetwork(Protocol):
    """What `PonderNet` wraps: `step(x, h) -> (y_hat, h, halt_logit)`. This is all that is needed; it may bring more.

    `initial_state(x)`, h₀ of the projected input, and `project(x)`, what the step sees of the input, computed once:
      then PonderNet is given neither initial_state nor encoder.
    `unroll(x, max_steps, rule)`, steps that are faster than one by one and give equal numbers, to rounding: (y_hat
      `[n, batch, ...]`, halt_logits `[n, batch]`, state, lengths `[batch]`) of the input itself. The `HaltRule` says
      when an example has had enough steps, None runs all; n may be smaller than max_steps if all have. It returns None
      where it cannot be used, say under a transform: then the steps are run one by one. So they are where a subclass
      has replaced what its steps do.
    `steps_run(longest, max_steps)`, where `unroll` runs more steps than its longest example takes: how many were run, a
      scalar, if that took `longest`. `max_steps` is that of `unroll`: 1 for the method "once", else the net's.
    `OWN_METHODS`, names of methods of halting that are for it alone, and `unroll_by(method, x, *, max_steps,
      act_epsilon) -> Pondered`.
    """

    def __call__(self, x: Any, h: Any, /) -> tuple[Any, Any, Any]: ...


class Trainer(Protocol):
    """Trains a PonderNet: a function of state and batches, without files and without chance.

    Only NumPy arrays and plain values go in and out; a state is the backend's own.
    """

    def init(self, params: Mapping[str, np.ndarray] | None = None) -> Any:
        """The state before the first update; None leaves the network the parameters that it was built with."""
        ...

    def load(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The state that `dump` gave, on whichever backend."""
        ...

    def dump(self, state: Any) -> dict[str, np.ndarray]:
        """ "params.NAME", "m.NAME", "v.NAME", "rest.NAME" and "update", as copies in C order."""
        ...

    def train_steps(self, state: Any, chunk: Batch) -> tuple[Any, dict[str, np.ndarray]]:
        """K updates, one for each entry of the chunk's first axis; metrics `[K]` by name (TRAIN_KEYS)."""
        ...

    def unroll(self, state: Any, inputs: Any, *, max_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `[N, batch, ...]` and halting logits `[N, batch]` of all steps, whatever halts: `net(x)`."""
        ...

    def predict(self, state: Any, inputs: Any, **options: Any) -> Predicted:
        """Answers, steps and rows as NumPy values, by `net.predict` with its options."""
        ...


class MakesTrainer(Protocol):
    """`make_trainer` of a backend's module, by which tasks begin."""

    def __call__(
        self,
        network: Network,
        optimiser: Optimiser,
        *,
        dtype: str = "float32",
        threads: int | None = None,
        build: Any = None,
    ) -> Trainer:
        """`build(problem) -> PonderNet` is given for a network of somebody's own."""
        ...
