"""The parity generator: its laws, its splits, and that a batch depends on nothing but its number."""

import itertools
import threading

import numpy as np
import pytest

from ponder_ref.runtime.errors import Refused
from tasks.batches import EVAL_BATCH, bit_generator, prefetch, stretches, words
from tasks.parity import Parity, ParityConfig
from tasks.parity.task import make_inputs, targets_of, turn_one


def task(**settings) -> Parity:
    return Parity(ParityConfig(**{"bits": 12, "batch_size": 64, **settings}))


def test_one_and_minus_one_is_odd():
    assert targets_of(np.array([1, -1])) == 1
    assert targets_of(np.array([[1, 1], [-1, -1], [0, 1], [0, 0]])).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("positions", ["shuffled", "prefix"])
def test_counts_are_uniform_and_signs_even(positions: str):
    batch = task(positions=positions).batches("train", range(500))
    counts = np.bincount(np.count_nonzero(batch.inputs, axis=-1).ravel(), minlength=13)
    n = batch.targets.size
    assert counts[0] == 0
    expected = n / 12
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 31.3  # chi square, 11 degrees of freedom, 1 in 1000
    ones, minus = (batch.inputs == 1).sum(), (batch.inputs == -1).sum()
    assert abs(int(ones) - int(minus)) < 4 * np.sqrt(ones + minus)
    assert abs(batch.targets.mean() - 0.5) < 2 / np.sqrt(n)
    assert set(np.unique(batch.inputs)) == {-1, 0, 1}
    assert batch.inputs.dtype == np.float32


def test_shuffled_positions_are_even_and_independent_of_the_sign():
    inputs = task(train_ones=(3, 3)).batches("train", range(500)).inputs.reshape(-1, 12)
    share = (inputs != 0).mean(axis=0)
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / len(inputs))
    assert np.abs(inputs.mean(axis=0)).max() < 4 * np.sqrt(0.25 / len(inputs))


@pytest.mark.parametrize("positions", ["shuffled", "prefix"])
@pytest.mark.parametrize("batch_size", [64, 7])
def test_twins_differ_in_one_sign_and_in_their_parity(positions: str, batch_size: int):
    settings = {"positions": positions, "batch_size": batch_size}
    alone, twins = (task(twins=twins, **settings).batches("train", range(200)) for twins in ("off", "on"))
    pairs = batch_size // 2 * 2
    first, second = twins.inputs[:, 0:pairs:2], twins.inputs[:, 1:pairs:2]
    differ = first != second
    assert (differ.sum(axis=-1) == 1).all()
    assert (first[differ] == -second[differ]).all() and (first[differ] != 0).all()
    assert (twins.targets[:, 0:pairs:2] + twins.targets[:, 1:pairs:2] == 1).all()
    assert np.array_equal(twins.targets, targets_of(twins.inputs))
    # The others are as they were, and no place among the non-zeros is turned more often than another.
    assert np.array_equal(alone.inputs[:, 0::2], twins.inputs[:, 0::2])
    full = (first != 0).all(axis=-1)
    share = differ[full].mean(axis=0)
    assert np.abs(share - 1 / 12).max() < 4 * np.sqrt(1 / 12 / full.sum())


def test_twins_are_for_training_alone():
    alone, twins = task(), task(twins="on")
    for split in ("valid", "test", "valid-beyond", "test-beyond"):
        assert np.array_equal(alone.batches(split, [0, 1]).inputs, twins.batches(split, [0, 1]).inputs)


@pytest.mark.parametrize(
    ("positions", "first", "twin"),
    [("shuffled", [0, -1, 1, 0], [0, 1, 1, 0]), ("prefix", [1, -1, 0, 0], [1, 1, 0, 0])],
)
def test_the_sign_that_is_turned_is_that_of_lowest_rank(positions: str, first: list[int], twin: list[int]):
    """By hand: the lowest bits 1, 0, 1, 0 are the signs; ranks 16, 5, 10, 31; k = 1 + ⌊3/2⌋ = 2."""
    random = np.array([[2**31, 0b10001, 0b00100, 0b01001, 0b11100]], np.uint32)
    inputs = make_inputs(random, 4, (1, 3), positions)
    assert inputs.tolist() == [first]
    assert turn_one(inputs, random).tolist() == [twin]


