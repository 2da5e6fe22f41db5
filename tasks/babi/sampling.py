"""Batches by number, for generated and for loaded stories alike: a pure function of (table, seed, update).

Every task is equally likely for each example, or has the share that it is given, and every question of a task is
equally likely, whatever their numbers. A batch has a fixed number of rows from each bucket of lengths, so that all
updates have the same shapes; weights make up for it: the weighted mean over a batch has the expectation that plain
draws would have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ponder_ref.base import Batch
from tasks.babi.encode import BUCKETS, Table, buckets_of, cut, gather
from tasks.batches import STREAMS, words


class Bucket(NamedTuple):
    """The questions of one bucket: size in sentences, ids `[n]`, the bounds `[n]` of their draws, and the share that
    plain draws would give the bucket."""

    size: int
    ids: np.ndarray
    bounds: np.ndarray
    share: float


class Pool:
    """A table's questions by bucket, ready for drawing. Buckets without questions are left out."""

    def __init__(self, table: Table, buckets: Sequence[int] = BUCKETS, shares: Mapping[int, float] | None = None):
        """`shares` says how often a task is drawn, where it is not 1; only ratios matter."""
        self.table = table
        tasks, places, counts = np.unique(table.tasks, return_inverse=True, return_counts=True)
        share = np.array([(shares or {}).get(int(task), 1.0) for task in tasks])
        chance = (share / (share.sum() * counts))[places]
        where = buckets_of(table.lengths(), buckets)
        self.buckets: list[Bucket] = []
        for index in np.unique(where):
            ids = np.flatnonzero(where == index)
            bounds = np.cumsum(chance[ids])
            self.buckets.append(Bucket(buckets[index], ids, bounds / bounds[-1], float(bounds[-1])))

    def rows(self, batch_size: int) -> tuple[int, ...]:
        """Rows per bucket, nearly in proportion to the shares and at least one, `batch_size` in all."""
        if batch_size < len(self.buckets):
            raise ValueError(f"a batch of {batch_size} cannot have a row of each of {len(self.buckets)} buckets")
        rows = [1] * len(self.buckets)
        while sum(rows) < batch_size:
            # The next row goes where rows are shortest of their share.
            rows[max(range(len(rows)), key=lambda i: self.buckets[i].share / rows[i])] += 1
        return tuple(rows)

    def batches(self, seed: int, indices: Sequence[int] | range, rows: Sequence[int]) -> list[Batch]:
        """The training batches of these indices (update − 1), stacked, one for each bucket.

        inputs: `Inputs` with `[K, rows, ...]`; targets, example_ids `[K, rows]` int64; weights `[K, rows]` float32:
        share/rows, the same in a bucket, so that the weights of an update sum to 1 over all buckets.
        """
        if len(rows) != len(self.buckets):
            raise ValueError(f"rows are needed for each of {len(self.buckets)} buckets, got {len(rows)}")
        draws = words(seed, STREAMS["train"], indices, 2 * sum(rows)).astype(np.uint64)
        uniform = ((draws[:, ::2] << np.uint64(32) | draws[:, 1::2]) >> np.uint64(11)) * 2.0**-53
        result = []
        for bucket, chosen in zip(self.buckets, np.split(uniform, np.cumsum(rows)[:-1], axis=1), strict=True):
            last = len(bucket.ids) - 1  # the last bound may fall short of 1 by rounding
            ids = bucket.ids[np.minimum(np.searchsorted(bucket.bounds, chosen, side="right"), last)]
            weights = np.full(ids.shape, bucket.share / max(1, ids.shape[1]), np.float32)  # a bucket may have no rows
            result.append(self.batch(ids, weights, bucket.size))
        return result

    def batch(self, ids: np.ndarray, weights: np.ndarray, size: int) -> Batch:
        return Batch(gather(self.table, ids, size), self.table.answers[ids], weights, ids)

    def filler(self, rows: int, size: int) -> Batch:
        """Rows of weight 0 for a bucket that has no questions here: the first question, its story cut to fit."""
        ids = np.zeros(rows, np.int64)
        inputs = gather(cut(self.table, size), ids, size)
        return Batch(inputs, self.table.answers[ids], np.zeros(rows, np.float32), ids)

    def in_order(self, batch_size: int | Callable[[int], int], among: np.ndarray | None = None) -> Iterator[Batch]:
        """Every question once, for evaluation: batches of `[batch_size]` rows of one bucket, weight 1.

        A bucket's last batch is filled up with its first question at weight 0. The batch size may be a function of the
        bucket's; `among` `[Q]` says which questions are meant, if not all.
        """
        for bucket in self.buckets:
            rows = batch_size if isinstance(batch_size, int) else batch_size(bucket.size)
            meant = bucket.ids if among is None else bucket.ids[among[bucket.ids]]
            for first in range(0, len(meant), rows):
                ids = meant[first : first + rows]
                fill = rows - len(ids)
                weights = np.concatenate([np.ones(len(ids)), np.zeros(fill)]).astype(np.float32)
                yield self.batch(np.concatenate([ids, np.repeat(bucket.ids[:1], fill)]), weights, bucket.size)
