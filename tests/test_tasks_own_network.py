"""A network of somebody's own in a run (--model), with a trainer in NumPy: what is noted, refused and never run."""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, contents, inside, parity, records, refused

from ponder_ref.runtime.checkpoint import Checkpoint, read, to_bytes
from ponder_ref.runtime.network import Leaf
from ponder_ref.runtime.saved import read_saved
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi
from tasks.parity import Parity

FORM = ("format", "checksum")  # what is written around a checkpoint's own words
BACKEND = ["--backend", "numpy_trainer"]
START = [*TINY, *BACKEND, "--bits", "6", "--model", "net.py:build"]
NET = "def build(problem):\n    assert problem.halting['max_steps'] == 5\n    return 0.5\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where net.py is."""
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def test_a_run_notes_name_checksum_and_what_the_network_was_built_for(folder: Path):
    done = inside(*START, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    noted = json.loads((folder / "run" / "config.json").read_text())["network"]
    saved = read_saved(folder / "run")
    assert saved.network.to_json() == noted
    own = saved.network.model
    assert (own.name, own.inputs, own.outputs, own.output) == ("net.py:build", Leaf((6,), "float32"), 1, "binary")
    assert len(own.sha256) == 64 and own.answers == ()
    assert "--model net.py:build" in done.stdout
    assert (folder / "run" / "figures" / "halting.png").exists()
    alone = inside(*[word for word in START if word not in START[-2:]], "--out", "other", cwd=folder)
    assert alone.returncode == 0 and records(folder / "other")[-1] != records(folder / "run")[-1]


def test_killed_and_resumed_gives_the_same_bytes(folder: Path):
    assert inside(*START, "--out", "whole", cwd=folder).returncode == 0
    done = parity(*START, "--out", "run", cwd=folder, TEST_SIGNAL_AT="57:9")
    assert done.returncode == -signal.SIGKILL
    done = inside("--out", "run", "--resume", *BACKEND, "--model", "net.py:build", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder / "run") == contents(folder / "whole")


@pytest.fixture
def run(folder: Path) -> Path:
    assert inside(*START, "--updates", "10", "--out", "run", cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize("flags", [["--evaluate", "run"], ["--out", "run", "--resume"]], ids=["evaluate", "resume"])
def test_the_code_is_needed_again_and_must_be_the_same(flags: list[str], run: Path):
    before = contents(run / "run")
    assert "whose code is needed again: --model net.py:build" in refused(inside(*flags, *BACKEND, cwd=run))
    (run / "net.py").write_text(NET + "other = build\n")
    for name in ("net.py:build", "net.py:other"):
        sentence = refused(inside(*flags, *BACKEND, "--model", name, cwd=run))
        assert f"--model {name} is not the code that run began with" in sentence
    (run / "net.py").write_text(NET)
    shutil.move(run / "net.py", run / "moved.py")  # the file may lie elsewhere
    assert inside(*flags, *BACKEND, "--model", "moved.py:build", cwd=run).returncode == 0
    assert contents(run / "run") == before


def test_a_run_of_the_tasks_network_takes_no_other(run: Path):
    assert inside(*START[:-2], "--updates", "10", "--out", "plain", cwd=run).returncode == 0
    for flags in (["--evaluate", "plain"], ["--out", "plain", "--resume"]):
        sentence = refused(inside(*flags, *BACKEND, "--model", "net.py:build", cwd=run))
        assert "--model goes with a run that began with it" in sentence
    theirs = run / "run" / "checkpoints" / "update-00000010.safetensors"
    sentence = refused(inside("--evaluate", "plain", *BACKEND, "--checkpoint", theirs, cwd=run))
    assert "belongs to another run: its network is another one" in sentence
    again = inside(*START, "--updates", "10", "--start", "run", "--out", "second", cwd=run)
    assert again.returncode == 0, again.stderr
    first, last = records(run / "second")[0], records(run / "run")[-2]
    assert (first["update"], first["loss"]) == (0, last["loss"])
    assert "it has another network" in refused(inside(*START, "--start", "plain", "--out", "third", cwd=run))


def test_a_start_is_known_by_the_code_and_its_shapes_not_by_its_name_and_seed(run: Path):
    (run / "copy").mkdir()
    shutil.copy(run / "net.py", run / "copy" / "same.py")
    again = [*START[:-1], "copy/same.py:build", "--updates", "10", "--start", "run"]
    done = inside(*again, "--out", "second", cwd=run)
    assert done.returncode == 0, done.stderr
    first, last = records(run / "second")[0], records(run / "run")[-2]
    assert (first["update"], first["loss"]) == (0, last["loss"])
    done = inside(*again, "--seed", "1", "--out", "third", cwd=run)
    assert done.returncode == 0, done.stderr
    assert "its network was built for other inputs" in refused(inside(*again, "--bits", "7", "--out", "no", cwd=run))
    (run / "copy" / "same.py").write_text(NET + "# another\n")
    assert "it has another network, or the code" in refused(inside(*again, "--out", "no", cwd=run))


@pytest.fixture
def brought(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run of a network that the task brings; there is none of that name where the command is given."""
    (folder / "clone").mkdir()
    shutil.move(folder / "net.py", folder / "clone" / "net.py")
    (folder / "clone" / "second.py").write_text(NET)
    monkeypatch.setattr("tasks.own_network.ROOT", folder / "clone")
    monkeypatch.setattr(Parity, "NETWORKS", {"numpy_trainer": "net.py:build", "second_trainer": "second.py:build"})
    done = inside(*START[:-2], "--updates", "20", "--out", "run", "--stop-at", "10", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_network_that_the_task_brings_may_change_its_text(brought: Path):
    (brought / "clone" / "net.py").write_text(NET + "# a comment\n")
    start = [*START[:-2], "--updates", "10", "--start", "run"]
    for flags in (["--evaluate", "run", *BACKEND], ["--out", "run", "--resume", *BACKEND], [*start, "--out", "next"]):
        done = inside(*flags, cwd=brought)
        assert done.returncode == 0 and "--model" not in done.stdout, done.stderr


def test_a_network_that_the_task_brings_is_known_by_the_backend(brought: Path):
    for flags in (["--evaluate", "run"], ["--out", "run", "--resume"]):
        sentence = refused(inside(*flags, "--backend", "second_trainer", cwd=brought))
        assert "run has the network net.py:build, and second.py:build, that of the other backend, has" in sentence
        sentence = refused(inside(*flags, *BACKEND, "--model", "clone/net.py:build", cwd=brought))
        assert "--model goes with a run that began with it" in sentence
    model = ["--model", "clone/net.py:build"]
    done = inside(*START[:-2], *model, "--updates", "10", "--out", "own", cwd=brought)
    assert done.returncode == 0, done.stderr
    sentence = refused(inside("--evaluate", "own", *BACKEND, cwd=brought))
    assert "whose code is needed again: --model clone/net.py:build" in sentence


def test_commands_name_the_model_also_of_a_file_in_the_tasks_folder(folder: Path):
    (folder / "tasks" / "parity").mkdir(parents=True)
    shutil.move(folder / "net.py", folder / "tasks" / "parity" / "mine.py")
    start = [*START[:-1], "tasks/parity/mine.py:build", "--updates", "20", "--out", "run", "--stop-at", "10"]
    words = inside(*start, cwd=folder).stdout.partition("go on with: python -m tasks.parity ")[2].split()
    assert words[-4:-2] == ["--model", "tasks/parity/mine.py:build"]
    done = inside(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "--evaluate run --model tasks/parity/mine.py:build" in done.stdout


def test_no_folder_ever_runs_code(run: Path):
    """Nothing that config.json or a checkpoint says has a file run: only the command line does."""
    (run / "net.py").write_text(f"import pathlib\npathlib.Path({str(run / 'ran')!r}).touch()\n" + NET)
    content = json.loads((run / "run" / "config.json").read_text())
    content["network"]["model"]["name"] = f"{run / 'net.py'}:build"
    (run / "run" / "config.json").write_text(json.dumps(content))
    for flags in (["--evaluate", "run"], ["--out", "run", "--resume"]):
        assert inside(*flags, *BACKEND, cwd=run).returncode == 2
        assert inside(*flags, *BACKEND, "--model", "net.py:build", cwd=run).returncode == 2  # other bytes: not run
    assert not (run / "ran").exists()


def test_a_name_in_a_folder_is_one_word_of_the_command_that_is_printed(run: Path):
    name = "a.py:build; touch b $(touch c)"
    content = json.loads((run / "run" / "config.json").read_text())
    content["network"]["model"]["name"] = name
    (run / "run" / "config.json").write_text(json.dumps(content))
    file = run / "run" / "checkpoints" / "update-00000010.safetensors"
    found = read(file)
    found.about["network"]["model"]["name"] = name
    file.write_bytes(to_bytes(Checkpoint(found.arrays, {k: v for k, v in found.about.items() if k not in FORM})))
    for flags in (["--evaluate", "run"], ["--out", "run", "--resume"]):
        sentence = refused(inside(*flags, *BACKEND, cwd=run))
        assert shlex.split(sentence.partition("needed again: ")[2]) == ["--model", name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a\nb"}, "name must be text that can be printed"),
        ({"inputs": {"leaf": 1, "more": 2}}, "inputs must be a tree of leaves"),
        ({"answers": [0]}, "answers must be an integer of at least 1"),
        ({"output": "words"}, "output must be one of binary, classes"),
        ({"extra": 1}, "the description of the network is not whole"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_description_that_is_none_is_refused(change: dict, words: str, run: Path):
    content = json.loads((run / "run" / "config.json").read_text())
    content["network"]["model"] |= change
    (run / "run" / "config.json").write_text(json.dumps(content))
    assert words in refused(inside("--evaluate", "run", *BACKEND, "--model", "net.py:build", cwd=run))


@pytest.mark.parametrize(
    ("text", "model", "words"),
    [
        (NET, "net.py", "--model must look like my_net.py:build, got 'net.py'"),
        (NET, "net.py:", "--model must look like my_net.py:build"),
        (NET, "nowhere.py:build", "--model nowhere.py:build: there is no file nowhere.py"),
        (NET, "net.py:make", "--model net.py:make: net.py has no function make"),
        ("def build(:", "net.py:build", "--model net.py:build: SyntaxError: "),
        (
            "import nothing_here",
            "net.py:build",
            "ModuleNotFoundError: No module named 'nothing_here' (line 1 of net.py)",
        ),
        ("def build(p):\n    return 1 / 0", "net.py:build", "ZeroDivisionError: division by zero (line 2 of net.py)"),
        ("def build(p):\n    return 'x'", "net.py:build", "--model net.py:build: "),
    ],
    ids=["form", "empty", "file", "function", "syntax", "import", "error", "kind"],
)
def test_what_cannot_be_built_is_one_sentence_and_leaves_no_folder(text: str, model: str, words: str, tmp_path: Path):
    (tmp_path / "net.py").write_text(text)
    assert words in refused(inside(*START[:-1], model, "--out", "run", cwd=tmp_path))
    assert not os.path.lexists(tmp_path / "run")


def test_babi_gives_an_own_network_one_array_with_the_question_last():
    made = Babi(BabiConfig(tasks="1,2", questions=20, held_out=20, batch_size=8, sentences=40, dropout=0.0))
    batch = made.batches("train", range(2))
    words = made.plain(batch.inputs)
    assert words.shape == (2, 8, 41, 11) and words.dtype == np.int16
    first = min(batch.inputs, key=lambda name: int(name.split(".")[1]))
    np.testing.assert_array_equal(words[:, 0, -batch.inputs[first].shape[2] :], batch.inputs[first][:, 0])
    assert not words[:, 0, : -batch.inputs[first].shape[2]].any() and words[:, :, -1].any(-1).all()
    (one, *_) = made.evaluation("valid", 10)
    assert made.plain(one.inputs).shape[1:] == (41, 11)
