"""Batches by number: random words for (seed, stream, update), chunks of updates, and a thread that makes them ahead.

A batch is a pure function of (task config, seed, split, index); nothing depends on what was drawn before, so a run can
go on at any update. Splits are streams of their own (spec annex/tasks.md, "Splits").
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")
# Stream of each split. "beyond" is the evaluation on harder examples than those of training.
STREAMS = {"train": 0, "valid": 1, "test": 2, "valid-beyond": 3, "test-beyond": 4}
EVAL_BATCH = 512  # examples per evaluation batch, fixed so that example i is the same for any number of examples


class EvalBatch(NamedTuple):
    """Examples to score: inputs for one call of the trainer; of its rows the first `counted` are counted.

    targets are `[B, ...answers]`, ids and groups `[B]`.
    """

    inputs: Any
    targets: np.ndarray
    ids: np.ndarray
    groups: np.ndarray
    counted: int


def bit_generator(seed: int, stream: int, index: int) -> np.random.Philox:
    """Philox4x64-10 with key (seed, stream) and its counter's highest word at `index`: batches never overlap."""
    return np.random.Philox(key=np.array([seed, stream], np.uint64), counter=np.array([0, 0, 0, index], np.uint64))


def words(seed: int, stream: int, indices: Iterable[int], size: int) -> np.ndarray:
    """The first `size` 32-bit words of the stream at each index, `[K, size]` uint32; lower halves first."""
    long = [bit_generator(seed, stream, index).random_raw(-(-size // 2)) for index in indices]
    return np.stack(long).astype("<u8").view("<u4")[:, :size]


def ranks(random: np.ndarray) -> np.ndarray:
    """The rank of each of n entries, `[..., n]` uint32, from its word: no two of an example are equal."""
    count = random.shape[-1]
    free = np.uint32((1 << (count - 1).bit_length()) - 1)  # the lowest bits are the entry's number
    return (random & ~free) | np.arange(count, dtype=np.uint32)


def example_ids(split: str, indices: Sequence[int] | range, batch_size: int) -> np.ndarray:
    """Ids that count through a split, `[K, B]` int64; in evaluation a batch has EVAL_BATCH examples."""
    size = batch_size if split == "train" else EVAL_BATCH
    return np.asarray(indices, np.int64)[:, None] * size + np.arange(size)


def stretches(start: int, total: int, *periods: int) -> Iterator[tuple[int, int]]:
    """(first, last) of the chunks from `start` to `total`: each ends at the next multiple of a period, or at `total`.

    >>> list(stretches(0, 250, 100, 120))
    [(0, 100), (100, 120), (120, 200), (200, 240), (240, 250)]
    """
    while start < total:
        last = min(total, *((start // period + 1) * period for period in periods))
        yield start, last
        start = last


@contextlib.contextmanager
def prefetch(items: Iterable[T], ahead: int = 3) -> Iterator[Iterator[T]]:
    """The items, computed in another thread a few before they are asked for; leaving the context stops the thread.

    An exception in the thread is raised where the item would have been returned.
    """
    iterator, end = iter(items), object()
    pool = ThreadPoolExecutor(1, "prefetch")
    waiting = deque(pool.submit(next, iterator, end) for _ in range(ahead))

    def taken() -> Iterator[Any]:
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, iterator, end))
            yield item

    try:
        yield taken()
    finally:
        pool.shutdown(cancel_futures=True)
