"""Generated bAbI stories: answered by the rules, the same for a seed, splits apart, written as the released files."""

import hashlib
from pathlib import Path

import pytest

from ponder_ref.runtime.errors import Refused
from tasks.babi import compare, generate, solve, text, vocabulary
from tasks.babi.draws import Draws
from tasks.babi.stories import TASKS, Question, Story, examples

DIGEST = "ce2cca34cdc10201d948dcedf8f267d5491de3cf221b134fa6bc8bab87033c26"  # of the first five questions


@pytest.fixture(scope="module")
def stories() -> dict[int, list[Story]]:
    return {task: generate.generated(task, "train", 600, 7) for task in TASKS}


def words_of(stories: list[Story]) -> set[str]:
    lines = [line if isinstance(line, str) else line.text for story in stories for line in story.lines]
    return {word for line in lines for word in line[:-1].lower().split()}


@pytest.mark.parametrize("task", TASKS)
def test_the_rules_answer_every_question(stories, task: int):
    assert solve.count_right(task, stories[task]) == (600, 600)


@pytest.mark.parametrize("task", TASKS)
def test_the_rules_find_a_wrong_answer_and_need_the_supports(stories, task: int):
    """Without the statements that support it, a question gets no answer, another one, or by luck the same."""
    same = 0
    for story in stories[task][:60]:
        example = next(examples(story))
        rest = [line for i, line in enumerate(story.statements()[: example.above]) if i not in example.facts]
        same += solve.answer(task, rest, example.question.text) == example.question.answer.lower()
    assert same < 36
    wrong = [Story((*story.lines[:-1], Question(story.lines[-1].text, "wrong", (1,)))) for story in stories[task][:9]]
    right, total = solve.count_right(task, wrong)
    assert right == total - len(wrong)


def test_the_vocabulary_is_that_of_the_tasks(stories):
    assert set().union(*(words_of(stories[task]) for task in TASKS)) == set(vocabulary.WORDS)
    assert len(vocabulary.WORDS) == 145 and len(vocabulary.ANSWERS) == 60


def test_all_answers_occur_and_no_others(stories):
    many = {**stories, 7: generate.generated(7, "train", 3000, 0), 8: generate.generated(8, "train", 10_000, 0)}
    found = {question.answer.lower() for task in TASKS for story in many[task] for question in story.questions()}
    assert found == set(vocabulary.ANSWERS)


def test_a_seed_gives_the_same_stories_and_another_seed_others():
    for task in TASKS:
        first, again, other = (text.write(generate.generated(task, "train", 30, seed), task) for seed in (3, 3, 4))
        assert first == again != other


def test_more_questions_only_add_stories():
    few, many = (generate.generated(2, "train", count, 0) for count in (20, 50))
    assert many[: len(few)] == few


def test_the_stories_of_seed_0_are_fixed():
    """They must be the same on every machine; whoever changes the generator says so in the changelog."""
    written = "".join(text.write(generate.generated(task, "train", 5, 0), task) for task in TASKS)
    assert hashlib.sha256(written.encode()).hexdigest() == DIGEST


@pytest.mark.parametrize("task", TASKS)
def test_splits_have_no_story_in_common(task: int):
    sets = [
        {tuple(story.statements()) for story in generate.generated(task, split, 60, 0)[:-1]}  # the last one may be cut
        for split in ("train", "valid", "test")
    ]
    if task not in generate.OVERLAPPING:
        assert not sets[0] & sets[1] | sets[0] & sets[2] | sets[1] & sets[2]
        assert {generate.home(Story(statements)) for statements in sets[1]} == {"valid"}


def test_draws_are_uniform():
    draws = Draws(0, 9, 0)
    counts = [0] * 6
    for _ in range(60_000):
        counts[draws.below(6)] += 1
    assert compare.chi_square_tail(sum((c - 1e4) ** 2 / 1e4 for c in counts), 5) > 1e-3
    assert {draws.other("abc", "b") for _ in range(50)} == {"a", "c"}
    orders = {"".join(draws.cycled("abcd")) for _ in range(400)}
    assert len(orders) == 6 and all(a != b for order in orders for a, b in zip(order, "abcd", strict=True))
    assert len({"".join(draws.shuffled("abcd")) for _ in range(900)}) == 24


def test_a_long_story_is_compared_in_linear_time():
    """What the examples of a story hold together grows with the story, not with its square."""
    question = Question("Where is Mary?", "kitchen", (1,))
    for length in (50, 100):
        story = Story(("Mary moved to the kitchen.", question) * length)
        held = sum(len(value) for example in examples(story) for value in example if isinstance(value, tuple))
        assert held == length * (len(question) + 1)  # the question and its one support
        assert [example.above for example in examples(story)] == list(range(1, length + 1))
    found = compare.features(story)
    assert found["templates"].total() == 200 and found["lengths"] == {100: 1}
    assert found["distances"]["supports", 1] == 100 and found["distances"][0, 50] == 50


def test_stories_that_are_too_long_for_the_rules_are_refused(tmp_path: Path, capsys, monkeypatch):
    lines = (f"{2 * n + 1} Mary moved to the kitchen.\n{2 * n + 2} Where is Mary?\tkitchen\t1\n" for n in range(100))
    (tmp_path / "qa1_train.txt").write_text("".join(lines) * 2, encoding="ascii")
    monkeypatch.setattr(compare, "MOST", 5049)
    monkeypatch.setattr(solve, "count_right", None)  # not reached
    arguments = ["--data-dir", str(tmp_path), "--task", "1", "--questions", "40"]
    assert compare.main(arguments) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "task 1" in sentence and "5050 statements" in sentence


def test_files_of_both_layouts(tmp_path: Path, capsys):
    flags = ["--task", "1,18", "--questions", "40", "--seed", "2"]
    assert generate.main(["--out", str(tmp_path / "long"), *flags]) == 0
    assert generate.main(["--out", str(tmp_path / "short"), *flags, "--layout", "en-valid-10k"]) == 0
    assert "4 files" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "long").iterdir()}
    assert names == {
        f"qa{t}_{s}.txt" for t in ("1_single-supporting-fact", "18_size-reasoning") for s in ("train", "test")
    }
    for folder, split, count in (("long", "1_single-supporting-fact_train", 40), ("short", "1_valid", 4)):
        data = (tmp_path / folder / f"qa{split}.txt").read_bytes()
        assert sum(len(story.questions()) for story in text.read(data, split)) == count


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--task", "0-3"], "--task must lie in 1..20, got '0-3'"),
        (["--task", "3-1"], "--task must lie in 1..20, got '3-1'"),
        (["--task", "one"], "--task takes numbers and ranges such as 1-20 or 2,3,15, got 'one'"),
        (["--questions", "0"], "--questions must"),
        (["--questions", "many"], "--questions must"),
        (["--seed", "-1"], "--seed must"),
        (["--layout", "fr"], "--layout must be one of en-10k, en-valid-10k, got 'fr'"),
        (["--tsak", "1"], "unknown argument '--tsak'; did you mean --task?"),
    ],
)
def test_wrong_flags_get_one_sentence(tmp_path: Path, capsys, flags: list[str], sentence: str):
    assert generate.main(["--out", str(tmp_path / "x"), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(sentence)
    assert not (tmp_path / "x").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Refused, match="is not an empty folder"):
        generate.write_files(tmp_path, (1,), "en-10k", 5, 0)
