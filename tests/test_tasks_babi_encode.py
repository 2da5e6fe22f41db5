"""bAbI stories as arrays: words, padding, truncation, buckets, and batches that are a function of their number."""

import numpy as np
import pytest

from tasks.babi import encode, text, vocabulary
from tasks.babi.files import Source
from tasks.babi.generate import generated
from tasks.babi.sampling import Pool
from tasks.babi.stories import Question, Story, examples
from tasks.babi.vocabulary import ANSWERS, WORDS

LONG = Story(
    (
        *(f"Mary moved to the {place}." for place in ("office", "garden") * 200),
        Question("Where is Mary?", "garden", (400,)),
    )
)


def text_of(numbers: np.ndarray) -> str:
    return " ".join(WORDS[number - 1] for number in numbers if number)


@pytest.fixture(scope="module")
def table() -> encode.Table:
    return encode.generated_table((1, 3, 8, 20), "train", 200, 0)


def test_words_are_numbered_from_1_and_padded_with_0():
    numbers = vocabulary.sentence_numbers("The box of chocolates fits inside the chest.")
    assert len(numbers) == 11 and numbers[8:] == (0, 0, 0) and min(numbers[:8]) >= 1
    assert text_of(np.array(numbers)) == "the box of chocolates fits inside the chest"
    assert vocabulary.sentence_numbers("Where is MARY ?")[:3] == vocabulary.sentence_numbers("where is mary")[:3]
    assert len(vocabulary.WORDS) == 145 and encode.CLASSES == 60


@pytest.mark.parametrize("answer", ["milk,apple", "n,w", "Fred", "maybe"])
def test_an_answer_is_one_class_with_its_commas(answer: str):
    assert ANSWERS[vocabulary.answer_number(answer)] == answer.lower()


def test_a_table_says_what_the_stories_say():
    stories = generated(8, "train", 50, 1)
    table = encode.encode(stories, 8)
    told = [(story.statements()[: one.above], one) for story in stories for one in examples(story)]
    assert len(told) == len(table.answers) == 50
    for number, (statements, example) in enumerate(told):
        inputs = encode.gather(table, np.array([number]), 64)
        expected = [" ".join(text[:-1].lower().split()) for text in statements]
        assert [text_of(row) for row in inputs.sentences[0] if row.any()] == expected
        assert inputs.lengths[0] == len(expected) and not inputs.sentences[0, len(expected) :].any()
        assert text_of(inputs.questions[0]) == example.question.text[:-1].lower()
        assert ANSWERS[table.answers[number]] == example.question.answer


def test_loaded_and_generated_stories_give_the_same_table():
    files = {
        (task, "test"): (f"qa{task}", lambda task=task: text.write(generated(task, "test", 20, 0), task).encode())
        for task in (5, 15)
    }
    loaded = encode.loaded_table(Source("files", files), (5, 15), "test")
    made = encode.generated_table((5, 15), "test", 20, 0)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(loaded, made, strict=True))
    other = encode.generated_table((5, 15), "test", 20, 0, part=1)
    assert not np.array_equal(other.sentences[:20], made.sentences[:20])


def test_long_stories_keep_the_most_recent_320_sentences():
    table = encode.encode([LONG], 1)
    assert table.lengths().tolist() == [320] and table.stops.tolist() == [400]
    inputs = encode.gather(table, np.array([0]), 320)
    assert text_of(inputs.sentences[0, -1]) == "mary moved to the garden"


def test_joined_tables_keep_their_stories(table: encode.Table):
    parts = [encode.generated_table((task,), "train", 200, 0) for task in (1, 3, 8, 20)]
    for number, part in enumerate(parts):
        ids = np.arange(200)
        for ours, theirs in zip(
            encode.gather(table, ids + 200 * number, 320), encode.gather(part, ids, 320), strict=True
        ):
            assert np.array_equal(ours, theirs)
    assert np.array_equal(table.tasks, np.repeat([1, 3, 8, 20], 200))


