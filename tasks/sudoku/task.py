"""The Sudoku task: one halting unit per puzzle, one class per cell; a puzzle is right if all its cells are.

    python -m tasks.sudoku --preset smoke --backend torch --out runs/smoke

Inputs are the cells, 0 for a blank and else the digit; targets are the digits of all cells, less one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ponder_ref.base import Batch
from tasks.batches import STREAMS, example_ids, words
from tasks.contracts import Task
from tasks.sudoku.bases import bases
from tasks.sudoku.draws import examples, words_needed
from tasks.sudoku.settings import PRESETS, SudokuConfig


class Sudoku(Task[SudokuConfig]):
    """The task as `tasks.command` wants it: config, presets, networks and batches."""

    NAME = "sudoku"
    TITLE = "PonderNet on Sudoku: fill in the blanks"
    GROUP = "blanks"
    EVALUATION_FLAGS = ("max_steps", "blanks")
    Config = SudokuConfig
    PRESETS = PRESETS
    NETWORKS: ClassVar[Mapping[str, str]] = {
        "torch": "tasks/sudoku/model_torch.py:build",
        "jax": "tasks/sudoku/model_jax.py:build",
    }
    EXAMPLES = (
        "python -m tasks.sudoku --preset smoke --backend torch --out runs/smoke",
        "python -m tasks.sudoku --out runs/sudoku                        a few minutes: 4x4 is learnt",
        "python -m tasks.sudoku --out runs/sudoku --resume",
        "python -m tasks.sudoku --evaluate runs/sudoku --blanks 12 --max-steps 20",
        "python -m tasks.sudoku --preset six --out runs/six",
        "python -m tasks.sudoku --model my_net.py:build --backend torch  a network of your own",
    )

    def answer(self) -> tuple[int, str]:
        return self.config.side, "classes"

    def describe(self, split: str) -> str:
        low, high = self.config.span
        return f"{low}-{high} blanks of {self.config.side**2} cells"

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """The batches of these indices, stacked: inputs and targets `[K, B, cells]` int64, ids `[K, B]` int64."""
        c, size = self.config, self.config.side
        ids = example_ids(split, indices, c.batch_size)
        random = words(c.seed, STREAMS[split], indices, ids.shape[1] * words_needed(size))
        cells, solved = examples(random.reshape(ids.size, -1), bases(size, split), size, c.span)
        return Batch(cells.reshape(*ids.shape, -1), solved.reshape(*ids.shape, -1) - 1, None, ids)

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        """The number of blanks of each puzzle."""
        return (inputs == 0).sum(axis=-1)

    @classmethod
    def asked(cls, config: SudokuConfig) -> dict[str, Any]:
        return {"size": config.size, "blanks": config.span}
