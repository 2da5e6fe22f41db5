"""What a task is to the harness: the Protocol `Task`. A task inherits it, and with it what it need not say.

A task gives NumPy batches and a network of `ponder_ref.models`; it knows no framework, no files of a run and no loop.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models import Model
from ponder_ref.runtime.network import Network
from tasks.batches import EvalBatch
from tasks.options import TrainingConfig
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
    """The network of --model, None is the task's."""

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
        """The settings of the task's network."""
        ...

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
        """The splits that are evaluated for "valid" or "test"."""
        ...

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
        ...