def test_buckets_hold_their_lengths():
    lengths = np.arange(1, 321)
    sizes = np.array(encode.BUCKETS)[encode.buckets_of(lengths)]
    assert (sizes >= lengths).all()
    smaller = np.array([0, *encode.BUCKETS])[encode.buckets_of(lengths)]
    assert (smaller < lengths).all()
    with pytest.raises(ValueError, match="no bucket"):
        encode.buckets_of(np.array([5]), (2, 4))
    with pytest.raises(ValueError, match="does not go into 2"):
        encode.gather(encode.encode([LONG], 1), np.array([0]), 2)


def test_an_example_is_the_same_in_any_bucket(table: encode.Table):
    ids = np.flatnonzero(table.lengths() <= 10)[:50]
    small, large = encode.gather(table, ids, 10), encode.gather(table, ids, 64)
    assert np.array_equal(small.sentences, large.sentences[:, :10]) and not large.sentences[:, 10:].any()


def test_a_batch_depends_on_its_number_alone(table: encode.Table):
    pool = Pool(table)
    rows = pool.rows(64)
    chunk = pool.batches(3, range(10, 14), rows)
    for bucket, part in zip(chunk, pool.batches(3, [12], rows), strict=True):
        assert np.array_equal(bucket.example_ids[2], part.example_ids[0])
        assert np.array_equal(bucket.inputs.sentences[2], part.inputs.sentences[0])
        assert bucket.inputs.sentences.shape[:2] == bucket.targets.shape == bucket.weights.shape
    other = pool.batches(4, [12], rows)
    assert any(not np.array_equal(a.example_ids[2], b.example_ids[0]) for a, b in zip(chunk, other, strict=True))


def test_rows_add_up_and_follow_the_shares(table: encode.Table):
    pool = Pool(table)
    for size in (len(pool.buckets), 64, 1000):
        rows = pool.rows(size)
        assert sum(rows) == size and min(rows) >= 1
    assert all(abs(r / 1000 - b.share) < 0.01 for r, b in zip(pool.rows(1000), pool.buckets, strict=True))
    assert sum(bucket.share for bucket in pool.buckets) == pytest.approx(1, abs=1e-12)
    with pytest.raises(ValueError, match="cannot have a row of each"):
        pool.rows(len(pool.buckets) - 1)
    with pytest.raises(ValueError, match="rows are needed for each"):
        pool.batches(0, [0], [1])


@pytest.mark.parametrize("shares", [{}, {8: 2.5}])
def test_every_task_has_its_share_and_every_question_of_it_is_equally_likely(shares: dict[int, float]):
    """Unequal tasks, few rows per bucket: the weights give each task its sum, and each question of a task."""
    tables = [encode.generated_table((task,), "train", count, 0) for task, count in ((1, 20), (8, 60), (20, 40))]
    table = encode.join(tables)
    pool = Pool(table, (1, 4, 16, 64), shares)
    total = np.zeros(len(table.answers))
    squares = np.zeros(len(table.answers))
    updates = 4000
    for batch in pool.batches(0, range(updates), pool.rows(12)):
        for update_ids, weights in zip(batch.example_ids.T, batch.weights.T, strict=True):
            np.add.at(total, update_ids, weights)
            np.add.at(squares, update_ids, weights.astype(float) ** 2)
    share = total / updates
    assert share.sum() == pytest.approx(1, abs=1e-6)
    each = np.array([shares.get(task, 1.0) for task in table.tasks])
    expected = each / ((2 + shares.get(8, 1.0)) * np.bincount(table.tasks)[table.tasks])
    assert (np.abs(share - expected) < 5 * np.sqrt(squares) / updates).all()
    assert np.array_equal(np.unique(np.concatenate([b.ids for b in pool.buckets])), np.arange(len(total)))


def test_an_evaluation_sees_every_question_once(table: encode.Table):
    pool = Pool(table)
    seen: list[int] = []
    for batch in pool.in_order(96):
        assert batch.targets.shape == (96,) and set(np.unique(batch.weights)) <= {0, 1}
        seen += batch.example_ids[batch.weights == 1].tolist()
    assert sorted(seen) == list(range(800))