def test_a_twin_of_the_highest_rank_is_turned_too():
    """Words of ones give the largest rank there is: still a non-zero is turned and not a zero."""
    random = np.full((1, 1 + 4), 2**32 - 1, np.uint32)
    inputs = np.array([[0, 0, 0, 1]], np.int8)
    assert turn_one(inputs, random).tolist() == [[0, 0, 0, -1]]


def test_prefix_positions_come_first():
    inputs = task(positions="prefix").batches("train", range(20)).inputs
    counts = np.count_nonzero(inputs, axis=-1)
    assert ((inputs != 0) == (np.arange(12) < counts[..., None])).all()


@pytest.mark.parametrize("ones", [(1, 1), (4, 7), (12, 12)])
def test_counts_stay_in_their_range(ones: tuple[int, int]):
    counts = np.count_nonzero(task(train_ones=ones).batches("train", range(50)).inputs, axis=-1)
    assert (counts.min(), counts.max()) == ones


def test_the_largest_count_grows_with_the_updates():
    growing, alone = task(grow_from=3, grow_over=90), task()
    counts = np.count_nonzero(growing.batches("train", range(200)).inputs, axis=-1)
    most = np.array([3 + (12 - 3) * min(index, 90) // 90 for index in range(200)])
    assert (counts.max(axis=1) <= most).all() and counts.min() == 1
    # In 64 examples the largest count is missing once in a hundred batches or so.
    assert (counts.max(axis=1) == most).mean() > 0.9
    assert most[0] == 3 and most[9] == 3 and most[10] == 4 and most[90] == 12
    whole = alone.batches("train", range(90, 95)).inputs
    assert np.array_equal(growing.batches("train", range(90, 95)).inputs, whole)
    for split in ("valid", "test"):
        assert np.array_equal(growing.batches(split, [0]).inputs, alone.batches(split, [0]).inputs)


def test_growing_from_more_than_there_are_is_not_growing():
    growing, alone = task(grow_from=32, grow_over=90), task()
    assert np.array_equal(growing.batches("train", [0]).inputs, alone.batches("train", [0]).inputs)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"grow_from": 3}, "--grow-over must lie in 1..50 .--updates. with --grow-from 3, got 0"),
        ({"grow_from": 3, "grow_over": 51}, "--grow-over must lie in 1..50 .--updates. with --grow-from 3, got 51"),
        ({"grow_from": 3, "grow_over": 10, "train_ones": (4, 8)}, "--grow-from must be at least 4"),
    ],
)
def test_growing_needs_a_start_and_a_time(settings: dict, said: str):
    with pytest.raises(Refused, match=said):
        task(updates=50, **settings)


def test_growing_can_be_switched_off_by_one_flag():
    alone, off = task(), task(grow_from=None, grow_over=90)
    assert np.array_equal(off.batches("train", [0]).inputs, alone.batches("train", [0]).inputs)


