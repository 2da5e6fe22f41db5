"""Memories and queries by number: from random words to which image stands where (spec/annex/tasks.md).

Images are known here by their slot, 0 to 16·length − 1, in the order in which they were drawn. A permutation puts them
into sequences, so that neither slots nor the order of the memory's rows say which images belong together.
"""

import functools
from typing import NamedTuple

import numpy as np

from tasks.batches import ranks

SEQUENCES = 16
LENGTHS = (3, 4, 5)
OTHER = "other"  # what queries are called that are of no known type


class QueryType(NamedTuple):
    """Places of cue and match in the sequence, counted from 0."""

    cue: int
    match: int

    @property
    def name(self) -> str:
        return f"{'ABCDE'[self.cue]}-{'ABCDE'[self.match]}"

    @property
    def steps(self) -> int:
        """How many images stand between cue and match: 0 is a direct query."""
        return self.match - self.cue - 1


class Queries(NamedTuple):
    """Queries of memories: kind, an index into `query_types`; slots `[..., 3]` of cue, left and right; side of the
    match, 0 left and 1 right; slot of the match."""

    kind: np.ndarray
    slots: np.ndarray
    side: np.ndarray
    match: np.ndarray


class Drawn(NamedTuple):
    """Memories with a query each: picks `[..., 16·length]` numbers of the images in their split, rows
    `[..., 16·(length − 1), 2]` slots of the memory's pairs, and the queries."""

    picks: np.ndarray
    rows: np.ndarray
    queries: Queries


@functools.cache
def query_types(length: int) -> tuple[QueryType, ...]:
    """All types of queries, numbered as in the released files (there from 1).

    >>> " ".join(kind.name for kind in query_types(4))
    'A-B B-C A-C C-D B-D A-D'
    """
    return tuple(QueryType(cue, match) for match in range(1, length) for cue in range(match - 1, -1, -1))


def type_name(level: int, length: int) -> str:
    """The name of a row of a table by type: that of `query_types`, or "other" for every number that has none there.

    >>> [type_name(level, 3) for level in (0, 2, 3, -1)]
    ['A-B', 'A-C', 'other', 'other']
    """
    types = query_types(length)
    return types[level].name if 0 <= level < len(types) else OTHER


@functools.cache
def kinds(length: int, *, direct: bool) -> np.ndarray:
    """Indices into `query_types` of the direct or of the indirect ones."""
    return np.array([i for i, kind in enumerate(query_types(length)) if (kind.steps == 0) == direct])


def query_count(kinds: np.ndarray, sequences: int = SEQUENCES) -> int:
    """How many queries of these kinds a memory has: for each, any sequence, any other for the lure, either side."""
    return len(kinds) * sequences * (sequences - 1) * 2


def make_queries(slots: np.ndarray, kinds: np.ndarray, number: np.ndarray) -> Queries:
    """Query `number` `[...]` of those of some kinds, for sequences `slots` `[..., sequences, length]`.

    The number counts sides fastest, then lures, then sequences, then kinds. Lure 0 is of the next sequence.
    """
    sequences, length = slots.shape[-2:]
    number = np.asarray(number, np.int64)
    side, rest = number % 2, number // 2
    lure, rest = rest % (sequences - 1), rest // (sequences - 1)
    sequence, kind = rest % sequences, kinds[rest // sequences]
    cue_place, match_place = np.array(query_types(length)).T[:, kind]
    other = (sequence + 1 + lure) % sequences

    def at(row: np.ndarray, place: np.ndarray) -> np.ndarray:
        flat = slots.reshape(*slots.shape[:-2], -1)
        return np.take_along_axis(flat, (row * length + place)[..., None], axis=-1)[..., 0]

    cue, match, lured = at(sequence, cue_place), at(sequence, match_place), at(other, match_place)
    left, right = np.where(side == 0, match, lured), np.where(side == 0, lured, match)
    return Queries(kind, np.stack([cue, left, right], axis=-1), side, match)


def below(random: np.ndarray, bound: int) -> np.ndarray:
    """⌊word·bound/2³²⌋, int64, for words uint32."""
    return ((random.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def distinct(random: np.ndarray, size: int) -> np.ndarray:
    """n different numbers below `size` for words `[..., n]`, every set equally likely (Floyd's method)."""
    count = random.shape[-1]
    out = np.empty(random.shape, np.int64)
    for i in range(count):
        top = size - count + i
        number = below(random[..., i], top + 1)
        taken = (out[..., :i] == number[..., None]).any(axis=-1)
        out[..., i] = np.where(taken, top, number)
    return out


def permutation(random: np.ndarray) -> np.ndarray:
    """Orders 0..n−1 by words `[..., n]`."""
    return np.argsort(ranks(random), axis=-1)


def word_count(length: int) -> int:
    """Words of an example: images, their order, the order of the rows, the query."""
    return SEQUENCES * (3 * length - 1) + 1


def draw(random: np.ndarray, direct: np.ndarray, size: int, length: int) -> Drawn:
    """Memories from `size` images and queries, direct where `direct` `[...]`, from words `[..., word_count]`."""
    images, pairs = SEQUENCES * length, SEQUENCES * (length - 1)
    for_picks, for_order, for_rows, for_query = np.split(random, np.cumsum([images, images, pairs]), axis=-1)
    slots = permutation(for_order).reshape(*direct.shape, SEQUENCES, length)
    rows = np.stack([slots[..., :-1], slots[..., 1:]], axis=-1).reshape(*direct.shape, pairs, 2)
    rows = np.take_along_axis(rows, permutation(for_rows)[..., None], axis=-2)
    near, far = (
        make_queries(slots, some, below(for_query[..., 0], query_count(some)))
        for some in (kinds(length, direct=True), kinds(length, direct=False))
    )
    queries = (
        np.where(direct[..., None] if a.ndim > direct.ndim else direct, a, b) for a, b in zip(near, far, strict=True)
    )
    return Drawn(distinct(for_picks, size), rows, Queries(*queries))
