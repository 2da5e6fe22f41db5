"""The files released with the task (`gs://deepmind-memo/length3` and `length4`): memories with all their queries.

A record has, for sequences of length L, with T = L(L−1)/2 types of queries,

    memory          [16·(L−1), 2, 1000]  float32
    trials          [16·T, 3, 1000]      float32   cue, left, right
    correct_answer  [16·T]               int64     0 left, 1 right
    difficulty      [16·T]               int64     images between cue and match
    trial_type      [16·T]               int64     1 A-B, 2 B-C, 3 A-C, 4 C-D, 5 B-D, 6 A-D

and no class ids. The files lie in FOLDER/train, FOLDER/valid and FOLDER/test as trials-00000-of-00500 and so on.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ponder_ref.interface import Batch
from tasks.batches import STREAMS, example_ids, words
from tasks.errors import Refused
from tasks.pai import records
from tasks.pai.layout import Inputs, compact, kinds_of
from tasks.pai.trials import SEQUENCES, below, query_types

LENGTHS = (3, 4)
FILE_NAME = re.compile(r"trials-(\d{5})-of-(\d{5})")


class Trials(NamedTuple):
    """A record's memory `[pairs, 2, width]`, queries `[Q, 3, width]`, sides and kinds (from 0) `[Q]`."""

    memory: np.ndarray
    queries: np.ndarray
    sides: np.ndarray
    kinds: np.ndarray


def trials_of(data: bytes, length: int, *, sequences: int = SEQUENCES, width: int = 1000) -> Trials:
    """The arrays in the data of a record; `Malformed` says what is missing or out of range."""
    found = records.parse_example(data)
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
            raise records.Malformed(f"feature {name!r} is missing")
        array, kind = found[name], "f" if len(shape) > 1 else "i"
        if array.dtype.kind != kind:
            raise records.Malformed(f"feature {name!r} must hold {'floats' if kind == 'f' else 'integers'}")
        if array.size != np.prod(shape):
            raise records.Malformed(
                f"feature {name!r} has {array.size} numbers, expected {' x '.join(map(str, shape))} for length {length}"
            )
        if kind == "f" and not np.isfinite(array).all():
            raise records.Malformed(f"feature {name!r} holds a number that is not finite")
        arrays[name] = array.reshape(shape)
    highest = {"correct_answer": (0, 1), "difficulty": (0, length - 2), "trial_type": (1, len(types))}
    for name, (low, high) in highest.items():
        wrong = arrays[name][(arrays[name] < low) | (arrays[name] > high)]
        if wrong.size:
            raise records.Malformed(f"feature {name!r} must lie in {low}..{high}, got {wrong[0]}")
    return Trials(arrays["memory"], arrays["trials"], arrays["correct_answer"], arrays["trial_type"] - 1)


def read_trials(file: BinaryIO, name: Path | str, length: int, **sizes: int) -> Iterator[Trials]:
    """The records of a file (`records.opened`) one after another; nothing but the current one is held."""
    for number, data in enumerate(records.read_records(file, name), start=1):
        with naming(name, number):
            trials = trials_of(data, length, **sizes)
        yield trials


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
        raise Refused(f"cannot read {folder / split}: {(error.strerror or str(error)).lower()}") from None
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

    For each example a record is drawn, then one of its queries, direct for even ids and indirect for odd ones. Where
    records begin is looked up once for each split; a record's checksum is checked when it is first used.
    """

    folder: Path
    seed: int
    batch_size: int
    length: int = 3
    sequences: int = SEQUENCES
    width: int = 1000
    _places: dict[str, list[tuple[Path, int, int]]] = dataclasses.field(default_factory=dict, repr=False)
    _checked: set[tuple[Path, int]] = dataclasses.field(default_factory=set, repr=False)

    outputs = 2

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise Refused(f"released files have sequences of 3 or 4 images, got length {self.length}")

    def places(self, split: str) -> list[tuple[Path, int, int]]:
        """File, number in it (from 1) and offset of each record of a split."""
        if split not in self._places:
            self._places[split] = [
                (path, number, offset)
                for path in shards(self.folder, split)
                for number, offset in enumerate(records.offsets(path), start=1)
            ]
            if not self._places[split]:
                raise Refused(f"the files in {self.folder / split} hold no records")
        return self._places[split]

    def trials(self, split: str, index: int) -> Trials:
        """The record `index` of a split."""
        path, number, offset = self.places(split)[index]
        new = (path, number) not in self._checked
        with records.opened(path) as file, naming(path, number):
            file.seek(offset)
            length = records.read_length(file, path, number)
            if length is None:
                raise records.Malformed("the file has become shorter")
            data = records.read_data(file, length, path, number, check=new)
            trials = trials_of(data, self.length, sequences=self.sequences, width=self.width)
        self._checked.add((path, number))
        return trials

    def example(self, split: str, record: int, word: np.ndarray, *, direct: bool) -> tuple[Inputs, int]:
        """One query of a record, chosen by a random word, and its side."""
        trials = self.trials(split, record)
        steps = np.array([kind.steps for kind in query_types(self.length)])[trials.kinds]
        choice = np.flatnonzero((steps == 0) == direct)
        path, number, _ = self.places(split)[record]
        with naming(path, number):
            if not len(choice):
                raise records.Malformed(f"it has no {'direct' if direct else 'indirect'} query")
            query = choice[below(word, len(choice))]
            inputs = compact(trials.memory, trials.queries[query], self.sequences * self.length)
        return inputs, int(trials.sides[query])

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """As `tasks.pai.data.Data.batches`."""
        ids = example_ids(split, indices, self.batch_size)
        random = words(self.seed, STREAMS[split], indices, 2 * ids.shape[1]).reshape(-1, 2)
        chosen = below(random[:, 0], len(self.places(split)))
        found = [
            self.example(split, int(record), word, direct=bool(example % 2 == 0))
            for record, word, example in zip(chosen, random[:, 1], ids.ravel(), strict=True)
        ]
        inputs = {
            name: np.stack([one[name] for one, _ in found]).reshape(*ids.shape, *found[0][0][name].shape)
            for name in ("images", "rows", "query")
        }
        return Batch(inputs, np.array([side for _, side in found], np.int64).reshape(ids.shape), None, ids)

    def difficulty(self, inputs: Inputs) -> np.ndarray:
        """The kind of each query, an index into `query_types`."""
        return kinds_of(inputs, self.length)