def test_equal_random_words_still_choose_exactly_k():
    same = np.zeros((100, 1 + 12), np.uint32)
    same[:, 0] = np.linspace(0, 2**32 - 1, 100).astype(np.uint32)
    counts = np.count_nonzero(make_inputs(same, 12, (1, 12), "shuffled"), axis=-1)
    assert (counts == 1 + same[:, 0].astype(np.uint64) * 12 // 2**32).all()
    assert counts.min() == 1 and counts.max() == 12


def test_batches_do_not_depend_on_the_chunking():
    made = task()
    whole = made.batches("train", range(10, 20))
    for first, last in ((10, 13), (13, 14), (14, 20)):
        part = made.batches("train", range(first, last))
        for a, b in zip(part, whole, strict=True):
            assert a is b is None or np.array_equal(a, b[first - 10 : last - 10])


def test_batches_differ_by_seed_update_and_split():
    made, other = task(), task(seed=1)
    seen = [made.batches("train", [0]), made.batches("train", [1]), other.batches("train", [0])]
    seen += [made.batches(split, [0]) for split in ("valid", "test", "valid-beyond", "test-beyond")]
    inputs = [batch.inputs[0, :64] for batch in seen]
    for i, a in enumerate(inputs):
        assert not any(np.array_equal(a, b) for b in inputs[:i])


def test_ids_count_through_the_split():
    made = task()
    assert made.batches("train", [0, 1]).example_ids.ravel().tolist() == list(range(128))
    assert made.batches("test", [2]).example_ids.ravel().tolist() == list(range(2 * EVAL_BATCH, 3 * EVAL_BATCH))


def test_the_largest_seed_works():
    assert task(seed=2**63 - 1).batches("train", [10**9]).inputs.shape == (1, 64, 12)


def test_words_are_those_of_philox():
    got = words(7, 2, [5], 5)[0]
    raw = bit_generator(7, 2, 5).random_raw(3)
    assert got.tolist() == [half for word in raw.tolist() for half in (word & 0xFFFFFFFF, word >> 32)][:5]


def test_examples_are_grouped_by_the_number_of_non_zeros():
    assert task().groups(np.array([[1.0, 0, -1], [0, 0, 0]])).tolist() == [2, 0]


def test_second_range_has_splits_of_its_own():
    made = task(train_ones=(1, 6), eval_ones=(7, 12))
    assert made.splits("valid") == ("valid", "valid-beyond")
    assert task(train_ones=(1, 6), eval_ones=(1, 6)).splits("test") == ("test",)
    counts = {split: np.count_nonzero(made.batches(split, [0]).inputs, axis=-1) for split in made.splits("test")}
    assert counts["test"].max() <= 6 < counts["test-beyond"].min()


@pytest.mark.parametrize("settings", [{"train_ones": (1, 6), "eval_ones": (6, 9)}, {"train_ones": (1, 13)}])
def test_ranges_that_do_not_fit_are_refused(settings: dict):
    with pytest.raises(Refused, match="ones must"):
        task(**settings)


def test_stretches_depend_on_the_number_alone():
    whole = list(stretches(0, 1000, 50, 70, 300))
    for first, _ in whole:
        assert list(stretches(first, 1000, 50, 70, 300)) == [s for s in whole if s[0] >= first]
    assert {last for _, last in whole} >= {300, 600, 900, 1000, 70, 50}


def test_prefetch_passes_items_and_exceptions_on():
    def make(x: int) -> int:
        if x == 3:
            raise KeyError("made for the test")
        return x * x

    with prefetch(map(make, range(10))) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 4]
        with pytest.raises(KeyError, match="made for the test"):
            next(items)
    with prefetch(map(make, [1, 2])) as items:
        assert list(items) == [1, 4]


def test_prefetch_stops_when_its_reader_leaves():
    def numbers():
        for number in itertools.count():
            made.append(threading.current_thread())
            yield number

    made: list[threading.Thread] = []
    with prefetch(numbers()) as items:
        assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert 5 <= len(made) <= 5 + 3 and threading.main_thread() not in made
    assert not any(thread.is_alive() for thread in made)


def test_a_unit_begins_with_the_connections_asked_for():
    """Each input is dealt once before any is dealt again, and nothing else about the start changes."""
    dense, sparse = (task(hidden=36, input_connections=k).initial_parameters() for k in (None, 1))
    linked = sparse["rnn.w_x"] != 0
    assert (linked.sum(0) == 1).all() and (linked.sum(1) == 3).all()
    assert all(np.array_equal(sparse[name], dense[name]) for name in dense if name != "rnn.w_x")
    assert np.array_equal(sparse["rnn.w_x"][linked], dense["rnn.w_x"][linked])
    assert not np.array_equal(linked, task(hidden=36, input_connections=1, seed=1).initial_parameters()["rnn.w_x"] != 0)
    assert (task(hidden=36, input_connections=2).initial_parameters()["rnn.w_x"] != 0).sum(0).max() == 2


def test_biases_begin_with_the_deviation_asked_for():
    assert not task().initial_parameters()["rnn.b"].any()
    assert 0.4 < task(hidden=4096, bias_scale=0.5).initial_parameters()["rnn.b"].std() < 0.6


def test_more_connections_than_bits_are_refused():
    with pytest.raises(Refused, match=r"--input-connections must lie in 1\.\.12"):
        task(input_connections=13)
