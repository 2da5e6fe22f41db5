"""Sudoku: the solver, the base puzzles and their splits, and examples that have one solution each."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from task_helpers import inside, refused

from ponder_ref.runtime.errors import Refused
from tasks.batches import EVAL_BATCH, words
from tasks.sudoku.__main__ import main
from tasks.sudoku.bases import BLANKS, SPLITS, bases, file_of, make_lines, renamed, symmetries
from tasks.sudoku.draws import examples, line_order, words_needed
from tasks.sudoku.puzzles import invariant, peers, solutions, units
from tasks.sudoku.settings import PRESETS, SudokuConfig
from tasks.sudoku.task import Sudoku

SIZES = (4, 6, 9)


def drawn(size: int, split: str, number: int, blanks: tuple[int, int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    random = words(3, SPLITS.index(split), [0], number * words_needed(size)).reshape(number, -1)
    return examples(random, bases(size, split), size, blanks or BLANKS[size])


def digits(text: str) -> list[int]:
    return [int(digit) for digit in text]


@pytest.mark.parametrize("size", SIZES)
def test_units_have_one_cell_per_digit_and_peers_are_the_others(size: int):
    for unit in units(size):
        assert np.bincount(unit).tolist() == [size] * size
    assert (peers(size).sum(axis=-1) == size - 1).all()
    assert np.array_equal(peers(size), peers(size).transpose(0, 2, 1))
    assert not np.diagonal(peers(size), axis1=1, axis2=2).any()


def test_boxes_of_size_six_are_two_rows_by_three_columns():
    assert units(6)[2].reshape(6, 6)[:3].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], [2, 2, 2, 3, 3, 3]]


def test_the_solver_finds_all_grids_of_size_four():
    found = {tuple(grid) for grid in solutions([0] * 16, 4, 1000)}
    assert len(found) == 288
    for grid in found:
        for unit in units(4):
            assert all({grid[cell] for cell in np.flatnonzero(unit == number)} == {1, 2, 3, 4} for number in range(4))


def test_the_solver_solves_a_published_puzzle():
    puzzle = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
    solution = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    assert solutions(digits(puzzle), 9, 2) == [digits(solution)]


def test_the_solver_counts_up_to_its_limit_and_finds_contradictions():
    two = digits("1234341221434301")[:12] + [0] * 4  # the last row is decided
    assert len(solutions(two, 4, 2)) == 1
    assert len(solutions(digits("1200") + [0] * 12, 4, 5)) == 5
    assert solutions(digits("1100") + [0] * 12, 4, 2) == []
    assert solutions(digits("1230000400000000"), 4, 2) == []  # no digit is left for the first row's last cell


@pytest.mark.parametrize("size", SIZES)
def test_every_example_has_its_one_solution_and_its_number_of_blanks(size: int):
    puzzles, solved = drawn(size, "train", 60)
    for puzzle, solution in zip(puzzles.tolist(), solved.tolist(), strict=True):
        assert solutions(puzzle, size, 2) == [solution]
    counts = (puzzles == 0).sum(axis=-1)
    low, high = BLANKS[size]
    assert low <= counts.min() and counts.max() <= high
    exactly, _ = drawn(size, "test", 40, (high, high))
    assert ((exactly == 0).sum(axis=-1) == high).all()


@pytest.mark.parametrize("size", SIZES)
def test_blanks_digits_and_places_are_even(size: int):
    """By chi square, for fixed words: each is below the value that is exceeded once in 1000 times."""
    low, high = 5, 10
    puzzles, solved = drawn(size, "train", 6000, (low, high))
    counts = np.bincount((puzzles == 0).sum(axis=-1))[low:]
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5
    for cell in (0, size + 1, size * size - 1):
        seen = np.bincount(solved[:, cell], minlength=size + 1)[1:]
        assert ((seen - 6000 / size) ** 2 / (6000 / size)).sum() < 26.1
    share = (puzzles == 0).mean(axis=0) * size * size / 7.5
    assert np.abs(share - 1).max() < 5 * np.sqrt(size * size / 7.5 / 6000)


def test_orders_of_lines_keep_bands_together_and_are_all_met():
    random = words(0, 0, [0], 4000 * 9).reshape(4000, 9)
    orders = line_order(random[:, :3], random[:, 3:])  # three bands of two lines
    assert (np.sort(orders, axis=-1) == np.arange(6)).all()
    pairs = orders.reshape(-1, 3, 2) // 2
    assert (pairs[..., 0] == pairs[..., 1]).all()
    assert len({tuple(order) for order in orders.tolist()}) == 48


def canonical(puzzle: np.ndarray) -> tuple[int, ...]:
    """The same for all symmetric images of a puzzle of size 4, by trying them all: the smallest of them."""
    found = []
    for image in puzzle[symmetries()].tolist():
        names: dict[int, int] = {0: 0}
        found.append(tuple(names.setdefault(digit, len(names)) for digit in image))
    return min(found)


def test_no_puzzle_of_size_four_is_in_two_splits_whatever_its_orientation_and_digits():
    seen = {}
    for split in SPLITS:
        base = bases(4, split)
        assert all(base.number[b] > 0 for b in range(BLANKS[4][0], BLANKS[4][1] + 1))
        hardest = np.flatnonzero(base.blank.sum(axis=-1) == 12)
        some = np.concatenate([hardest, np.arange(0, len(base.grids), 97)])
        seen[split] = {canonical(np.where(base.blank[i], 0, base.grids[i])) for i in some}
        puzzles, _ = drawn(4, split, 150, (12, 12))
        assert {canonical(puzzle) for puzzle in puzzles} <= seen[split]
    for one, other in itertools.combinations(SPLITS, 2):
        assert not seen[one] & seen[other]


def test_all_puzzles_of_size_four_are_there():
    """13 different puzzles with four clues, the fewest: a published count."""
    found = set()
    for split in SPLITS:
        base = bases(4, split)
        assert base.number.sum() == len(base.grids)
        found |= {canonical(np.where(b, 0, g)) for b, g in zip(base.blank, base.grids, strict=True) if b.sum() == 12}
    assert len(found) == 13


@pytest.mark.parametrize("size", [6, 9])
def test_no_solution_of_a_test_puzzle_is_an_image_of_one_of_training(size: int):
    kinds = {split: {invariant(grid, size) for grid in bases(size, split).grids} for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not kinds[one] & kinds[other]
    for split in SPLITS:
        _, solved = drawn(size, split, 20)
        assert {invariant(grid, size) for grid in solved} <= kinds[split]


@pytest.mark.parametrize("size", [6, 9])
def test_base_puzzles_have_one_solution_and_blanks_enough(size: int):
    for split in SPLITS:
        base = bases(size, split)
        assert (base.blank.sum(axis=-1) >= BLANKS[size][1]).all()
        for grid, blank in zip(base.grids[:24], base.blank, strict=False):
            assert solutions(np.where(blank, 0, grid).tolist(), size, 2) == [grid.tolist()]


@pytest.mark.parametrize(("size", "lines"), [(6, 12), (9, 2)])
def test_the_files_are_those_that_the_command_makes(size: int, lines: int):
    kept = file_of(size).read_text(encoding="ascii").splitlines()
    assert kept[:lines] == list(itertools.islice(make_lines(size), lines))


def test_the_symmetries_of_size_four_are_different_and_keep_units():
    assert len({tuple(move) for move in symmetries().tolist()}) == 128
    grid = np.array(solutions([0] * 16, 4, 1)[0])
    for image in grid[symmetries()].tolist():
        assert solutions(image, 4, 2) == [image]


def test_renamed_digits_begin_with_the_first_row_in_order():
    grids = np.array(solutions([0] * 16, 4, 1000))
    assert (renamed(grids, 4)[:, :4] == [1, 2, 3, 4]).all()
    assert len(np.unique(renamed(grids, 4), axis=0)) == 12


def task(**settings) -> Sudoku:
    return Sudoku(SudokuConfig(**{"batch_size": 16, **settings}))


@pytest.mark.parametrize("size", SIZES)
def test_batches_have_a_class_for_every_cell(size: int):
    made = task(size=str(size))
    batch = made.batches("train", range(3))
    cells = size * size
    assert batch.inputs.shape == batch.targets.shape == (3, 16, cells)
    assert batch.inputs.dtype == batch.targets.dtype == np.int64 and batch.weights is None
    assert batch.targets.min() == 0 and batch.targets.max() == size - 1 and made.answer() == (size, "classes")
    given = batch.inputs > 0
    assert np.array_equal(batch.inputs[given] - 1, batch.targets[given])


def test_a_batch_depends_on_nothing_but_its_number():
    made = task()
    whole = made.batches("train", range(10, 20))
    for first, last in ((10, 13), (13, 14), (14, 20)):
        part = made.batches("train", range(first, last))
        for a, b in zip(part, whole, strict=True):
            assert a is b is None or np.array_equal(a, b[first - 10 : last - 10])


def test_batches_differ_by_seed_update_and_split():
    made, other = task(), task(seed=1)
    seen = [made.batches("train", [0]), made.batches("train", [1]), other.batches("train", [0])]
    inputs = [batch.inputs[0, :16] for batch in [*seen, *(made.batches(split, [0]) for split in ("valid", "test"))]]
    for i, a in enumerate(inputs):
        assert not any(np.array_equal(a, b) for b in inputs[:i])


def test_the_largest_seed_works():
    assert task(seed=2**63 - 1).batches("train", [10**9]).inputs.shape == (1, 16, 16)


def test_an_evaluation_counts_its_examples_and_groups_them_by_blanks():
    made = task(blanks=(5, 7))
    first, second = made.evaluation("test", EVAL_BATCH + 10)
    assert (first.counted, second.counted) == (EVAL_BATCH, 10)
    assert set(first.groups.tolist()) == {5, 6, 7}
    assert np.array_equal(first.groups, (first.inputs == 0).sum(axis=-1))
    assert second.ids[0] == EVAL_BATCH and made.splits("test") == ("test",)
    assert made.describe("test") == "5-7 blanks of 16 cells"


@pytest.mark.parametrize(
    ("settings", "range"),
    [({"blanks": (3, 8)}, "4..12"), ({"blanks": (4, 13)}, "4..12"), ({"size": "6", "blanks": (1, 25)}, "1..24")],
)
def test_blanks_that_there_are_no_puzzles_for_are_refused(settings: dict, range: str):
    with pytest.raises(Refused, match=rf"--blanks must lie in {range} \(--size"):
        task(**settings)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_batches(preset: str):
    made = Sudoku(SudokuConfig(**PRESETS[preset]))
    counts = made.groups(made.batches("test", [0]).inputs[0])
    assert (counts.min(), counts.max()) == made.config.span


def test_a_backend_that_has_no_network_is_refused_before_a_folder_is_made(tmp_path: Path):
    pytest.importorskip("safetensors")  # without it, that is what the sentence would be about
    sentence = refused(inside("--backend", "numpy_trainer", "--out", "run", cwd=tmp_path, main=main))
    assert "networks for the backends torch, jax, not for 'numpy_trainer'" in sentence and "--model" in sentence
    assert not (tmp_path / "run").exists()
