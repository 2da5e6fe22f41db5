"""The generator and the solver against the released bAbI files; skipped where these are not at hand.

PONDERNET_BABI names the folder or archive; else ../shared/data/babi beside the clone is looked at. The same with all
questions: python -m tasks.babi.compare --data-dir DIR
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tasks.babi import compare, solve, text, vocabulary
from tasks.babi.files import Source, open_source
from tasks.babi.generate import generated, write_files
from tasks.babi.stories import TASKS, Story

PLACE = Path(os.environ.get("PONDERNET_BABI") or Path(__file__).resolve().parents[2] / "shared" / "data" / "babi")
here = pytest.mark.skipif(not PLACE.exists(), reason="the released bAbI files are not here")
TESTS = 4 * len(TASKS)  # features times tasks, for Bonferroni's correction
# Stories of the released files and generated questions: enough for the statistics to see a shift of 5 %.
AMOUNTS = {3: (400, 3000), 4: (2000, 2000), 16: (2000, 2000), 17: (900, 7200), 19: (2000, 2000)}
AMOUNT = (500, 2500)
QUIRK = {5: 0.998}  # "What did A give to B?" is sometimes answered by an earlier give


@pytest.fixture(scope="module")
def source() -> Source:
    return open_source(PLACE)


def both(source: Source, task: int) -> tuple[list[Story], list[Story]]:
    """The first released training stories, and generated ones."""
    count, questions = AMOUNTS.get(task, AMOUNT)
    name, read = source.files[task, "train"]
    head = b"\n1 ".join(read().split(b"\n1 ", count)[:count])
    return text.read(head, name, vocabulary.check_line), generated(task, "train", questions, 11)


@here
@pytest.mark.parametrize("task", TASKS)
def test_the_rules_answer_the_released_questions(source: Source, task: int):
    right, total = solve.count_right(task, source.stories(task, "valid"))
    assert total >= 990 and right >= QUIRK.get(task, 1) * total


@here
@pytest.mark.parametrize("task", TASKS)
def test_a_released_file_is_written_back_to_the_byte(source: Source, task: int):
    name, read = source.files.get((task, "valid")) or source.files[task, "test"]
    assert text.write(text.read(read(), name, vocabulary.check_line), task).encode() == read()


@here
@pytest.mark.parametrize("task", TASKS)
def test_generated_stories_are_drawn_like_the_released_ones(source: Source, task: int):
    real, drawn = both(source, task)
    words = [
        {word for story in stories for line in story.lines for word in words_of(line)} for stories in (real, drawn)
    ]
    assert words[0] == words[1]
    for feature, result in compare.compare(real, drawn).items():
        assert result.p * TESTS > compare.LEVEL, (feature, result)
    # The same test must find a twentieth of the sentences in one template's favour.
    first, second = ([compare.features(story)["templates"] for story in stories] for stories in (real, drawn))
    assert compare.two_sample(first, shifted(second)).p * TESTS < compare.LEVEL


def words_of(line) -> tuple[str, ...]:
    return solve.plain(line if isinstance(line, str) else line.text)


def shifted(stories: list[Counter]) -> list[Counter]:
    """Every twentieth sentence is told by the most frequent template."""
    favoured = sum(stories, Counter()).most_common(1)[0][0]
    count, result = 0, []
    for story in stories:
        changed: Counter = Counter()
        for template in story.elements():
            count += 1
            changed[favoured if count % 20 == 0 else template] += 1
        result.append(changed)
    return result


def test_the_statistics_accept_equal_draws_and_reject_a_shift():
    """The same without files: one seed against another, and against a twentieth of shifted sentences."""
    first, second = (
        [compare.features(story)["templates"] for story in generated(6, "train", 3000, seed)] for seed in (1, 2)
    )
    assert compare.two_sample(first, second).p > 1e-3
    assert compare.two_sample(first, shifted(second)).p < 1e-6


def test_the_command_tells_like_from_unlike(tmp_path: Path, capsys):
    write_files(tmp_path / "like", (1, 12), "en-10k", 2000, 5)
    flags = ["--task", "1,12", "--questions", "2000", "--data-dir"]
    assert compare.main([*flags, str(tmp_path / "like")]) == 0
    assert "task 12, 360 stories, 1800 of 1800 answered by the rules: templates" in capsys.readouterr().out
    for file in (tmp_path / "like").iterdir():
        file.write_bytes(file.read_bytes().replace(b"travelled", b"journeyed"))
    assert compare.main([*flags, str(tmp_path / "like")]) == 1
    assert compare.main([*flags, str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("there is no folder or archive")


def test_pearson_where_every_story_has_one_observation():
    """[30, 70] against [50, 50]: χ² with unpooled variances is 0.2²/(0.21/100 + 0.25/100)."""
    first = [Counter("a")] * 30 + [Counter("b")] * 70
    second = [Counter("a")] * 50 + [Counter("b")] * 50
    result = compare.two_sample(first, second)
    assert result.freedom == 1 and result.statistic == pytest.approx(0.04 / 0.0046)


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    [  # From tables and exact cases: with two degrees of freedom exp(−x/2), with four (1 + x/2)·exp(−x/2).
        (0.0, 3, 1.0),
        (2.0, 2, 0.36787944117144233),
        (60.0, 2, 9.357622968840175e-14),
        (9.0, 4, 0.06109948096033),
        (18.307038053275146, 10, 0.05),
        (0.00393214, 1, 0.95),
        (124.34211340400407, 100, 0.05),
    ],
)
def test_the_tail_of_chi_square(statistic: float, freedom: int, tail: float):
    assert compare.chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=1e-6)
