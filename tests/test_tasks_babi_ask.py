"""`python -m tasks.babi.ask`: hand-written stories of all tasks, answered by the rules and by the shipped model."""

import io
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ponder_ref.runtime.checkpoint import FORMAT, PARAMETERS, PREFIX, Checkpoint, to_bytes
from tasks.babi import ask
from tasks.babi.settings import BabiConfig
from tasks.babi.solve import answer
from tasks.babi.task import Babi
from tasks.flags import to_json
from tasks.runs import MODEL, is_shipped

SMALL = {"embedding": 16, "attention": 16, "heads": 2, "transition": 16, "max_steps": 3, "sentences": 20}


class Asked(NamedTuple):
    """A question with its story and its answer."""

    task: int
    story: tuple[str, ...]
    question: str
    answer: str


def hand_written() -> list[Asked]:
    """The stories beside this file: a line "task N", then sentences and questions with their answers."""
    found = []
    text = (Path(__file__).parent / "babi_stories.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        head, *lines = block.strip().splitlines()
        story: list[str] = []
        for line in lines:
            sentence, _, right = line.partition("\t")
            if right:
                found.append(Asked(int(head.removeprefix("task ")), tuple(story), sentence, right))
            else:
                story.append(sentence)
    return found


STORIES = hand_written()


def shipped(folder: Path, form: str = PARAMETERS, **settings) -> Path:
    """A folder as `tasks.babi.ship` makes it, of a model that has learnt nothing."""
    config = BabiConfig(**{**SMALL, **settings})
    params = config.model_settings().initial_parameters(3)
    arrays = {PREFIX + name: np.asarray(array, np.float32) for name, array in params.items()}
    about = {"task": "babi", "config": to_json(config), "spec": "1.2.0", "update": 7}
    folder.mkdir()
    (folder / MODEL).write_bytes(to_bytes(Checkpoint(arrays, about), form))
    return folder


def spoken(capsys: pytest.CaptureFixture, code: int, text: str, *arguments: str) -> tuple[str, str]:
    """What is said to a story that is piped in."""
    assert ask.main(list(arguments), io.StringIO(text)) == code
    return capsys.readouterr()


def test_the_stories_are_of_all_tasks_and_their_answers_follow_from_the_rules():
    assert {asked.task for asked in STORIES} == set(range(1, 21))
    for asked in STORIES:
        assert answer(asked.task, asked.story, asked.question) == asked.answer, asked


@pytest.mark.skipif(not is_shipped(Babi.PRETRAINED), reason="no checkpoint is shipped here")
@pytest.mark.parametrize("task", range(1, 21))
def test_the_shipped_model_answers_hand_written_stories(task: int, capsys: pytest.CaptureFixture):
    for asked in (asked for asked in STORIES if asked.task == task):
        out, _ = spoken(capsys, 0, "\n".join([*asked.story, asked.question]))
        assert f"answer: {asked.answer} " in out, out


def test_every_step_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("safetensors")
    monkeypatch.setattr(Babi, "PRETRAINED", shipped(tmp_path / "shipped"))
    out, err = spoken(capsys, 0, "Mary moved to the kitchen.\nWhere is Mary?\n\nWhere is John?\n")
    assert err == ""
    assert out.count("answer: ") == 2
    steps = [line.split() for line in out.splitlines() if line.split()[0].isdecimal()]
    assert [int(words[0]) for words in steps] == [1, 2, 3] * 2
    assert sum(float(words[1]) for words in steps) == pytest.approx(2, abs=0.01)
    assert spoken(capsys, 0, "Where is John?", "--run", str(tmp_path / "shipped"))[0] in out  # the story before is gone


@pytest.mark.parametrize("start", ["1 ", "2 ", "\n"], ids=["one", "not above", "empty line"])
def test_numbers_that_do_not_rise_begin_a_new_story(start: str):
    first = "2 Mary moved to the kitchen.\n3 Where is Mary?\tkitchen\t2\n"
    found = list(ask.questions(f"{first}{start}John moved to the garden.\n4 Where is John?\n".splitlines(), 20))
    assert [question for question, _ in found] == ["Where is Mary?", "Where is John?"]
    assert [len(rows) for _, rows in found] == [2, 2]
    (_, _), (_, rows) = ask.questions("Mary moved to the kitchen.\n1 Where is Mary?\n2 Where is Mary?".splitlines(), 20)
    assert len(rows) == 1


def test_a_reader_that_leaves_gets_no_trace(tmp_path: Path):
    pytest.importorskip("safetensors")
    command = [sys.executable, "-m", "tasks.babi.ask", "--run", str(shipped(tmp_path / "shipped"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdin and child.stdout and child.stderr
        child.stdout.close()
        child.stdin.write("Where is Mary?\n")
        child.stdin.close()
        assert (child.stderr.read(), child.wait()) == ("", 141)


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_a_wrong_line_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture):
    pytest.importorskip("safetensors")
    folder = str(shipped(tmp_path / "shipped"))
    typed = Terminal("Mary ate a zebra.\nMary moved to the kitchen.\nWhere is Mary?\n")
    assert ask.main(["--run", folder], typed) == 0
    out, err = capsys.readouterr()
    hint, sentence = err.splitlines()
    assert "Ctrl-D" in hint and sentence == "line 1: 'ate' is not a word of the bAbI tasks"
    assert out == spoken(capsys, 0, "Mary moved to the kitchen.\nWhere is Mary?\n", "--run", folder)[0]


def test_what_cannot_be_answered_gets_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("safetensors")
    monkeypatch.setattr(Babi, "PRETRAINED", tmp_path / "none")
    good, act = shipped(tmp_path / "good"), shipped(tmp_path / "act", method="act")
    whole = shipped(tmp_path / "whole", FORMAT)  # a checkpoint to go on from is not one to ship
    for words, text, *arguments in (
        ("no checkpoint of babi is shipped here", "Where is Mary?"),
        ("there is no run folder", "Where is Mary?", "--run", str(tmp_path / "nowhere")),
        ("there is no question", "Mary moved to the kitchen.", "--run", str(good)),
        ("line 2: 'zebra' is not a word", "Mary moved to the kitchen.\nWhere is the zebra?", "--run", str(good)),
        ("line 1: '77777", f"{'7' * 5000} Where is Mary?", "--run", str(good)),
        ("is a run of --method act", "Where is Mary?", "--run", str(act)),
        ("not a checkpoint of this project", "Where is Mary?", "--run", str(whole)),
    ):
        out, err = spoken(capsys, 2, text, *arguments)
        (sentence,) = err.splitlines()
        assert words in sentence and out == ""
    monkeypatch.setattr(sys, "stdin", None)
    assert ask.main(["--run", str(good)]) == 2
    assert capsys.readouterr().err == "there is no story: standard input is closed\n"
