"""Counts what a step network is really asked to compute: calls and rows, in compiled code too."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.registry import Trial


class Counter:
    """How often a step network was computed, and on how many rows.

    By the backend's `witness`, which sees every computation. Without one a call counts if its arrays have values; where
    the step is given placeholders instead, nothing can be counted, and the backend needs a `witness`.
    """

    def __init__(self, trial: Trial):
        self.backend = trial.subject.backend
        self.calls = self.rows = self.unseen = 0

    def start(self) -> None:
        self.calls = self.rows = self.unseen = 0

    def _see(self, values: Any) -> None:
        self.calls += 1
        self.rows += int(np.shape(values)[0]) if np.ndim(values) else 1

    def watched(self, array: Any) -> Any:
        """The array, whose computation is counted."""
        if hasattr(self.backend, "witness"):
            return self.backend.witness(self._see, array)
        try:
            values = np.asarray(self.backend.to_numpy(array))
        except Exception:  # whatever a framework says of a placeholder
            self.unseen += 1
        else:
            self._see(values)
        return array

    def of(self, step: Callable) -> Callable:
        """The step network, counted by its halting logits, or by its state if it returns that alone."""

        def counted(*args: Any) -> Any:
            result = step(*args)
            if not isinstance(result, tuple):
                return self.watched(result)
            y_hat, state, z = result
            return y_hat, state, self.watched(z)

        return counted

    def check(self, requirement: str, what: str, calls: int) -> None:
        """Exactly that many calls."""
        self.check_seen(requirement, what)
        if self.calls != calls:
            raise Violation(requirement, f"{what}: the step network was computed {self.calls} times, should be {calls}")

    def check_seen(self, requirement: str, what: str) -> None:
        if self.unseen and not self.calls:
            raise Violation(
                requirement,
                f"{what}: the step network is given placeholders without values, so its calls cannot be counted;"
                " offer witness, or list it in NOT_OFFERED",
            )
