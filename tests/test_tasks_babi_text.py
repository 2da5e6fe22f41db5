"""bAbI stories and their file format: round trip, and one sentence with file and line for what is malformed."""

import random

import pytest

from ponder_ref.runtime.errors import Refused
from tasks.babi import text, vocabulary
from tasks.babi.generate import generated
from tasks.babi.stories import TASKS, Question, Story, examples, first_questions

GOOD = "1 Mary moved to the bathroom.\n2 John went to the hallway.\n3 Where is Mary? \tbathroom\t1\n"
STORY = Story(
    (
        "Mary moved to the bathroom.",
        "John went to the hallway.",
        Question("Where is Mary?", "bathroom", (1,)),
        "Mary went back to the office.",
        Question("Where is Mary?", "office", (4,)),
    )
)


def test_a_file_as_released():
    assert text.write([STORY], 1).startswith(GOOD)
    (story,) = text.read(GOOD.encode(), "qa1")
    assert story.lines == STORY.lines[:3]


@pytest.mark.parametrize("task", TASKS)
def test_what_is_written_reads_back(task: int):
    stories = generated(task, "train", 60, 5)
    written = text.write(stories, task)
    assert text.read(written.encode(), "x", vocabulary.check_line) == stories
    assert ("? \t" in written) == (task not in (4, *range(15, 21)))


def test_examples_see_the_statements_above_them_alone():
    first, second = examples(STORY)
    assert (first.above, first.facts) == (2, (0,))
    assert (second.above, second.facts) == (3, (2,))


@pytest.mark.parametrize(("count", "lines"), [(0, []), (1, [3]), (2, [5]), (3, [5, 3]), (4, [5, 5]), (9, [5, 5])])
def test_the_last_story_is_cut_at_the_question(count: int, lines: list[int]):
    assert [len(story.lines) for story in first_questions([STORY, STORY], count)] == lines


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("2 Mary moved to the bathroom.\n", 1, "the line's number should be 1, got 2"),
        (GOOD + "5 Mary moved to the office.\n", 4, "should be 1 or 4, got 5"),
        ("Mary moved to the bathroom.\n", 1, "begins with its number"),
        ("1\n", 1, "begins with its number"),
        ("-1 Mary moved to the bathroom.\n", 1, "begins with its number"),
        (GOOD + "\n", 4, "begins with its number"),
        ("1 Mary moved to the bathroom\n", 1, "a statement is some words and '.'"),
        ("1 .\n", 1, "a statement is some words and '.'"),
        (GOOD + "4 Where is Mary\tbathroom\t1\n", 4, "a question is some words and '?'"),
        (GOOD + "4 Where is Mary?\tbathroom\n", 4, "two tabs"),
        (GOOD + "4 Where is Mary?\tbathroom\t1\t\n", 4, "two tabs"),
        (GOOD + "4 Where is Mary?\t\t1\n", 4, "an answer is one word"),
        (GOOD + "4 Where is Mary?\tbathroom\t\n", 4, "supporting lines are numbers"),
        (GOOD + "4 Where is Mary?\tbathroom\tone\n", 4, "supporting lines are numbers"),
        (GOOD + "4 Where is Mary?\tbathroom\t3\n", 4, "supporting line 3 is not a statement above"),
        (GOOD + "4 Where is Mary?\tbathroom\t4\n", 4, "supporting line 4 is not a statement above"),
        (GOOD + "4 Where is Mary?\tbathroom\t0\n", 4, "supporting line 0 is not a statement above"),
        (GOOD + "4 Mary moved to the kitchén.\n", 4, "not plain ASCII"),
        (GOOD + "4 Mary moved to the moon.\n", 4, "'moon' is not a word of the bAbI tasks"),
        (GOOD + "4 Where is Mary?\tmoon\t1\n", 4, "'moon' is not an answer of the bAbI tasks"),
        (GOOD + "4 " + "the " * 12 + ".\n", 4, "1 to 11 words, got 12"),
    ],
)
def test_a_malformed_line_is_named(content: str, line: int, words: str):
    with pytest.raises(Refused) as caught:
        text.read(content.encode(), "qa1_train.txt", vocabulary.check_line)
    assert str(caught.value).startswith(f"qa1_train.txt, line {line}: ")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_empty_file_is_named():
    with pytest.raises(Refused, match=r"qa1_train\.txt is empty"):
        text.read(b"", "qa1_train.txt")


def test_ten_thousand_damaged_files_load_or_get_one_sentence():
    """Bytes changed, cut out, doubled or moved: never anything but a list of stories or a refusal of one line."""
    sample = text.write(generated(8, "train", 5, 0) + generated(19, "train", 2, 0), 8).encode()
    damage = random.Random(1)
    sentences = []
    for _ in range(10_000):
        data = bytearray(sample)
        for _ in range(damage.randint(1, 3)):
            at, size = damage.randrange(len(data)), damage.randrange(40)
            kind = damage.randrange(4)
            if kind == 0:
                data[at] = damage.choice(b"\t\n\r\0 .?1aZ\xff")
            elif kind == 1:
                del data[at : at + size]
            elif kind == 2:
                data[at:at] = data[at : at + size]
            else:
                del data[at:]
            data = data or bytearray(b"\n")
        try:
            assert text.read(bytes(data), "f", vocabulary.check_line)
        except Refused as error:
            sentences.append(str(error))
    assert 5_000 < len(sentences) < 10_000
    assert all(sentence.startswith("f") and len(sentence.splitlines()) == 1 for sentence in sentences)
