"""Batches of the task as a pure function of (seed, split, index), from generated images or from one's own."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.runtime.errors import Refused
from tasks.batches import STREAMS, example_ids, words
from tasks.pai.trials import LENGTHS, SEQUENCES, Drawn, draw, word_count

TARGETS = ("class", "side")


class Source(Protocol):
    """Where images come from: `tasks.pai.images.Images` or `tasks.pai.own.Own`. `picks` number those of a split."""

    width: int
    classes: int

    def size(self, split: str) -> int: ...

    def labels(self, split: str, picks: np.ndarray) -> np.ndarray: ...

    def embeddings(self, split: str, picks: np.ndarray) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class Data:
    """Memories of 16 sequences of `length` images, a query each; target the match's class id or its side."""

    source: Source
    seed: int
    batch_size: int
    length: int = 3
    target: str = "side"

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise Refused(f"the length of sequences must be one of {', '.join(map(str, LENGTHS))}, got {self.length}")
        if self.target not in TARGETS:
            raise Refused(f"the target must be one of {', '.join(TARGETS)}, got {self.target!r}")
        for split in ("train", "valid", "test"):
            if self.source.size(split) < SEQUENCES * self.length:
                raise Refused(
                    f"the {split} split has {self.source.size(split)} images, "
                    f"a memory of sequences of {self.length} needs {SEQUENCES * self.length}"
                )

    @property
    def outputs(self) -> int:
        """Answers that the target chooses from."""
        return 2 if self.target == "side" else self.source.classes

    def drawn(self, split: str, indices: Sequence[int] | range) -> tuple[Drawn, np.ndarray]:
        """Memories and queries of these batches, without their images, and the example ids `[K, B]`.

        Examples with even ids have direct queries, the others indirect ones: every batch is balanced.
        """
        ids = example_ids(split, indices, self.batch_size)
        count = word_count(self.length)
        random = words(self.seed, STREAMS[split], indices, ids.shape[1] * count).reshape(*ids.shape, count)
        return draw(random, ids % 2 == 0, self.source.size(split), self.length), ids

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """The batches of these indices, stacked: inputs as in `tasks.pai.layout` with leading axes `[K, B]`; targets
        and ids `[K, B]` int64."""
        return self.with_kinds(split, indices)[0]

    def with_kinds(self, split: str, indices: Sequence[int] | range) -> tuple[Batch, np.ndarray]:
        """The same batches, and the kind of each query `[K, B]`, an index into `query_types`."""
        drawn, ids = self.drawn(split, indices)
        queries = drawn.queries
        inputs = {
            "images": self.source.embeddings(split, drawn.picks),
            "rows": drawn.rows.astype(np.int32),
            "query": queries.slots.astype(np.int32),
        }
        if self.target == "side":
            targets = queries.side
        else:
            match = np.take_along_axis(drawn.picks, queries.match[..., None], axis=-1)[..., 0]
            targets = self.source.labels(split, match)
        return Batch(inputs, targets.astype(np.int64), None, ids), queries.kind
