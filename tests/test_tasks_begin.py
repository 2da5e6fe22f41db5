"""How a run begins: one process in a folder, a name of its own, nothing made before everything can be read."""

import dataclasses
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, inside, refused

from tasks import runs
from tasks.checkpoint import PARAMETERS, PREFIX, Checkpoint, to_bytes
from tasks.command import free_folder
from tasks.config import to_json
from tasks.errors import Refused
from tasks.loop import first_parameters
from tasks.parity import Parity

START = [*TINY, "--updates", "10", "--backend", "numpy_trainer"]


def test_of_two_that_begin_in_one_folder_one_is_refused_and_changes_nothing(tmp_path: Path):
    """The first has made the folder and the lock, and has not come to writing its config."""
    fcntl = pytest.importorskip("fcntl")
    folder = tmp_path / "run"
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process is training in" in refused(inside(*START, "--out", folder, cwd=tmp_path))
        assert list(folder.iterdir()) == []
    finally:
        os.close(held)
    assert inside(*START, "--out", folder, cwd=tmp_path).returncode == 0


def test_a_config_is_written_by_the_one_that_has_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fcntl = pytest.importorskip("fcntl")
    write, seen = runs.write_whole, []

    def locked(path: Path, *rest: object) -> None:
        if path.name == "config.json":
            other = os.open(path.parent, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)
            seen.append(path)
        write(path, *rest)

    monkeypatch.setattr(runs, "write_whole", locked)
    assert inside(*START, "--out", "run", cwd=tmp_path).returncode == 0
    assert seen == [Path("run/config.json")]


def test_a_name_that_another_took_at_the_same_moment_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever looks first and makes the folder later meets one that another made in between."""
    monkeypatch.chdir(tmp_path)
    assert [free_folder("parity") for _ in range(3)] == [
        Path("runs") / name for name in ("parity", "parity-2", "parity-3")
    ]
    monkeypatch.setattr("tasks.command.RUNS", tmp_path / "file")
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="is a file, not a folder"):
        free_folder("parity")


def test_data_that_cannot_be_read_are_refused_before_a_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def check(self: Parity) -> None:
        raise Refused("cannot read the data")

    monkeypatch.setattr(Parity, "check", check, raising=False)
    for place in (["--out", "run"], []):
        assert refused(inside(*START, *place, cwd=tmp_path)) == "cannot read the data"
        assert list(tmp_path.iterdir()) == []


def test_a_run_may_begin_with_the_file_of_a_shipped_checkpoint(tmp_path: Path):
    """Parameters are all that is wanted of it."""
    task = Parity(Parity.Config(bits=4, hidden=3))
    named = {PREFIX + name: array for name, array in task.initial_parameters().items()}
    about = {"task": "parity", "config": to_json(task.config), "spec": "1", "update": 7}
    (tmp_path / "model.safetensors").write_bytes(to_bytes(Checkpoint(named, about), PARAMETERS))
    config = dataclasses.replace(task.config, start=str(tmp_path / "model.safetensors"), seed=5)
    found = first_parameters(Parity(config))
    assert all(np.array_equal(array, found[name]) for name, array in task.initial_parameters().items())


def test_folders_with_blanks_are_quoted_in_commands(tmp_path: Path):
    done = inside(*START, "--out", "my run", cwd=tmp_path)
    assert "--evaluate 'my run'" in done.stdout and "tasks.figures 'my run'" in done.stdout
    run = runs.Run.open(tmp_path / "my run", "parity", Parity.Config)
    assert shlex.split(run.resume_command())[-2:] == [str(run.folder), "--resume"]
