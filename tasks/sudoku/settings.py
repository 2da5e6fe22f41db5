"""Settings and presets of the Sudoku task."""

import dataclasses
from typing import Any

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.values import Choice, Span, option
from tasks.config import TrainingConfig
from tasks.flags import show
from tasks.sudoku.bases import BLANKS

TASK = "sudoku task"


@dataclasses.dataclass(frozen=True)
class SudokuConfig(TrainingConfig):
    """Settings of a Sudoku run."""

    size: str = option("4", Choice(tuple(map(str, BLANKS))), "rows, columns and digits of a puzzle", group=TASK)
    blanks: tuple[int, int] | None = option(
        None, Span(1, 54), "numbers of blank cells, auto is all that there are puzzles for", group=TASK
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = BLANKS[self.side]
        if self.blanks is not None and not low <= self.blanks[0] <= self.blanks[1] <= high:
            raise Refused(f"--blanks must lie in {low}..{high} (--size {self.size}), got {show(self.blanks)}")

    @property
    def side(self) -> int:
        return int(self.size)

    @property
    def span(self) -> tuple[int, int]:
        """The range of the number of blanks."""
        return self.blanks or BLANKS[self.side]


COMMON: dict[str, Any] = {"lambda_p": 0.3, "beta": 0.01, "learning_rate": 2e-3, "decay": "linear"}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        **COMMON,
        "max_steps": 12,
        "updates": 1500,
        "log_every": 50,
        "eval_every": 100,
        "checkpoint_every": 250,
        "test_examples": 10_000,
    },
    "smoke": {
        **COMMON,
        "blanks": (4, 6),
        "max_steps": 4,
        "batch_size": 32,
        "updates": 100,
        "chunk": 10,
        "log_every": 20,
        "eval_every": 50,
        "eval_examples": 512,
        "checkpoint_every": 50,
    },
    "six": {
        **COMMON,
        "size": "6",
        "blanks": (6, 24),
        "max_steps": 12,
        "updates": 1500,
        "log_every": 50,
        "eval_every": 250,
        "checkpoint_every": 250,
        "test_examples": 10_000,
    },
    "nine": {
        **COMMON,
        "size": "9",
        "blanks": (10, 50),
        "max_steps": 12,
        "batch_size": 64,
        "clip": 1.0,
        "updates": 5000,
        "eval_every": 500,
        "checkpoint_every": 500,
        "test_examples": 10_000,
    },
}
