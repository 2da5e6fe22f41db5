"""What the tests of paired associative inference share: what a memory's pairs say, found in another way; released files
to break and to read one after another; all queries; the paper's layout; and a trainer that learns nothing (`--backend
pai_checks`), for commands without a framework."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pai_writer import example, frame

from ponder_ref.models import check_parameters
from tasks.metrics import TRAIN_KEYS
from tasks.pai.layout import Inputs, take
from tasks.pai.released import Trials, naming, trials_of
from tasks.pai.tfrecord import read_data, read_length
from tasks.pai.trials import Queries, make_queries, query_count, query_types


def all_queries(slots: np.ndarray) -> Queries:
    """Every query of one memory with the sequences `slots` `[sequences, length]`."""
    every = np.arange(len(query_types(slots.shape[-1])))
    number = np.arange(query_count(every, len(slots)))
    return make_queries(np.broadcast_to(slots, (len(number), *slots.shape)), every, number)


def materialise(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """The paper's layout: memory `[..., 16·(L−1), 2, width]` and query `[..., 3, width]`."""
    return take(inputs["images"], inputs["rows"]), take(inputs["images"], inputs["query"])


def places(rows: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each slot the first image of its sequence and its place in it, both `[..., slots]`, by the order of pairs."""
    shape = (*rows.shape[:-2], slots)
    own = np.broadcast_to(np.arange(slots), shape)
    before = own.copy()
    np.put_along_axis(before, rows[..., 1].astype(np.int64), rows[..., 0].astype(np.int64), axis=-1)
    start, place = own, np.zeros(shape, np.int64)
    while (place <= rows.shape[-2]).all():
        earlier = np.take_along_axis(before, start, axis=-1)
        if (earlier == start).all():
            return start, place
        place, start = place + (earlier != start), earlier
    raise ValueError("the pairs of a memory form a ring")


def sides_of(inputs: Inputs) -> np.ndarray:
    """0 where the left image is of the cue's sequence, 1 where the right one is, −1 where both or none are."""
    start, _ = places(inputs["rows"], inputs["images"].shape[-2])
    cue, left, right = np.moveaxis(np.take_along_axis(start, inputs["query"].astype(np.int64), axis=-1), -1, 0)
    return np.where((left == cue) == (right == cue), -1, np.where(left == cue, 0, 1))


def read_trials(file: BinaryIO, name: Path | str, length: int, **sizes: int) -> Iterator[Trials]:
    """The records of a file (`records.opened`) one after another; nothing but the current one is held."""
    number = 1
    while (size := read_length(file, name, number)) is not None:
        data = read_data(file, size, name, number)
        with naming(name, number):
            trials = trials_of(data, length, **sizes)
        yield trials
        number += 1


def write_split(folder: Path, split: str, *files: Iterable[dict[str, np.ndarray]]) -> None:
    """The files of a split as released, each with these records."""
    (folder / split).mkdir(parents=True, exist_ok=True)
    for i, written in enumerate(files):
        path = folder / split / f"trials-{i:05}-of-{len(files):05}"
        path.write_bytes(b"".join(frame(example(record)) for record in written))


class Trainer:
    """Keeps the parameters as they are and answers left at every step."""

    def __init__(self, model: Any, method: Any, optimiser: Any, *, dtype: str = "float32", threads: int | None = None):
        self.model, self.steps = model, method.max_steps

    def init(self, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        check_parameters(self.model, params)
        return params

    def load(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.init({name.removeprefix("params."): array for name, array in arrays.items()})

    def dump(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {f"params.{name}": array for name, array in state.items()}

    def train_steps(self, state: Any, chunk: Any) -> tuple[Any, dict[str, np.ndarray]]:
        return state, {name: np.ones(len(chunk.targets)) for name in TRAIN_KEYS}

    def unroll(self, state: Any, inputs: dict[str, np.ndarray], *, max_steps: int) -> tuple[np.ndarray, np.ndarray]:
        y_hat = np.zeros((max_steps, len(inputs["query"]), self.model.outputs))
        y_hat[..., 0] = 1
        return y_hat, np.zeros(y_hat.shape[:2])
