"""Settings and presets of the parity experiment (paper §3.1 and app. B)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.values import Choice, Integer, Number, Span, option
from tasks.config import TrainingConfig
from tasks.flags import show

TASK = "parity task"
MAX_BITS = 1024


@dataclasses.dataclass(frozen=True)
class ParityConfig(TrainingConfig):
    """Settings of a parity run."""

    bits: int = option(64, Integer(2, MAX_BITS), "entries of an input", group=TASK, paper="64; 96 to extrapolate")
    hidden: int = option(128, Integer(1, 4096), "tanh units of the RNN", group=TASK, paper="128")
    positions: str = option(
        "shuffled", Choice(("shuffled", "prefix")), "where the non-zero entries stand", group=TASK, paper="shuffled"
    )
    train_ones: tuple[int, int] | None = option(
        None,
        Span(1, MAX_BITS),
        "numbers of non-zero entries in training, auto is 1-BITS",
        group=TASK,
        paper="1-64; 1-48",
    )
    eval_ones: tuple[int, int] | None = option(
        None, Span(1, MAX_BITS), "a second range to evaluate on, auto is none", group=TASK, paper="49-96"
    )
    grow_from: int | None = option(
        None,
        Integer(1, MAX_BITS, off=True),
        "largest number of non-zeros in the first batch of training, off (or a larger one) is that of --train-ones",
        group=TASK,
    )
    grow_over: int = option(
        0, Integer(0, 10**9), "with --grow-from: updates until it is that of --train-ones", group=TASK
    )
    twins: str = option(
        "off",
        Choice(("on", "off")),
        "training examples come in twos that differ in one sign, and so in their parity",
        group=TASK,
    )
    input_scale: float | None = option(
        None, Number("(0, 100]", off=True), "standard deviation of the input weights, off is 1/√bits", group=TASK
    )
    input_connections: int | None = option(
        None,
        Integer(1, MAX_BITS, off=True),
        "inputs that reach a unit at the start, the other input weights are 0; off is all",
        group=TASK,
    )
    recurrent_scale: float = option(1.0, Number("(0, 100]"), "factor of the initial recurrent matrix", group=TASK)
    bias_scale: float = option(0.0, Number("[0, 100]"), "standard deviation of the units' initial biases", group=TASK)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, span in (("--train-ones", self.train_ones), ("--eval-ones", self.eval_ones)):
            if span is not None and span[1] > self.bits:
                raise Refused(f"{name} must lie in 1..{self.bits} (--bits), got {show(span)}")
        if self.input_connections is not None and self.input_connections > self.bits:
            raise Refused(
                f"--input-connections must lie in 1..{self.bits} (--bits) or be off, got {self.input_connections}"
            )
        train, other = self.ones("train"), self.eval_ones
        if self.grow_from is not None and self.grow_from < train[0]:
            raise Refused(f"--grow-from must be at least {train[0]} (--train-ones) or off, got {self.grow_from}")
        if self.grow_from is not None and not 1 <= self.grow_over <= self.updates:
            raise Refused(
                f"--grow-over must lie in 1..{self.updates} (--updates) with --grow-from {self.grow_from}, "
                f"got {self.grow_over}; --grow-from off begins with all numbers"
            )
        if other is not None and other != train and other[0] <= train[1] and train[0] <= other[1]:
            raise Refused(
                f"--eval-ones must be equal to --train-ones {show(train)} or apart from it, got {show(other)}"
            )

    def ones(self, split: str) -> tuple[int, int]:
        """The range of the number of non-zeros in a split."""
        train = self.train_ones or (1, self.bits)
        return (self.eval_ones or train) if split.endswith("-beyond") else train

    def most_ones(self, split: str, indices: Sequence[int] | range) -> np.ndarray:
        """The largest number of non-zeros in each of these batches, `[K]`: in training it may grow at first."""
        high = self.ones(split)[1]
        if split != "train" or self.grow_from is None:
            return np.full(len(indices), high)
        done = np.minimum(np.asarray(indices, np.int64), self.grow_over)
        first = min(self.grow_from, high)
        return first + (high - first) * done // self.grow_over


# `paper` has the settings of the appendix, `fast` those that were found to learn 64 bits in minutes.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "bits": 16,
        "hidden": 128,
        "max_steps": 10,
        "optimiser": "muon",
        "learning_rate": 1e-3,
        "input_scale": 0.5,
        "decay": "linear",
        "updates": 15_000,
        "log_every": 250,
        "eval_every": 500,
        "test_examples": 10_000,
    },
    "smoke": {
        "bits": 4,
        "hidden": 32,
        "max_steps": 5,
        "lambda_p": 0.4,
        "optimiser": "muon",
        "learning_rate": 3e-3,
        "matrix_learning_rate": 2e-2,
        "input_scale": 0.5,
        "updates": 300,
        "eval_every": 100,
        "log_every": 50,
        "eval_examples": 512,
        "checkpoint_every": 100,
    },
    "fast": {
        "bits": 64,
        "max_steps": 8,
        "lambda_p": 0.05,
        "optimiser": "muon",
        "learning_rate": 1e-3,
        "matrix_learning_rate": 4e-3,
        "input_scale": 2.0,
        "input_connections": 1,
        "bias_scale": 1.0,
        "grow_from": 32,
        "grow_over": 300_000,
        "twins": "on",
        "decay": "linear",
        "updates": 480_000,
        "log_every": 500,
        "eval_every": 5000,
        "test_examples": 100_000,
        "checkpoint_every": 5000,
    },
    "paper": {
        "updates": 250_000,
        "log_every": 500,
        "eval_every": 5000,
        "test_examples": 100_000,
        "checkpoint_every": 5000,
    },
}
