"""Examples from random words: a base puzzle, some of its blanks filled in again, and a random symmetry."""

import numpy as np

from tasks.sudoku.bases import Bases
from tasks.sudoku.puzzles import BOXES


def words_needed(size: int) -> int:
    """32-bit words of an example: see `examples`."""
    height, width = BOXES[size]
    return 3 + size // height + size // width + 3 * size + size * size


def below(word: np.ndarray, numbers: np.ndarray | int) -> np.ndarray:
    """A number 0 ≤ n < numbers from a 32-bit word."""
    return ((word.astype(np.uint64) * np.asarray(numbers, np.uint64)) >> np.uint64(32)).astype(np.int64)


def order(word: np.ndarray) -> np.ndarray:
    """A permutation from the words of the last axis; equal words keep their order."""
    return np.argsort(word, axis=-1, kind="stable")


def line_order(bands: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """An order of all lines `[E, size]` that keeps bands together, from words `[E, bands]` and `[E, size]`."""
    examples, number = bands.shape
    inner = order(lines.reshape(examples, number, -1)) + np.arange(number)[:, None] * (lines.shape[1] // number)
    return np.take_along_axis(inner, order(bands)[:, :, None], axis=1).reshape(examples, -1)


def examples(random: np.ndarray, base: Bases, size: int, blanks: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Puzzles and solutions, both `[E, cells]` int64 (0 is a blank), from words `[E, words_needed(size)]` uint32.

    The words say in turn: how many blanks, evenly in the range; which base; whether to transpose (square boxes only);
    the order of bands and of their rows; the same for columns; the names of the digits; which blanks of the base stay
    blank, those of the lowest words.
    """
    height, width = BOXES[size]
    parts = np.cumsum([1, 1, 1, size // height, size, size // width, size, size])
    number, chosen, turn, bands, rows, stacks, columns, digits, cells = np.split(random, parts, axis=1)
    count = blanks[0] + below(number[:, 0], blanks[1] - blanks[0] + 1)
    index = base.first[count] + below(chosen[:, 0], base.number[count])
    rank = np.where(base.blank[index], cells, np.uint64(1 << 32))  # cells that must not be blank come last
    blank = np.argsort(order(rank), axis=-1) < count[:, None]
    solved = np.take_along_axis(order(digits) + 1, base.grids[index] - 1, axis=1)
    cell = line_order(bands, rows)[:, :, None] * size + line_order(stacks, columns)[:, None, :]
    if height == width:
        cell = np.where(below(turn, 2)[:, :, None] == 1, cell.transpose(0, 2, 1), cell)
    cell = cell.reshape(len(random), -1)
    solved = np.take_along_axis(solved, cell, axis=1)
    return np.where(np.take_along_axis(blank, cell, axis=1), 0, solved), solved
