"""Grids of Sudoku: their units, a solver that counts solutions, and what does not change under the symmetries.

A grid is a sequence of size² cells, row by row: a digit 1..size, or 0 for a blank. Boxes are 2×2, 2×3 and 3×3 (rows ×
columns) for the sizes 4, 6 and 9.
"""

import functools
from collections.abc import Sequence
from itertools import combinations

import numpy as np

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}


@functools.cache
def units(size: int) -> np.ndarray:
    """The number of row, column and box of each cell, `[3, cells]`."""
    height, width = BOXES[size]
    row, column = np.divmod(np.arange(size * size), size)
    return np.stack([row, column, row // height * (size // width) + column // width])


@functools.cache
def peers(size: int) -> np.ndarray:
    """Which other cells share the row, the column, the box of a cell: 0 or 1, `[3, cells, cells]` float32."""
    same = units(size)[:, :, None] == units(size)[:, None, :]
    return (same & ~np.eye(size * size, dtype=bool)).astype(np.float32)


def solutions(puzzle: Sequence[int], size: int, limit: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Up to `limit` solutions of a puzzle; the digits of a cell are tried in the given order."""
    row, column, box = units(size).tolist()
    digits = order or range(1, size + 1)
    cells = [int(digit) for digit in puzzle]
    used = [[0] * size for _ in range(3)]
    for cell, digit in enumerate(cells):
        bit = 1 << digit
        if digit and (used[0][row[cell]] | used[1][column[cell]] | used[2][box[cell]]) & bit:
            return []
        if digit:
            used[0][row[cell]] |= bit
            used[1][column[cell]] |= bit
            used[2][box[cell]] |= bit
    found: list[list[int]] = []

    def search(blanks: list[int]) -> bool:
        """Fills the cell with the fewest candidates; True once there are enough solutions."""
        if not blanks:
            found.append(cells.copy())
            return len(found) >= limit
        taken = [used[0][row[cell]] | used[1][column[cell]] | used[2][box[cell]] for cell in blanks]
        most = max(range(len(blanks)), key=lambda i: taken[i].bit_count())
        cell, mask = blanks[most], taken[most]
        rest = blanks[:most] + blanks[most + 1 :]
        for digit in digits:
            if mask & (bit := 1 << digit):
                continue
            cells[cell] = digit
            for unit, number in zip(used, (row[cell], column[cell], box[cell]), strict=True):
                unit[number] ^= bit
            enough = search(rest)
            for unit, number in zip(used, (row[cell], column[cell], box[cell]), strict=True):
                unit[number] ^= bit
            if enough:
                return True
        return False

    search([cell for cell, digit in enumerate(cells) if not digit])
    return found


def shuffled(number: int, source: np.random.Philox) -> list[int]:
    """The numbers below `number` in random order; raw words, as they are the same in every version of NumPy."""
    return np.argsort(source.random_raw(number), kind="stable").tolist()


def random_grid(size: int, source: np.random.Philox) -> np.ndarray:
    """A solved grid, `[cells]`: the first row at random, the rest by the solver with its digits in random order."""
    first, order = ([digit + 1 for digit in shuffled(size, source)] for _ in range(2))
    (grid,) = solutions([*first, *[0] * (size * size - size)], size, 1, order)
    return np.array(grid)


def dig(grid: np.ndarray, size: int, source: np.random.Philox) -> np.ndarray:
    """Blanks every cell, in random order, whose digit the others still decide: a minimal puzzle, `[cells]`."""
    puzzle = grid.copy()
    for cell in shuffled(size * size, source):
        digit, puzzle[cell] = puzzle[cell], 0
        if len(solutions(puzzle.tolist(), size, 2)) > 1:
            puzzle[cell] = digit
    return puzzle


def cycles(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The lengths of the cycles of the permutation of digits that takes one row to another."""
    follows, lengths = dict(zip(first, second, strict=True)), []
    while follows:
        digit, length = next(iter(follows)), 0
        while digit in follows:
            digit, length = follows.pop(digit), length + 1
        lengths.append(length)
    return tuple(sorted(lengths))


def invariant(grid: np.ndarray, size: int) -> tuple:
    """Equal for grids that a symmetry takes to one another, so that grids in which it differs are truly different.

    It counts the cycles between any two rows, and columns, within a band and across. Digits may be renamed, rows and
    columns permuted within their bands and bands as a whole; square boxes also allow to transpose.
    """
    square = np.asarray(grid).reshape(size, size)
    height, width = BOXES[size]
    both = []
    for lines, band in ((square.tolist(), height), (square.T.tolist(), width)):
        pairs = combinations(range(size), 2)
        both.append(tuple(sorted((i // band == j // band, cycles(lines[i], lines[j])) for i, j in pairs)))
    return tuple(sorted(both) if height == width else both)
