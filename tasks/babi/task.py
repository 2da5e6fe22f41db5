"""The bAbI experiment (paper §3.2 and app. C) as `tasks.command` wants it: batches of stories, evaluation, reports.

All twenty tasks are trained jointly. Stories are generated, a new set of them every so many updates, or read from the
released files.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models._buckets import bucket_lengths
from ponder_ref.models.transformer import Transformer
from ponder_ref.runtime.checkpoint import fingerprint
from ponder_ref.runtime.errors import Refused
from tasks.babi.download import URL, choose_folder
from tasks.babi.encode import Inputs, Table, buckets_up_to, cut, generated_table, join, loaded_table
from tasks.babi.files import open_source
from tasks.babi.report import draw, lines
from tasks.babi.sampling import Pool
from tasks.babi.settings import ANY, DATA, PRESETS, BabiConfig
from tasks.babi.stories import TASK_NAMES
from tasks.batches import EvalBatch
from tasks.contracts import Task

if TYPE_CHECKING:
    from tasks.results.experiment import Experiment

PRETRAINED = Path(__file__).parent / "pretrained"  # the shipped checkpoint, made by tasks.babi.ship
EVAL_ROWS = 2048  # sentences of an evaluation batch, about: fewer examples of longer stories


class Babi(Task[BabiConfig]):
    """The task as `tasks.command` wants it."""

    NAME = "babi"
    TITLE = "PonderNet on the twenty bAbI tasks: a Universal Transformer that decides how long to read."
    GROUP = "task"
    ORDERED = False
    SHARES = True
    FILES: ClassVar[Mapping[str, str]] = {"data_dir": "DIR"}
    EVALUATION_FLAGS = ("max_steps", "data_dir", "layout")
    PRETRAINED = PRETRAINED
    Config = BabiConfig
    PRESETS = PRESETS
    EXAMPLES = (
        "python -m tasks.babi --out runs/babi                            some minutes, on generated stories",
        "python -m tasks.babi --tasks 1,2,15 --out runs/few",
        "python -m tasks.babi --preset solve --out runs/solve            about 40 minutes of one core, then 20 more:",
        "python -m tasks.babi --preset finish --start runs/solve --out runs/finish      all twenty tasks",
        "python -m tasks.babi --data-dir DIR --out runs/released         the released files",
        "python -m tasks.babi --evaluate runs/finish --data-dir DIR --split valid",
        "python -m tasks.babi --evaluate pretrained                       the shipped checkpoint",
    )

    @staticmethod
    def add_own_flags(parser: Any) -> None:
        group = parser.add_argument_group(DATA)
        group.add_argument("--download", action="store_true", help="fetch the released files once, and use them")
        group.add_argument("--url", metavar="URL", help=f"with --download: address of the archive (default {URL})")

    @staticmethod
    def use_own_flags(options: Any) -> None:
        """Sets --data-dir to what was fetched."""
        given = {name: getattr(options, name, None) for name in ("data_dir", "url")}
        folder = choose_folder(download=getattr(options, "download", False), **given)
        if folder is not None:
            options.data_dir = folder
            if hasattr(options, "evaluate"):  # on other files than the run's own, whose layout does not count then
                options.layout = getattr(options, "layout", ANY)
        elif hasattr(options, "layout") and not hasattr(options, "resume") and not hasattr(options, "evaluate"):
            raise Refused("--layout chooses among released files: it goes with --data-dir or --download")

    def __init__(self, config: BabiConfig):
        super().__init__(config)
        self.numbers = config.task_numbers()
        layout = None if config.layout == ANY else config.layout
        self.source = None if config.data_dir is None else open_source(config.data_dir, layout)

    def model(self) -> Transformer:
        return self.config.model_settings()

    def splits(self, stage: str) -> tuple[str, ...]:
        return (stage,)

    def describe(self, split: str) -> str:
        source = "generated stories" if self.source is None else f"files of {Path(self.source.label).name}"
        return f"{len(self.numbers)} tasks, {source}"

    def table(self, split: str, part: int = 0) -> Table:
        c = self.config
        if self.source is not None:
            return loaded_table(self.source, self.numbers, split)
        if split != "train":
            return generated_table(self.numbers, split, c.held_out, c.seed, part)
        counts = c.question_counts()
        return join([generated_table((task,), split, counts[task], c.seed, part) for task in self.numbers])

    def pool(self, split: str, part: int = 0) -> Pool:
        """The questions of a split, cut to the longest story; training's may come in parts."""
        return self._pool(split, part)  # one spelling: the cache tells arguments by how they are given

    @functools.lru_cache(maxsize=2)  # noqa: B019 (a run has one task)
    def _pool(self, split: str, part: int) -> Pool:
        return Pool(
            cut(self.table(split, part), self.config.sentences),
            buckets_up_to(self.config.sentences),
            shares=self.config.shares() if split == "train" else None,
        )

    @functools.cached_property
    def rows(self) -> dict[int, int]:
        """Rows of a training batch from each bucket, by its number of sentences: those of the first part, for all."""
        pool = self.pool("train", 0)
        try:
            return {b.size: n for b, n in zip(pool.buckets, pool.rows(self.config.batch_size), strict=True)}
        except ValueError as error:
            raise Refused(f"--batch-size is too small: {error}") from None

    def check(self) -> str | None:
        """Opens what a training will read, so that what cannot be read is refused before it begins.

        Returns the checksum of what it sees of files: questions and their stories, in order and cut.
        """
        _ = self.rows
        self.pool("valid")
        if self.source is not None and self.config.ends_with_test:
            try:
                self.table("test")
            except Refused as error:
                raise Refused(f"{error} (--test-examples off trains without a test)") from None
        if self.source is None:
            return None
        tables = {split: self.pool(split).table._asdict() for split in ("train", "valid")}
        return fingerprint({f"{split}.{name}": x for split, table in tables.items() for name, x in table.items()})

    def part(self, index: int) -> int:
        return 0 if self.config.renew is None or self.source is not None else index // self.config.renew

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """Training batches: "words.L" `[K, b, L, 11]` for each bucket."""
        made = [self.one_batch(index) for index in indices]
        inputs = {name: np.stack([batch.inputs[name] for batch in made]) for name in made[0].inputs}
        rest = (np.stack(arrays) for arrays in zip(*(batch[1:] for batch in made), strict=True))
        return Batch(inputs, *rest)

    def one_batch(self, index: int) -> Batch:
        """Stories of a length that the first set does not have are left out: the shapes are fixed."""
        pool = self.pool("train", self.part(index))
        drawn = pool.batches(self.config.seed, [index], [self.rows.get(bucket.size, 0) for bucket in pool.buckets])
        by_size = {bucket.size: batch for bucket, batch in zip(pool.buckets, drawn, strict=True)}
        inputs, parts = {}, []
        for size, rows in self.rows.items():
            if size in by_size:
                stories, *rest = by_size[size]
                part = Batch(Inputs(*(x[0] for x in stories)), *(x[0] for x in rest))
            else:  # a set without stories of this length: rows of weight 0 keep the shapes
                part = pool.filler(rows, size)
            inputs |= named(part.inputs)
            parts.append(part)
        targets, weights, ids = (np.concatenate(arrays) for arrays in zip(*(part[1:] for part in parts), strict=True))
        return Batch(inputs, targets, weights, ids)

    def evaluation(self, split: str, examples: int) -> Iterator[EvalBatch]:
        """The first questions of every task of a split, about `examples` in all, bucket by bucket."""
        pool = self.pool(split)
        each = max(1, examples // len(self.numbers))
        tasks = pool.table.tasks
        rank = np.arange(len(tasks)) - np.searchsorted(tasks, tasks)  # the table has its tasks in order
        for batch in pool.in_order(lambda size: max(1, EVAL_ROWS // (size + 1)), rank < each):
            ids, counted = batch.example_ids, int(batch.weights.sum())
            yield EvalBatch(named(batch.inputs), batch.targets, ids, tasks[ids], counted)

    def plain(self, inputs: Any) -> np.ndarray:
        """All buckets as one array `[..., sentences + 1, 11]`, rows of zeros in front of shorter stories."""
        length = self.config.sentences + 1
        padded = []
        for size in bucket_lengths(inputs):
            rows = inputs[f"words.{size}"]
            padded.append(np.pad(rows, [*[(0, 0)] * (rows.ndim - 2), (length - size, 0), (0, 0)]))
        return np.concatenate(padded, axis=-3)

    def report(self, record: dict[str, Any]) -> list[str]:
        return lines(record, TASK_NAMES)

    @classmethod
    def asked(cls, config: BabiConfig) -> dict[str, Any]:
        data = "generated" if config.data_dir is None else "released"
        return {"tasks": config.tasks, "data_dir": data, "layout": config.layout}

    @classmethod
    def draw(cls, config: BabiConfig, records: list[dict[str, Any]], folder: Path) -> list[Path]:
        return draw(records, folder)

    @classmethod
    def section(cls, experiment: "Experiment", docs: Path) -> list[str]:
        from tasks.babi.results import section

        return section(experiment, docs)


def named(inputs: Inputs) -> dict[str, np.ndarray]:
    """A bucket's stories under the name that the Transformer knows them by."""
    made = words(inputs)
    return {f"words.{made.shape[-2]}": made}


def words(inputs: Inputs) -> np.ndarray:
    """A bucket's stories as the Transformer takes them, `[b, L + 1, 11]`: padding in front, the question last."""
    size = inputs.sentences.shape[-2]
    place = np.arange(size) - (size - inputs.lengths[..., None])  # negative on padding
    rows = np.take_along_axis(inputs.sentences, np.maximum(place, 0)[..., None], axis=-2)
    rows = np.where(place[..., None] >= 0, rows, 0)
    return np.concatenate([rows, inputs.questions[..., None, :]], axis=-2).astype(np.int16)
