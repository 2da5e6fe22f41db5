"""The files released with the task (`gs://deepmind-memo/length3` and `length4`): memories with all their queries.

A record has, for sequences of length L, with T = L(L−1)/2 types of queries,

    memory          [16·(L−1), 2, 1000]  float32
    trials          [16·T, 3, 1000]      float32   cue, left, right
    correct_answer  [16·T]               int64     0 left, 1 right
    difficulty      [16·T]               int64     images between cue and match
    trial_type      [16·T]               int64     1 A-B, 2 B-C, 3 A-C, 4 C-D, 5 B-D, 6 A-D

and no class ids. The files lie in FOLDER/train, FOLDER/valid and FOLDER/test as trials-00000-of-00500 and so on.

That much is published (github.com/google-deepmind/deepmind-research, memo/load_memo_data.ipynb), except that 0 is left.
It follows that type and difficulty of a query agree: a record in which they do not is refused. That the pairs of the
memory say the same is likely and not published: an image that was drawn twice, for one, joins two sequences. So queries
whose type is not that of their pairs (`tasks.pai.sequences`) are trained on and judged as all others are, and counted
under the name "other". Pairs that form a ring are refused.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.checks import quoted
from ponder_ref.runtime.errors import Refused, reason
from tasks.batches import STREAMS, example_ids, words
from tasks.pai import tfrecord
from tasks.pai.layout import Inputs, compact, numbered
from tasks.pai.sequences import kinds_of
from tasks.pai.trials import SEQUENCES, below, query_types

LENGTHS = (3, 4)
SPLITS = ("train", "valid", "test")
FILE_NAME = re.compile(r"trials-(\d{5})-of-(\d{5})")


class Trials(NamedTuple):
    """A record's memory `[pairs, 2, width]`, queries `[Q, 3, width]`, sides and kinds (from 0) `[Q]`."""

    memory: np.ndarray
    queries: np.ndarray
    sides: np.ndarray
    kinds: np.ndarray


class Place(NamedTuple):
    """Where a record is: file, number in it (from 1), offset; and the checksum of its data that the file has."""

    path: Path
    number: int
    offset: int
    checksum: bytes


def trials_of(data: bytes, length: int, *, sequences: int = SEQUENCES, width: int = 1000) -> Trials:
    """The arrays in the data of a record; `Malformed` says what is missing or out of range."""
    found = tfrecord.parse_example(data)
    types = query_types(length)
    count = sequences * len(types)
    shapes = {
        "memory": (sequences * (length - 1), 2, width),
        "trials": (count, 3, width),
        "correct_answer": (count,),
        "difficulty": (count,),
        "trial_type": (count,),
    }
    arrays = {}
    for name, shape in shapes.items():
        if name not in found:
            raise tfrecord.Malformed(f"feature {quoted(name)} is missing")
        array, kind = found[name], "f" if len(shape) > 1 else "i"
        if array.dtype.kind != kind:
            raise tfrecord.Malformed(f"feature {quoted(name)} must hold {'floats' if kind == 'f' else 'integers'}")
        if array.size != np.prod(shape):
            raise tfrecord.Malformed(
                f"feature {quoted(name)} has {array.size} numbers, "
                f"expected {' x '.join(map(str, shape))} for length {length}"
            )
        if kind == "f" and not np.isfinite(array).all():
            raise tfrecord.Malformed(f"feature {quoted(name)} holds a number that is not finite")
        arrays[name] = array.reshape(shape)
    highest = {"correct_answer": (0, 1), "difficulty": (0, length - 2), "trial_type": (1, len(types))}
    for name, (low, high) in highest.items():
        wrong = arrays[name][(arrays[name] < low) | (arrays[name] > high)]
        if wrong.size:
            raise tfrecord.Malformed(f"feature {quoted(name)} must lie in {low}..{high}, got {wrong[0]}")
    kinds = arrays["trial_type"] - 1
    steps = np.array([kind.steps for kind in types])[kinds]
    for query in np.flatnonzero(arrays["difficulty"] != steps)[:1]:
        raise tfrecord.Malformed(
            f"query {query + 1} has trial_type {kinds[query] + 1} ({types[kinds[query]].name}), which is of difficulty "
            f"{steps[query]}, and difficulty {arrays['difficulty'][query]}"
        )
    return Trials(arrays["memory"], arrays["trials"], arrays["correct_answer"], kinds)


def levels_of(trials: Trials, length: int, slots: int) -> np.ndarray:
    """Under which type each query is counted, `[Q]`: the file's where the memory's pairs say the same, else "other".

    `ValueError` if the pairs form a ring, or if memory and a query hold more images than there are `slots`.
    """
    width = trials.memory.shape[-1]
    _, place = numbered(np.concatenate([trials.memory.reshape(-1, width), trials.queries.reshape(-1, width)]))
    rows, queries = (of.reshape(-1, n) for of, n in zip(np.split(place, [2 * len(trials.memory)]), (2, 3), strict=True))
    shown = set(rows.ravel().tolist())
    largest = max(len(shown.union(query)) for query in queries.tolist())
    if largest > slots:
        raise tfrecord.Malformed(f"memory and query hold {largest} different images, expected at most {slots}")
    return np.where(kinds_of(rows, queries, length) == trials.kinds, trials.kinds, len(query_types(length)))


@contextlib.contextmanager
def naming(name: Path | str, number: int) -> Iterator[None]:
    """Turns a complaint about values into a refusal that names file and record."""
    try:
        yield
    except ValueError as error:
        raise Refused(f"{name}, record {number}: {error}") from None


