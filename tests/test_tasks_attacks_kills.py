"""Commands that are killed at any rename, removal or flush: nothing false is left, and the same command then works."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("safetensors")
if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

from attack_runs import babi_run, parity_run
from kill_at import deaths
from task_helpers import contents, inside, refused

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.files import TEMPORARY, is_unfinished
from tasks.babi import generate, ship
from tasks.babi.card import render
from tasks.babi.files import UNFINISHED, open_source
from tasks.babi.task import Babi
from tasks.export import __main__ as export
from tasks.runs import MODEL, open_trained

FLAGS = ["--task", "1,6", "--questions", "20"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def temporary(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if TEMPORARY.fullmatch(path.name)]


def test_generated_files_are_all_there_or_marked(place: Path, tmp_path: Path):
    assert generate.main(["--out", str(tmp_path / "whole"), *FLAGS]) == 0
    whole, found, marked = contents(tmp_path / "whole"), set(), 0
    for death, folder in deaths(tmp_path, "generate", "--out", "place", *FLAGS).items():
        out = folder / "place"
        there = {name: data for name, data in contents(out).items() if name.startswith("qa")}
        assert there.items() <= whole.items(), death
        found.add(len(there))
        if (out / UNFINISHED).exists():
            marked += 1
            with pytest.raises(Refused, match="is unfinished: give the command"):
                open_source(out)
            other = inside("--out", out, "--task", "1", cwd=tmp_path, main=generate.main)
            assert "is not an empty folder" in refused(other)
        else:  # not begun, or all but ended
            assert there in ({}, whole), death
        if there != whole or (out / UNFINISHED).exists():
            assert generate.main(["--out", str(out), *FLAGS]) == 0, death
        assert contents(out) == whole, death
    assert found == {0, 1, 2, 3, 4} and marked > 9


def test_a_folder_with_files_of_others_beside_the_mark_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / UNFINISHED).write_text('{"tasks": [1, 6], "layout": "en-10k", "questions": 20, "seed": 0}')
    for name in ("thesis.txt", "qa2_two-supporting-facts_train.txt"):
        (tmp_path / name).write_text("mine")
        assert generate.main(["--out", str(tmp_path), *FLAGS]) == 2
        assert "is not an empty folder" in capsys.readouterr().err
        (tmp_path / name).unlink()
    assert generate.main(["--out", str(tmp_path), *FLAGS]) == 0


def test_a_shipped_checkpoint_is_the_old_or_the_new_one_and_its_card_its_own(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ship, "scores", lambda *_: [])
    old, new = babi_run(tmp_path / "old"), babi_run(tmp_path / "new", seed=1)
    assert ship.main([str(old), "--out", str(place)]) == 0
    before, models = contents(place), set()
    assert sorted(before) == ["card.json", "card.md", MODEL]
    for death, folder in deaths(tmp_path, "ship", new, "--out", "place").items():
        out = folder / "place"
        assert open_trained(Babi, str(out))[0].task == "babi"
        data = (out / MODEL).read_bytes()
        models.add(data == before[MODEL])
        if not is_unfinished(out / "card.json"):
            card = json.loads((out / "card.json").read_text())
            assert card["model"]["sha256"] == hashlib.sha256(data).hexdigest(), death
            assert (out / "card.md").read_text() == render(card), death
        elif (out / "card.md").exists() and data != before[MODEL]:
            assert hashlib.sha256(data).hexdigest() in (out / "card.md").read_text(), death
        assert ship.main([str(new), "--out", str(out)]) == 0, death
        assert temporary(out) == [] and (out / MODEL).read_bytes() != before[MODEL]
    assert models == {True, False}


def test_a_first_shipping_that_was_killed_can_be_given_again(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ship, "scores", lambda *_: [])
    run = babi_run(tmp_path / "run")
    for death, folder in deaths(tmp_path, "ship", run, "--out", "place").items():
        assert ship.main([str(run), "--out", str(folder / "place")]) == 0, death
        assert sorted(contents(folder / "place")) == ["card.json", "card.md", MODEL], death


@pytest.mark.parametrize("again", [False, True])
def test_an_export_is_described_by_its_own_description_or_by_none(again: bool, place: Path, tmp_path: Path):
    pytest.importorskip("onnx")
    words = [str(parity_run(tmp_path / "run")), "--format", "onnx", "--out"]
    if again:
        assert export.main([*words, str(place / "x.onnx"), "--policy", "fixed"]) == 0
    for death, folder in deaths(tmp_path, "export", *words, "place/x.onnx").items():
        file, beside = folder / "place" / "x.onnx", folder / "place" / "x.onnx.json"
        if file.exists() and not is_unfinished(beside):
            description = json.loads(beside.read_text())
            assert description["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest(), death
        assert export.main([*words, str(file)]) == 0, death
        assert sorted(path.name for path in file.parent.iterdir()) == ["x.onnx", "x.onnx.json"], death
        assert json.loads(beside.read_text())["policy"]["name"] == "sample"


def test_older_shipped_checkpoints_with_a_config_are_replaced(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ship, "scores", lambda *_: [])
    run, place = babi_run(tmp_path / "run"), tmp_path / "place"
    assert ship.main([str(run), "--out", str(place)]) == 0
    shutil.copy(run / "config.json", place)
    assert open_trained(Babi, str(place))[0].config == open_trained(Babi, str(run))[0].config
    assert ship.main([str(run), "--out", str(place)]) == 0
    assert sorted(contents(place)) == ["card.json", "card.md", MODEL]


def test_a_folder_with_a_card_of_ones_own_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = babi_run(tmp_path / "run")
    for name in ("card.md", "card.json"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text("mine")
        assert ship.main([str(run), "--out", str(tmp_path / "mine")]) == 2
        assert "must be new, empty or a shipped checkpoint" in capsys.readouterr().err
        assert (tmp_path / "mine" / name).read_text() == "mine"
