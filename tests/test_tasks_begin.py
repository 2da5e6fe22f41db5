"""How a run begins: one process in a folder, a name of its own, nothing made before everything can be read."""

import dataclasses
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, inside, refused

from ponder_ref.runtime.checkpoint import PARAMETERS, PREFIX, Checkpoint, to_bytes
from ponder_ref.runtime.errors import Refused
from tasks import runs
from tasks.command import free_folder
from tasks.flags import to_json
from tasks.loop import first_parameters
from tasks.parity import Parity, ParityConfig

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


def parameters_file(path: Path, config: ParityConfig) -> None:
    """A file as it is shipped, with the parameters that a run of this config begins with."""
    named = {PREFIX + name: array for name, array in Parity(config).initial_parameters().items()}
    about = {"task": "parity", "config": to_json(config), "spec": "1", "update": 7}
    path.write_bytes(to_bytes(Checkpoint(named, about), PARAMETERS))


def test_a_run_may_begin_with_the_file_of_a_shipped_checkpoint(tmp_path: Path):
    """Parameters are all that is wanted of it."""
    config = ParityConfig(bits=4, hidden=3)
    parameters_file(tmp_path / "model.safetensors", config)
    found = first_parameters(Parity(dataclasses.replace(config, start=str(tmp_path / "model.safetensors"), seed=5)))
    assert all(np.array_equal(array, found[name]) for name, array in Parity(config).initial_parameters().items())


def test_a_run_knows_what_it_began_with(tmp_path: Path):
    """Killed before its first checkpoint, it does not go on from other parameters than it began with."""
    assert inside(*START, "--out", "plain", cwd=tmp_path).returncode == 0
    assert "began_with" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    config = runs.Run.open(tmp_path / "plain", "parity", ParityConfig).config
    parameters_file(tmp_path / "first", config)
    assert inside(*START, "--start", "first", "--out", "second", cwd=tmp_path).returncode == 0
    content = json.loads((tmp_path / "second" / "config.json").read_text())
    ended = (tmp_path / "second" / "metrics.jsonl").read_bytes()

    def again() -> Any:
        shutil.rmtree(tmp_path / "second" / "checkpoints", ignore_errors=True)
        (tmp_path / "second" / "metrics.jsonl").unlink(missing_ok=True)
        return inside("--out", "second", "--resume", "--backend", "numpy_trainer", cwd=tmp_path)

    assert len(content["began_with"]) == 64 and again().returncode == 0
    assert (tmp_path / "second" / "metrics.jsonl").read_bytes() == ended
    parameters_file(tmp_path / "first", dataclasses.replace(config, seed=config.seed + 1))
    assert refused(again()) == "--start first has changed since second began with it"
    (tmp_path / "second" / "config.json").write_text(json.dumps(content | {"began_with": 7}))
    assert "began_with: expected str | null, got int" in refused(again())


def test_folders_with_blanks_are_quoted_in_commands(tmp_path: Path):
    done = inside(*START, "--out", "my run", cwd=tmp_path)
    assert "--evaluate 'my run'" in done.stdout and "tasks.figures 'my run'" in done.stdout
    run = runs.Run.open(tmp_path / "my run", "parity", Parity.Config)
    flags = ["--resume", "--backend", "numpy_trainer"]
    assert shlex.split(run.resume_command())[-4:] == [str(run.folder), *flags]


def test_letters_that_do_not_print_are_written_so_that_a_shell_reads_them(tmp_path: Path):
    done = inside(*START, "--out", "a\n\x1b[2Jb", cwd=tmp_path)
    assert "tasks.figures $'a\\012\\033[2Jb' " in done.stdout and "--evaluate $'a\\012" in done.stdout
    newest = tmp_path / "a\n\x1b[2Jb" / "checkpoints" / "update-00000010.safetensors"
    shutil.copy(newest, newest.with_name("update-00000005.safetensors"))
    newest.write_bytes(b"")
    words = "--checkpoint $'a\\012\\033[2Jb/checkpoints/update-00000005.safetensors'"
    assert words in refused(inside("--evaluate", "a\n\x1b[2Jb", "--backend", "numpy_trainer", cwd=tmp_path))