def shards(folder: Path, split: str) -> list[Path]:
    """The files of a split in order; all that their names speak of must be there."""
    try:
        names = sorted(path.name for path in (folder / split).iterdir() if FILE_NAME.fullmatch(path.name))
    except OSError as error:
        raise Refused(f"cannot read {folder / split}: {reason(error)}") from None
    if not names:
        raise Refused(f"{folder / split} has no files named like trials-00000-of-00500")
    total = int(names[0][-5:])
    expected = [f"trials-{i:05}-of-{total:05}" for i in range(total)]
    if missing := sorted(set(expected) ^ set(names)):
        state = "lacks" if missing[0] in expected else "should not have"
        raise Refused(f"{folder / split} {state} {missing[0]}")
    return [folder / split / name for name in names]


@dataclasses.dataclass(frozen=True)
class Released:
    """Batches from released files as a pure function of (seed, split, index); the target is the side.

    For each example a record is drawn, then one of its queries, direct for even ids and indirect for odd ones.

    What is checked when: the names of the files at once, in all splits that are there. When a split is first used, the
    framing of its records (their lengths with checksums, and that the file has as many bytes), and everything in the
    first and the last record of each file. In every other record everything when it is first used: to read
    all of many gigabytes first would take long. A training opens all splits before it begins (`check`), so that it
    does not end for want of test files; an evaluation needs those of its split alone.
    """

    folder: Path
    seed: int
    batch_size: int
    length: int = 3
    sequences: int = SEQUENCES
    width: int = 1000
    _places: dict[str, list[Place]] = dataclasses.field(default_factory=dict, repr=False)
    _levels: dict[Place, np.ndarray] = dataclasses.field(default_factory=dict, repr=False)  # of records once checked

    outputs = 2

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise Refused(f"released files have sequences of 3 or 4 images, got length {self.length}")
        there = [split for split in SPLITS if os.path.isdir(self.folder / split)]  # False also where it cannot be told
        if not there:
            raise Refused(f"{self.folder} has no folder {', '.join(SPLITS[:-1])} or {SPLITS[-1]}")
        for split in there:
            shards(self.folder, split)

    def check(self, splits: Sequence[str] = SPLITS) -> None:
        """Opens the splits, as far as is checked at first."""
        for split in splits:
            self.places(split)

    def checksum(self) -> str:
        """SHA-256 of the checksums that the records of training and validation have in their files, in order."""
        digest = hashlib.sha256()
        for split in SPLITS[:2]:
            for place in self.places(split):
                digest.update(f"{split} {place.path.name} {place.number} ".encode() + place.checksum)
        return digest.hexdigest()

    def places(self, split: str) -> list[Place]:
        """Where the records of a split are."""
        if split not in self._places:
            found: list[Place] = []
            for path in shards(self.folder, split):
                of_file = [Place(path, number, *at) for number, at in enumerate(tfrecord.framing(path), start=1)]
                for place in of_file[:1] + of_file[1:][-1:]:
                    self.read(place)
                found += of_file
            if not found:
                raise Refused(f"the files in {self.folder / split} hold no records")
            self._places[split] = found
        return self._places[split]

    def read(self, place: Place) -> Trials:
        """The record at a place; the first time it is checked wholly, and its levels are kept."""
        path, number, offset, _ = place
        with tfrecord.opened(path) as file, naming(path, number):
            file.seek(offset)
            length = tfrecord.read_length(file, path, number)
            if length is None:
                raise tfrecord.Malformed("the file has become shorter")
            data = tfrecord.read_data(file, length, path, number, check=place not in self._levels)
            trials = trials_of(data, self.length, sequences=self.sequences, width=self.width)
            if place not in self._levels:
                self._levels[place] = levels_of(trials, self.length, self.sequences * self.length).astype(np.int8)
        return trials

    def example(self, place: Place, word: np.ndarray, *, direct: bool) -> tuple[Inputs, int, int]:
        """One query of a record, chosen by a random word; its side, and the kind that it is counted under."""
        trials = self.read(place)
        steps = np.array([kind.steps for kind in query_types(self.length)])[trials.kinds]
        choice = np.flatnonzero((steps == 0) == direct)
        with naming(place.path, place.number):
            if not len(choice):
                raise tfrecord.Malformed(f"it has no {'direct' if direct else 'indirect'} query")
            query = choice[below(word, len(choice))]
            inputs = compact(trials.memory, trials.queries[query], self.sequences * self.length)
        return inputs, int(trials.sides[query]), int(self._levels[place][query])

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """As `tasks.pai.data.Data.batches`."""
        return self.with_kinds(split, indices)[0]

    def with_kinds(self, split: str, indices: Sequence[int] | range) -> tuple[Batch, np.ndarray]:
        """As `tasks.pai.data.Data.with_kinds`; the kind of queries called "other" is the number of `query_types`."""
        ids = example_ids(split, indices, self.batch_size)
        random = words(self.seed, STREAMS[split], indices, 2 * ids.shape[1]).reshape(-1, 2)
        places = self.places(split)
        found = [
            self.example(places[record], word, direct=bool(example % 2 == 0))
            for record, word, example in zip(below(random[:, 0], len(places)), random[:, 1], ids.ravel(), strict=True)
        ]
        inputs = {
            name: np.stack([one[name] for one, _, _ in found]).reshape(*ids.shape, *found[0][0][name].shape)
            for name in ("images", "rows", "query")
        }
        sides, kinds = (np.array([one[i] for one in found], np.int64).reshape(ids.shape) for i in (1, 2))
        return Batch(inputs, sides, None, ids), kinds
