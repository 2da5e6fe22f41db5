"""Memories and queries: the laws of the task, and that an example depends on nothing but its number."""

import numpy as np
import pytest
from pai_checks import all_queries, materialise, places, sides_of

from ponder_ref.runtime.errors import Refused
from tasks.pai.data import Data
from tasks.pai.images import Images
from tasks.pai.layout import compact, shuffled_memory, without_memory
from tasks.pai.sequences import kinds_of, sequences
from tasks.pai.trials import distinct, draw, kinds, permutation, query_types, word_count

IMAGES = Images(3)


def data(**settings) -> Data:
    return Data(**{"source": IMAGES, "seed": 3, "batch_size": 8, **settings})


def many(length: int, count: int = 4096, size: int = 10**5):
    """Many examples without images, the first half of them direct."""
    random = np.random.default_rng(length).integers(0, 2**32, (count, word_count(length)), np.uint32)
    return draw(random, np.arange(count) < count // 2, size, length)


def sequences_of(rows: np.ndarray) -> list[list[int]]:
    """The sequences of one memory, found by walking along its pairs."""
    after = {int(a): int(b) for a, b in rows}
    found = []
    for slot in sorted(after.keys() - after.values()):
        found.append([slot])
        while found[-1][-1] in after:
            found[-1].append(after[found[-1][-1]])
    return found


@pytest.mark.parametrize("length", [3, 4, 5])
def test_memories_hold_all_neighbours_of_sixteen_sequences(length: int):
    drawn = many(length, 50)
    assert drawn.rows.shape == (50, 16 * (length - 1), 2)
    for picks, rows in zip(drawn.picks, drawn.rows, strict=True):
        found = sequences_of(rows)
        assert [len(of) for of in found] == [length] * 16
        assert sorted(slot for of in found for slot in of) == list(range(16 * length))
        assert len(set(picks)) == 16 * length


@pytest.mark.parametrize("length", [3, 4, 5])
def test_queries_are_those_of_the_paper(length: int):
    drawn = many(length, 200)
    for i, rows in enumerate(drawn.rows):
        queries = drawn.queries
        where = {slot: (s, k) for s, of in enumerate(sequences_of(rows)) for k, slot in enumerate(of)}
        (cue, cue_place), *options = (where[int(slot)] for slot in queries.slots[i])
        (match, match_place), (lure, lure_place) = options[queries.side[i]], options[1 - queries.side[i]]
        assert match == cue != lure and lure_place == match_place > cue_place
        assert queries.slots[i, 1 + queries.side[i]] == queries.match[i]
        assert query_types(length)[queries.kind[i]] == (cue_place, match_place)
        assert (match_place - cue_place == 1) == (i < 100)


def test_types_are_numbered_as_in_the_released_files():
    assert [kind.name for kind in query_types(3)] == ["A-B", "B-C", "A-C"]
    assert [kind.name for kind in query_types(4)] == ["A-B", "B-C", "A-C", "C-D", "B-D", "A-D"]
    assert [kind.steps for kind in query_types(4)] == [0, 0, 1, 0, 1, 2]
    assert kinds(4, direct=True).tolist() == [0, 1, 3] and kinds(4, direct=False).tolist() == [2, 4, 5]


def even(counts: np.ndarray) -> bool:
    """Whether counts are as even as chance would have them (chi square within 4.5 deviations)."""
    expected = counts.sum() / counts.size
    return abs(((counts - expected) ** 2 / expected).sum() - counts.size + 1) < 4.5 * np.sqrt(2 * counts.size)


@pytest.mark.parametrize("length", [3, 4])
def test_all_queries_of_a_memory_are_different_and_drawn_alike(length: int):
    slots = np.arange(16 * length).reshape(16, length)
    every = all_queries(slots)
    assert len(every.kind) == len(query_types(length)) * 16 * 15 * 2
    assert len({tuple(query) for query in every.slots}) == len(every.kind)
    queries = many(length).queries
    assert even(np.bincount(queries.kind[:2048], minlength=len(query_types(length)))[kinds(length, direct=True)])
    assert even(np.bincount(queries.kind[2048:], minlength=len(query_types(length)))[kinds(length, direct=False)])
    assert even(np.bincount(queries.side))
    assert all(even(np.bincount(queries.slots[:, i])) for i in range(3))


def test_neither_slots_nor_row_numbers_tell_what_belongs_together():
    drawn = many(3)
    rows = drawn.rows.astype(np.int64)
    beside = np.abs(rows[..., 0] - rows[..., 1]) == 1  # by chance one in 24
    assert abs(beside.mean() - 1 / 24) < 4.5 * np.sqrt(1 / 24 / beside.size)
    # The row that goes on where row 0 ends, or that ends where row 0 begins, is anywhere among the others.
    first, others = rows[:, :1], rows[:, 1:]
    partner = ((others[..., 0] == first[..., 1]) | (others[..., 1] == first[..., 0])).argmax(axis=1)
    assert even(np.bincount(partner, minlength=31))
    # Nor does the place of the cue's row say on which side the match is.
    for row in (0, 31):
        asked = (rows[:, row] == drawn.queries.slots[:, :1]).any(axis=1)
        assert abs(drawn.queries.side[asked].mean() - 0.5) < 4.5 * 0.5 / np.sqrt(asked.sum())


def test_images_are_drawn_without_bias():
    picks = distinct(np.random.default_rng(0).integers(0, 2**32, (20_000, 3), np.uint32), 5)
    assert all(len(set(row)) == 3 for row in picks[:500])
    sets = (1 << picks).sum(axis=1)
    assert even(np.bincount(sets)[np.unique(sets)]) and len(np.unique(sets)) == 10
    assert sorted(distinct(np.zeros((1, 48), np.uint32), 48)[0]) == list(range(48))
    assert (permutation(np.full((2, 6), 7, np.uint32)) == np.arange(6)).all()


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize("target", ["side", "class"])
def test_batches_have_their_shapes_and_targets(length: int, target: str):
    task = data(length=length, target=target)
    batch = task.batches("train", [2, 9])
    inputs = batch.inputs
    assert inputs["images"].shape == (2, 8, 16 * length, 1000) and inputs["images"].dtype == np.float32
    assert inputs["rows"].shape == (2, 8, 16 * (length - 1), 2) and inputs["rows"].dtype == np.int32
    assert inputs["query"].shape == (2, 8, 3) and inputs["query"].dtype == np.int32
    assert batch.weights is None and batch.targets.dtype == np.int64
    assert (batch.example_ids == np.array([[16], [72]]) + np.arange(8)).all()
    side = sides_of(inputs)
    if target == "side":
        assert task.outputs == 2 and (batch.targets == side).all()
    else:
        drawn, _ = task.drawn("train", [2, 9])
        match = np.take_along_axis(inputs["query"], 1 + side[..., None], -1).astype(int)
        pick = np.take_along_axis(drawn.picks, match, -1)[..., 0]
        assert task.outputs == 1000 and (batch.targets == pick % 1000).all()
        image = np.take_along_axis(inputs["images"], match[..., None], -2)[..., 0, :]
        assert (image == IMAGES.embeddings("train", pick)).all()
    kind = task.with_kinds("train", [2, 9])[1]
    assert (kind == task.drawn("train", [2, 9])[0].queries.kind).all()
    direct = np.isin(kind, kinds(length, direct=True))
    assert (direct == (np.arange(8) % 2 == 0)).all()


def test_a_batch_depends_on_its_number_alone():
    together, alone = data().batches("train", [5, 6, 7]), data().batches("train", [6])
    for name, array in together.inputs.items():
        assert (array[1] == alone.inputs[name][0]).all()
        assert (array[0] != array[1]).any()
    assert (together.targets[1] == alone.targets[0]).all()


def as_the_spec_writes_it(random: list[int], size: int, length: int, direct: bool) -> tuple[list, list, list, int]:
    """Picks, rows, query and side of one example, step by step from the prose of spec/annex/tasks.md."""

    def m(word: int, bound: int) -> int:
        return word * bound // 2**32

    def ordered(words: list[int]) -> list[int]:
        bits = (len(words) - 1).bit_length()
        return sorted(range(len(words)), key=lambda i: (words[i] >> bits << bits) + i)

    n, picks = 16 * length, []
    for i, word in enumerate(random[:n]):
        pick = m(word, size - n + i + 1)
        picks.append(size - n + i if pick in picks else pick)
    slots = ordered(random[n : 2 * n])
    pairs = [slots[s * length + k : s * length + k + 2] for s in range(16) for k in range(length - 1)]
    rows = [pairs[i] for i in ordered(random[2 * n : -1])]
    types = [(i, j) for j in range(1, length) for i in range(j - 1, -1, -1) if (j - i == 1) == direct]
    q = m(random[-1], 480 * len(types))
    kind, sequence, lure, side = q // 480, q // 30 % 16, q // 2 % 15, q % 2
    cue, match = types[kind]
    options = [slots[sequence * length + match], slots[(sequence + 1 + lure) % 16 * length + match]]
    return picks, rows, [slots[sequence * length + cue], *(options[::-1] if side else options)], side


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize(("split", "stream"), [("train", 0), ("valid", 1), ("test", 2)])
def test_examples_are_those_of_the_spec(length: int, split: str, stream: int):
    drawn, ids = data(length=length, seed=11).drawn(split, [6])
    philox = np.random.Philox(key=np.array([11, stream], np.uint64), counter=np.array([0, 0, 0, 6], np.uint64))
    count = 16 * (3 * length - 1) + 1
    random = np.frombuffer(philox.random_raw(4 * count).astype("<u8").tobytes(), "<u4").tolist()
    for r in range(8):
        direct = ids[0, r] % 2 == 0
        mine = as_the_spec_writes_it(random[r * count : (r + 1) * count], IMAGES.size(split), length, direct)
        queries = drawn.queries
        theirs = (drawn.picks[0, r], drawn.rows[0, r], queries.slots[0, r], queries.side[0, r])
        assert mine == tuple(array.tolist() for array in theirs)


def test_the_papers_layout_and_back():
    batch = data(batch_size=4).batches("train", [0])
    memory, query = materialise(batch.inputs)
    assert memory.shape == (1, 4, 32, 2, 1000) and query.shape == (1, 4, 3, 1000)
    one = {name: array[0, 2] for name, array in batch.inputs.items()}
    assert (memory[0, 2, 5, 1] == one["images"][one["rows"][5, 1]]).all()
    assert (query[0, 2, 0] == one["images"][one["query"][0]]).all()
    again = compact(memory[0, 2], query[0, 2], 50)
    assert (again["images"][48:] == 0).all() and again["images"].shape == (50, 1000)
    for got, expected in zip(materialise(again), (memory[0, 2], query[0, 2]), strict=True):
        assert (got == expected).all()
    assert sides_of(again) == batch.targets[0, 2]
    assert kinds_of(again["rows"], again["query"][None], 3) == data(batch_size=4).with_kinds("train", [0])[1][0, 2]
    with pytest.raises(ValueError, match="hold 48 different images, expected at most 47"):
        compact(memory[0, 2], query[0, 2], 47)


def test_zeros_of_either_sign_are_one_image():
    memory = np.array([[[0.0, 1.0], [2.0, 3.0]]], np.float32)
    inputs = compact(memory, np.array([[-0.0, 1.0], [2.0, 3.0], [5.0, 5.0]], np.float32), 3)
    assert inputs["query"][0] == inputs["rows"][0, 0] and inputs["query"][1] == inputs["rows"][0, 1]


def test_controls_keep_the_query_and_take_the_memory_away():
    batch = data(batch_size=64).batches("train", [0])
    memory, query = materialise(batch.inputs)
    empty, empty_query = materialise(without_memory(batch.inputs))
    assert (empty_query == query).all() and empty.shape == memory.shape and not empty.any()
    control = shuffled_memory(batch.inputs)
    other, other_query = materialise(control)
    assert (other_query == query).all() and (other == np.roll(memory, 1, axis=1)).all()
    assert (sides_of(control) == -1).all() and (sides_of(without_memory(batch.inputs)) == -1).all()


@pytest.mark.parametrize("length", [3, 4, 5])
def test_pairs_tell_the_type_of_a_query_in_any_order(length: int):
    drawn, random = many(length, 200), np.random.default_rng(0)
    for i, rows in enumerate(drawn.rows):
        query, kind = drawn.queries.slots[i, None], drawn.queries.kind[i]
        _, place = places(rows, 16 * length)
        assert query_types(length)[kind] == (place[query[0, 0]], place[query[0, 1]])
        assert kinds_of(rows, query, length) == kind
        assert kinds_of(random.permuted(rows, axis=1), query, length) == kind


def test_queries_of_no_type():
    """Two sequences 0 1 2 and 3 4 5; slot 6 stands in no pair."""
    rows = np.array([[0, 1], [1, 2], [3, 4], [4, 5]])
    known = {(0, 1, 4): 0, (0, 4, 1): 0, (1, 5, 2): 1, (1, 2, 3): 1, (0, 2, 5): 2, (2, 0, 3): 2}
    assert kinds_of(rows, np.array(list(known)), 3).tolist() == list(known.values())
    # both in the sequence, none, the cue itself, a lure at another place, and images that stand in no pair
    odd = [(0, 1, 2), (0, 4, 5), (0, 0, 3), (0, 1, 5), (0, 2, 4), (0, 1, 6), (0, 6, 4), (6, 1, 4), (6, 6, 6)]
    assert kinds_of(rows, np.array(odd), 3).tolist() == [3] * len(odd)
    # 3 4 5 6 is too long, and 7 is beside three others
    rows = np.array([[0, 1], [1, 2], [3, 4], [4, 5], [5, 6], [7, 8], [9, 7], [7, 10]])
    assert sequences(rows, 3) == [[0, 1, 2]] and sequences(rows, 4) == [[3, 4, 5, 6]]
    assert kinds_of(rows, np.array([[0, 1, 4], [3, 4, 1], [8, 7, 1]]), 3).tolist() == [3, 3, 3]


@pytest.mark.parametrize("rows", [[[0, 1], [1, 2], [2, 0]], [[0, 1], [1, 0]], [[1, 1]], [[0, 1], [0, 2], [2, 1]]])
def test_a_ring_of_pairs_is_told(rows: list):
    with pytest.raises(ValueError, match="form a ring"):
        sequences(np.array(rows), 3)
    assert sequences(np.array([[0, 1], [1, 2], [0, 1]]), 3) == [[0, 1, 2]]


def test_wrong_settings_get_one_sentence():
    with pytest.raises(Refused, match="must be one of 3, 4, 5, got 6"):
        data(length=6)
    with pytest.raises(Refused, match="must be one of class, side, got 'left'"):
        data(target="left")
