"""The base puzzles that examples are made of, by size and split.

A base is a solved grid and the cells that may be blank all at once with one solution left; of any part of them the
same is true. No split shares a base with another, nor a symmetric image of one:

- size 4: all puzzles with one solution there are, up to symmetry; each goes to one split with all its images;
- sizes 6 and 9: dug from grids that differ in `puzzles.invariant` between splits, so that no solution of a test
  puzzle is an image of the solution of a training puzzle. They are read from bases_6.txt and bases_9.txt, which

    python -m tasks.sudoku.bases

  writes: a line has the split, the solution and the puzzle.
"""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.sudoku.puzzles import dig, invariant, random_grid, shuffled, solutions

SPLITS = ("train", "valid", "test")
BLANKS = {4: (4, 12), 6: (1, 24), 9: (1, 54)}  # the numbers of blanks that there are bases for, in every split
SEED = 17  # of the bases: it is not that of a run, so that splits are the same in all runs
GRIDS = {6: 2000, 9: 192}  # how many are drawn; of size 6 there are only 49 that no symmetry makes equal
PER_GRID = {6: 4, 9: 1}  # puzzles dug from a grid
PARTS = 6  # one part of six is for validation, one for the test


class Bases(NamedTuple):
    """The bases of one split: those for b blanks are `number[b]` rows from `first[b]` on."""

    grids: np.ndarray  # [bases, cells] digits 1..size
    blank: np.ndarray  # [bases, cells] bool, cells that may be blank
    first: np.ndarray  # [cells + 1] by number of blanks
    number: np.ndarray  # [cells + 1] likewise, 0 where there are none


def philox() -> np.random.Philox:
    return np.random.Philox(key=np.array([SEED, 0], np.uint64))


def split_of(number: int) -> str:
    """Of each six in a row the last two are held out."""
    return {PARTS - 2: "valid", PARTS - 1: "test"}.get(number % PARTS, "train")


@functools.cache
def symmetries() -> np.ndarray:
    """The arrangements of the cells of size 4 that keep rows, columns and boxes together, `[128, cells]`."""
    orders = [
        [2 * a + b, 2 * a + 1 - b, 2 - 2 * a + c, 3 - 2 * a - c] for a, b, c in itertools.product((0, 1), repeat=3)
    ]
    cells = np.arange(16).reshape(4, 4)
    found = [cells[np.ix_(rows, columns)] for rows in orders for columns in orders]
    return np.stack([moved.ravel() for one in found for moved in (one, one.T)])


def renamed(grids: np.ndarray, size: int) -> np.ndarray:
    """The grids `[..., cells]` with their digits named so that the first row is 1, 2, …"""
    names = np.argsort(grids[..., :size], axis=-1) + 1
    return np.take_along_axis(names, grids - 1, axis=-1)


@functools.cache
def size_4() -> dict[str, Bases]:
    """All puzzles with one solution of the two grids of size 4 that no symmetry makes equal, by split.

    A set of clues has one solution if it meets every other grid in a cell where that differs. Puzzles of a grid are
    images of one another under the symmetries that give the same grid, with its digits renamed, again.
    """
    everything = np.array(solutions([0] * 16, 4, 1000))
    moves, bits = symmetries(), 1 << np.arange(16)
    masks = np.arange(1 << 16)
    blank = (masks[:, None] & bits) != 0
    rows, kinds, seen = [], [], set()
    for grid in everything:
        images = renamed(grid[moves], 4)
        if bytes(min(images.tolist())) in seen:
            continue
        seen.add(bytes(min(images.tolist())))
        others = (everything != grid) @ bits
        unique = np.all([(~masks & other) != 0 for other in others if other], axis=0)
        own = moves[(images == renamed(grid, 4)).all(axis=-1)]
        kind = np.min([blank[:, move] @ bits for move in own], axis=0)
        chosen = np.flatnonzero(unique)
        rows.append((np.broadcast_to(grid, (len(chosen), 16)), blank[chosen]))
        kinds.append(kind[chosen] + (len(seen) << 16))
    grids, blank, kind = *(np.concatenate(part) for part in zip(*rows, strict=True)), np.concatenate(kinds)
    return by_split(grids, blank, kind)


def by_split(grids: np.ndarray, blank: np.ndarray, kind: np.ndarray) -> dict[str, Bases]:
    """Puzzles of size 4 by split: of the kinds with b blanks two of each six are held out."""
    source = philox()
    numbers = blank.sum(axis=-1)
    chosen: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
    first, count = ({split: np.zeros(17, np.int64) for split in SPLITS} for _ in range(2))
    for b in range(BLANKS[4][0], BLANKS[4][1] + 1):
        of_b = np.flatnonzero(numbers == b)
        kinds = np.unique(kind[of_b])
        each = {int(one): split_of(place) for place, one in enumerate(kinds[shuffled(len(kinds), source)])}
        splits = np.array([each[int(one)] for one in kind[of_b]])
        for split in SPLITS:
            first[split][b] = sum(map(len, chosen[split]))
            count[split][b] = (splits == split).sum()
            chosen[split].append(of_b[splits == split])
    rows = {split: np.concatenate(parts) for split, parts in chosen.items()}
    return {s: Bases(grids[rows[s]], blank[rows[s]], first[s], count[s]) for s in SPLITS}


def file_of(size: int) -> Path:
    return Path(__file__).with_name(f"bases_{size}.txt")


@functools.cache
def from_file(size: int) -> dict[str, Bases]:
    """The bases of size 6 or 9, by split; each serves for any number of blanks."""
    lines = [line.split() for line in file_of(size).read_text(encoding="ascii").splitlines()]
    low, high = BLANKS[size]
    found = {}
    for split in SPLITS:
        own = [list(map(int, solution + puzzle)) for name, solution, puzzle in lines if name == split]
        grids, puzzles = np.array(own).reshape(len(own), 2, size * size).transpose(1, 0, 2)
        served = np.arange(size * size + 1)
        count = np.where((low <= served) & (served <= high), len(own), 0)
        found[split] = Bases(grids, puzzles == 0, np.zeros_like(served), count)
    return found


def bases(size: int, split: str) -> Bases:
    return (size_4() if size == 4 else from_file(size))[split]


def make_lines(size: int) -> Iterator[str]:
    """The lines of bases_SIZE.txt: puzzles with at least as many blanks as may be asked for."""
    source = philox()
    grids: dict[tuple, np.ndarray] = {}
    for _ in range(GRIDS[size]):
        grid = random_grid(size, source)
        grids.setdefault(invariant(grid, size), grid)
    for number, grid in enumerate(grids.values()):
        left = PER_GRID[size]
        while left:
            puzzle = dig(grid, size, source)
            if (puzzle == 0).sum() >= BLANKS[size][1]:
                left -= 1
                yield " ".join([split_of(number), *("".join(map(str, cells.tolist())) for cells in (grid, puzzle))])


if __name__ == "__main__":
    for size in GRIDS:
        file_of(size).write_text("\n".join(make_lines(size)) + "\n", encoding="ascii")
