"""What a task is to the harness: the Protocol `Task`. A task inherits it, and with it what it need not say.

A task gives NumPy batches and a network of `ponder_ref.models`, or files with networks of its own, one per backend; it
knows no framework, no files of a run and no loop.
"""

import argparse
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models import Model
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.network import Network
from ponder_ref.trees import map_tree
from tasks.batches import EVAL_BATCH, EvalBatch
from tasks.config import TrainingConfig
from tasks.views import Views

C = TypeVar("C", bound=TrainingConfig)


class Task(Views, Protocol[C]):
    """A task with its settings: what it is trained and evaluated on, and (`Views`) how its results are shown.

    NAME is that of `python -m tasks.NAME`, config.json and the registry; Config the class of its settings; PRESETS has
    settings by the name of --preset, "default" among them. `tasks.parity.task.Parity` is the shortest example.
    """

    TITLE: ClassVar[str]
    """One sentence for --help."""

    EXAMPLES: ClassVar[tuple[str, ...]]
    """Command lines for --help."""

    EVALUATION_FLAGS: ClassVar[tuple[str, ...]]
    """Settings that --evaluate may change."""

    PRETRAINED: ClassVar[Path | None] = None
    """The folder of a shipped checkpoint, if one is shipped."""

    config: C

    own: Network | None = None
    """The network of --model or NETWORKS, None is that of `model()`."""

    def __init__(self, config: C) -> None:
        """Opens no more than it must: a model is evaluated on other data than it was trained on."""
        self.config = config

    @staticmethod
    def add_own_flags(parser: argparse.ArgumentParser) -> None:
        """Adds flags that are not settings of a run; usually there are none."""

    @staticmethod
    def use_own_flags(options: argparse.Namespace) -> None:
        """Turns such flags into settings."""

    def check(self) -> str | None:
        """Opens everything that a training will read: what cannot be read is refused before a folder is made.

        Returns a checksum of the files of training and validation, None if there are none: a run does not go on with
        others than it began with.
        """
        return None

    def model(self) -> Model:
        """The settings of the task's network; not needed by a task with NETWORKS."""
        raise Refused(f"the task {self.NAME} has no network of the paper")

    def answer(self) -> tuple[int, str]:
        """What is predicted for each answer: (1, "binary") or (number of classes, "classes")."""
        model: Any = self.model()
        return (1, model.output) if model.output == "binary" else (model.outputs, model.output)

    def network(self) -> Network:
        """The network and how it ponders: what is trained, and what a checkpoint describes."""
        return self.own or Network(self.model(), self.config.halting())

    def initial_parameters(self) -> dict[str, np.ndarray]:
        """The parameters of the task's network before the first update."""
        return self.model().initial_parameters(self.config.seed)

    def plain(self, inputs: Any) -> Any:
        """The inputs as one tree with the examples first in every leaf: what a network of somebody's own is given."""
        return inputs

    def splits(self, stage: str) -> tuple[str, ...]:
        """The splits that are evaluated for "valid" or "test"; usually that one."""
        return (stage,)

    def describe(self, split: str) -> str:
        """The data of a split, in a few words."""
        ...

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """The batches of these indices, stacked: a pure function of (settings, split, index).

        inputs: a tree with `[K, B, ...]`; targets `[K, B, ...answers]`; weights `[K, B]` or None; example_ids `[K, B]`.
        In training the index is the update's number less one.
        """
        ...

    def evaluation(self, split: str, examples: int) -> Iterator[EvalBatch]:
        """The first examples of a split, batch by batch; example i is the same for any number of them."""
        for index in range(-(-examples // EVAL_BATCH)):
            batch = self.batches(split, [index])
            inputs = map_tree(itemgetter(0), batch.inputs)
            count = min(EVAL_BATCH, examples - index * EVAL_BATCH)
            yield EvalBatch(inputs, batch.targets[0], batch.example_ids[0], self.groups(inputs), count)

    def groups(self, inputs: Any) -> np.ndarray:
        """The group (`GROUP`) of each example `[B]`, a whole number; asked by `evaluation`."""
        raise Refused(f"the task {self.NAME} does not say what its examples are grouped by")
