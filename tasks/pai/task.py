"""Paired associative inference as `tasks.command` wants it: batches, evaluations with controls."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.runtime.errors import Refused
from tasks.batches import EVAL_BATCH, EvalBatch
from tasks.contracts import Task
from tasks.pai import difficulty
from tasks.pai.data import Data
from tasks.pai.images import Images
from tasks.pai.layout import Inputs, shuffled_memory, without_memory
from tasks.pai.own import Own
from tasks.pai.released import SPLITS, Released
from tasks.pai.report import draw, lines
from tasks.pai.settings import CONTROLS, PRESETS, PaiConfig
from tasks.pai.trials import type_name

if TYPE_CHECKING:
    from tasks.results.experiment import Experiment

PAPER_ITEMS = 600  # of an evaluation in the paper's appendix
EVAL_ROWS = 128  # memories of one call; the model keeps the states of all steps
WAYS = {"no-memory": without_memory, "shuffled-memory": shuffled_memory}


class Pai(Task[PaiConfig]):
    """The task as `tasks.command` wants it."""

    NAME = "pai"
    TITLE = "PonderNet on paired associative inference: which picture belongs to the cue?"
    GROUP = "query"
    ORDERED = False  # no type of query is harder for its number
    SHARES = True
    FILES: ClassVar[Mapping[str, str]] = {"data_dir": "DIR", "embeddings": "FILE.npy", "labels": "FILE.npy"}
    GUESS = 0.5  # one of the two images shown, or its class
    EVALUATION_FLAGS = ("max_steps", "control", "data_dir", "embeddings", "labels")  # files may have been moved
    Config = PaiConfig
    PRESETS = PRESETS
    EXAMPLES = (
        "python -m tasks.pai --out runs/pai                                  about 20 minutes of one core",
        "python -m tasks.pai --method repeat --out runs/repeat",
        "python -m tasks.pai --preset class --out runs/class                 the paper's target: the match's class",
        "python -m tasks.pai --data-dir DIR --out runs/released              the released files",
        "python -m tasks.pai --embeddings FILE.npy --labels FILE.npy --out runs/own",
        "python -m tasks.pai --evaluate runs/pai --control no-memory",
        "python -m tasks.pai --evaluate runs/released --data-dir DIR         where the files are now",
    )

    def __init__(self, config: PaiConfig):
        super().__init__(config)
        c = config
        self.data: Data | Released
        if c.data_dir is not None:
            self.data, self.width = Released(Path(c.data_dir), c.seed, c.batch_size, c.length), Images.width
            return
        own = c.embeddings is not None and c.labels is not None
        source = Own(Path(str(c.embeddings)), Path(str(c.labels))) if own else Images(c.seed)
        self.data, self.width = Data(source, c.seed, c.batch_size, c.length, c.target), source.width
        if c.tied_output == "on" and self.data.outputs != self.width:
            sizes = f"{self.data.outputs} classes and images of {self.width} numbers"
            raise Refused(f"--tied-output needs a class for each number of an image, got {sizes}")

    def check(self) -> str | None:
        """Opens what a training will read, so that what cannot be read is refused before it begins.

        Returns the checksum of its files, None if the images are generated.
        """
        if isinstance(self.data, Released):
            self.data.check(SPLITS if self.config.ends_with_test else SPLITS[:2])
            return self.data.checksum()
        return self.data.source.checksum() if isinstance(self.data.source, Own) else None

    @classmethod
    def group_name(cls, group: int, config: PaiConfig) -> str:
        """A type of query, by its places in the sequence, or "other"."""
        return type_name(group, config.length)

    @classmethod
    def asked(cls, config: PaiConfig) -> dict[str, Any]:
        sources = {"data_dir": "generated" if config.data_dir is None else "released"}
        sources["embeddings"] = "generated" if config.embeddings is None else "own"
        return {"length": config.length, "target": config.target, **sources, "control": config.control}

    def model(self) -> PairTransformer:
        return self.config.model_settings(width=self.width, outputs=self.data.outputs)

    def initial_parameters(self) -> dict[str, np.ndarray]:
        return self.model().initial_parameters(self.config.seed, tied_output=self.config.tied_output == "on")

    def splits(self, stage: str) -> tuple[str, ...]:
        """What is evaluated; the test of a run has the paper's number of items and the controls beside it."""
        if self.config.control != "none":
            return (f"{stage}-{self.config.control}",)
        return (stage, "test-600", *(f"test-{name}" for name in CONTROLS)) if stage == "test" else (stage,)

    def describe(self, split: str) -> str:
        c = self.config
        # By its name alone: a path is another one on every machine.
        given = c.data_dir or c.embeddings
        source = "generated images" if given is None else Path(given).name
        return f"{source}, sequences of {c.length}, target {c.target}"

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """Batches as in `tasks.pai.layout` with `[K, B]` in front."""
        return self.data.batches(split, indices)

    def evaluation(self, split: str, examples: int) -> Iterator[EvalBatch]:
        """The first `examples` of a split; the names of controls and of the paper's test follow its own."""
        stage, _, way = split.partition("-")
        left = min(examples, PAPER_ITEMS) if way == "600" else examples
        for index in range(-(-left // EVAL_BATCH)):
            batch, (kinds,) = self.data.with_kinds(stage, [index])
            inputs: Inputs = {name: x[0] for name, x in batch.inputs.items()}
            inputs = WAYS[way](inputs) if way in WAYS else inputs
            for first in range(0, min(left, EVAL_BATCH), EVAL_ROWS):
                part = slice(first, first + EVAL_ROWS)
                rows = {name: x[part] for name, x in inputs.items()}
                targets, ids = batch.targets[0, part], batch.example_ids[0, part]
                yield EvalBatch(rows, targets, ids, kinds[part], min(left - first, EVAL_ROWS))
            left -= EVAL_BATCH

    @functools.cached_property
    def hardness(self) -> list[str]:
        """How hard the generated task is, measured without a model."""
        return difficulty.report(difficulty.measure(self.config.seed, self.config.length, quick=True)).splitlines()

    def report(self, record: dict[str, Any]) -> list[str]:
        generated = self.config.data_dir is None and self.config.embeddings is None
        beside = self.hardness if generated and record["split"] in ("test", "valid") else []
        return [*lines(record, self.config.length), *(f"  {line}" for line in beside)]

    @classmethod
    def draw(cls, config: PaiConfig, records: list[dict[str, Any]], folder: Path) -> list[Path]:
        return draw(records, config.length, folder)

    @classmethod
    def section(cls, experiment: "Experiment", docs: Path) -> list[str]:
        from tasks.pai.results import section

        return section(experiment, docs)
