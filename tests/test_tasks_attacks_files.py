"""Run folders and files from others: they name no code, lose nobody's files, and end the same after a fault."""

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from attack_runs import OWN, babi_run, change, parity_run
from task_helpers import TINY, contents, inside, parity, refused

from ponder_ref.runtime import files
from ponder_ref.runtime.errors import Refused
from tasks import figures
from tasks.babi import ask
from tasks.export import __main__ as export
from tasks.parity import ParityConfig
from tasks.plots import pyplot
from tasks.plots import save as save_figure
from tasks.runs import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert inside(*TINY, *OWN, "--out", folder, cwd=folder.parent).returncode == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


# A file names no code.


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the working directory that leaves a mark when it is imported."""
    (tmp_path / "trap.py").write_text("open('MARK', 'w').close()\nfrom numpy_trainer import *\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    return tmp_path / "MARK"


def test_a_run_folder_runs_no_code(run: Path, trap: Path, tmp_path: Path):
    change(run / "config.json", backend="trap")
    before = contents(run)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    for arguments in (["--evaluate", "run"], ["--evaluate", "run", "--record"], ["--out", "run", "--resume"]):
        sentence = refused(inside(*arguments, cwd=tmp_path))
        assert "run/config.json names the backend 'trap'" in sentence and "--backend" in sentence
    assert inside("run", "--out", "drawn", cwd=tmp_path, main=figures.main).returncode == 0
    for start in ("run", newest):
        refused(inside(*TINY, *OWN, "--start", start, "--out", "new", cwd=tmp_path))
    parity_run(tmp_path / "whole", backend="trap")
    assert inside(*START_WHOLE, *OWN, "--start", "whole", "--out", "new", cwd=tmp_path).returncode == 0
    inside("whole", "--format", "onnx", "--out", "x.onnx", cwd=tmp_path, main=export.main)
    babi_run(tmp_path / "babi", backend="trap")
    story = io.StringIO("Mary moved to the kitchen.\nWhere is Mary?\n")
    done = inside("--run", "babi", cwd=tmp_path, main=lambda arguments: ask.main(arguments, story))
    assert done.returncode == 0, done.stderr
    assert not trap.exists() and contents(run) == before
    assert inside("--evaluate", "run", "--backend", "trap", cwd=tmp_path).returncode == 0 and trap.exists()


START_WHOLE = ["--preset", "smoke", "--hidden", "8", "--max-steps", "3", "--updates", "2", "--eval-examples", "16"]


def test_a_run_folder_runs_no_code_in_a_process_of_its_own(run: Path, tmp_path: Path):
    (run / "p.py").write_text("open('MARK', 'w').close()\nfrom numpy_trainer import *\n")
    change(run / "config.json", backend="run.p")
    assert "names the backend 'run.p'" in refused(parity("--evaluate", "run", cwd=tmp_path))
    assert not (tmp_path / "MARK").exists()


@pytest.mark.parametrize("name", ["trap", "tasks.trap", "../trap", "os", "parity:Parity"])
def test_a_task_of_a_file_is_not_imported(name: str, run: Path, trap: Path, tmp_path: Path):
    change(run / "config.json", task=name)
    for done in (
        inside("--evaluate", "run", cwd=tmp_path),
        inside("run", "--format", "onnx", "--out", "x", cwd=tmp_path, main=export.main),
    ):
        assert f"run is a run of the task {name!r}" in refused(done)
    inside("run", "--out", "drawn", cwd=tmp_path, main=figures.main)
    assert not trap.exists()


def test_the_commands_that_are_printed_name_a_backend_of_ones_own(run: Path):
    opened = Run.open(run, "parity", ParityConfig)
    assert opened.resume_command().endswith("--resume --backend numpy_trainer")
    assert opened.evaluate_command().endswith(" --backend numpy_trainer")
    change(run / "config.json", backend="x; touch MARK")
    assert Run.open(run, "parity", ParityConfig).resume_command().endswith("--backend 'x; touch MARK'")
    change(run / "config.json", backend="torch")
    assert Run.open(run, "parity", ParityConfig).resume_command().endswith("--resume")


# Nobody's files are lost.


@pytest.mark.parametrize("name", ["thesis.tmp", "config.json.0123abcd.tmp", ".pondernet-mine.tmp", "x"])
def test_a_new_run_leaves_others_files_alone(name: str, tmp_path: Path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).write_text("mine")
    assert "--out new is not empty: choose another folder" in refused(inside(*TINY, *OWN, "--out", "new", cwd=tmp_path))
    assert contents(tmp_path / "new") == {name: b"mine"}


def test_a_resumed_run_leaves_others_files_alone(run: Path, tmp_path: Path):
    names = [folder / "thesis.tmp" for folder in (run, run / "checkpoints", run / "figures")]
    for path in names:
        path.write_text("mine")
    (run / ".pondernet-0123456789abcdef.tmp").mkdir()
    assert inside("--out", "run", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert all(path.read_text() == "mine" for path in names) and (run / ".pondernet-0123456789abcdef.tmp").is_dir()


def test_what_a_dead_writer_left_is_cleared_and_what_a_living_one_writes_is_not(tmp_path: Path):
    pytest.importorskip("fcntl")
    dead = tmp_path / ".pondernet-0123456789abcdef.tmp"
    dead.write_text("half")
    with files.staged(tmp_path / "other", b"not yet") as living:
        files.write_whole(tmp_path / "file", b"x")
        assert not dead.exists() and living.read_bytes() == b"not yet"
        os.replace(living, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


def test_a_file_that_another_process_clears_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fcntl = pytest.importorskip("fcntl")
    cleared = []

    def slow_lock(file, operation: int) -> None:
        if not cleared:
            cleared.extend(tmp_path.iterdir())
            cleared[0].unlink()
        fcntl_flock(file, operation)

    fcntl_flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", slow_lock)
    files.write_whole(tmp_path / "file", b"x")
    assert len(cleared) == 1 and [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "out",
    [
        "config",
        "config.json",
        "metrics.jsonl",
        "sessions",
        "evaluations.jsonl",
        "model.safetensors",
        "figures/learning.png",
        "checkpoints/update-00000120.safetensors",
        "checkpoints/update-00000999.safetensors",
    ],
)
def test_an_export_is_no_file_of_a_run(out: str, run: Path, tmp_path: Path):
    (run / "sessions").write_text("mine")
    before = contents(run)
    sentence = refused(inside("run", "--format", "onnx", "--out", run / out, cwd=tmp_path, main=export.main))
    assert "--out" in sentence and ("file of the run" in sentence or "is not an earlier export" in sentence)
    assert contents(run) == before


@pytest.mark.parametrize("name", ["there", "there.json"])
def test_an_export_replaces_an_earlier_one_alone(name: str, tmp_path: Path):
    out, beside = tmp_path / "there", tmp_path / "there.json"
    (tmp_path / name).write_text("mine")
    with pytest.raises(Refused, match=f"{name} is not an earlier export"):
        export.check_out(out, beside)
    assert (tmp_path / name).read_text() == "mine"
    for description in (files.UNFINISHED, json.dumps({"format": "onnx", "sha256": "0" * 64}).encode()):
        beside.write_bytes(description)
        export.check_out(out, beside)


def odd_files(folder: Path) -> dict[str, Path]:
    """What is there and is not a regular file. A device is made where this process may."""
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "target").write_text("mine")
    (folder / "link").symlink_to(folder / "target")
    (folder / "dangling").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "FIFO")
    with contextlib.suppress(PermissionError):
        os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return {path.name: path for path in folder.iterdir() if path.name != "target"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("way", ["write_whole", "append", "write_together", "figure", "export"])
def test_outputs_replace_regular_files_alone(way: str, run: Path, tmp_path: Path):
    writers: dict[str, Callable[[Path], object]] = {
        "write_whole": lambda path: files.write_whole(path, b"new"),
        "append": lambda path: files.append(path, b"new\n"),
        "write_together": lambda path: files.write_together({tmp_path / "odd" / "x": b"new", path: b"new"}),
        "figure": lambda path: save_figure(pyplot().figure(), path.rename(path.with_suffix(".png"))),
        "export": lambda path: export.check_out(path, path.with_name(path.name + ".json")),
    }
    found = odd_files(tmp_path / "odd")
    assert len(found) >= 4
    for name, path in found.items():
        before = sorted((each.name, each.lstat().st_mode, each.lstat().st_ino) for each in path.parent.iterdir())
        with pytest.raises(Refused, match=r"it is a|is a folder|not an earlier export"):
            writers[way](path)
        after = sorted((each.name, each.lstat().st_mode, each.lstat().st_ino) for each in path.parent.iterdir())
        if way == "figure":
            before = sorted((name.removesuffix(".png") if name else "", *rest) for name, *rest in before)
            after = sorted((name.removesuffix(".png"), *rest) for name, *rest in after)
        assert after == before, name
    assert (tmp_path / "odd" / "target").read_text() == "mine"


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_devices_are_known_by_their_mode(kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where no device can be made, or where it lies about itself before it is opened."""
    path = tmp_path / "file"
    path.write_text("mine\n")
    odd = os.stat_result((kind | 0o600, *os.stat(path)[1:]))
    for name, calls in {
        "stat": [lambda: files.read_bytes(path, 9)],
        "fstat": [lambda: files.read_bytes(path, 9), lambda: files.append(path, b"new\n")],
        "lstat": [lambda: files.write_whole(path, b"new"), lambda: files.append(path, b"new\n")],
    }.items():
        for call in calls:
            with monkeypatch.context() as patch:
                patch.setattr(files.os, name, lambda *_: odd)
                with pytest.raises(
                    Refused, match=r"cannot (read|write) .*: it is a (device|socket), not a regular file"
                ):
                    call()
    assert path.read_text() == "mine\n" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["metrics.jsonl", "sessions.jsonl", "checkpoints", "figures"])
def test_links_in_a_run_folder_are_refused_before_anything_is_changed(name: str, run: Path, tmp_path: Path):
    target = tmp_path / "target"
    (run / name).rename(target)
    (run / name).symlink_to(target)
    if target.is_file():
        with target.open("a") as file:
            file.write("half a line")
    before = contents(tmp_path)
    sentence = refused(inside("--out", "run", "--resume", *OWN, cwd=tmp_path))
    assert f"cannot write run/{name}: it is a link" in sentence
    assert contents(tmp_path) == before


def test_a_link_in_the_place_of_a_picture_or_an_evaluation_is_not_followed(run: Path, tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("mine")
    for name in ("figures/learning.png", "evaluations.jsonl"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)
    done = inside("--out", "run", "--resume", *OWN, cwd=tmp_path)
    assert done.returncode == 0 and "figures  none: cannot write run/figures/learning.png: it is a link" in done.stdout
    sentence = refused(inside("--evaluate", "run", "--record", *OWN, cwd=tmp_path))
    assert "cannot write run/evaluations.jsonl: it is a link" in sentence
    assert target.read_text() == "mine" and (run / "figures" / "learning.png").is_symlink()


# The folder ends the same.


def test_a_checkpoint_that_could_not_be_removed_is_removed_at_the_end(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    unlink, left = os.unlink, ["once"]

    def fail_once(path: object, **settings: object) -> None:
        if left and str(path).endswith(".safetensors"):
            left.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, **settings)

    monkeypatch.setattr(os, "unlink", fail_once)
    assert inside(*TINY, *OWN, "--out", "new", cwd=tmp_path).returncode == 0 and not left
    assert contents(tmp_path / "new") == contents(finished)


def test_a_flush_that_fails_after_the_last_rename_leaves_the_same_folder(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    last, flush = tmp_path / "new" / "checkpoints" / "update-00000120.safetensors", os.fsync

    def fail(number: int) -> None:
        if last.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert "cannot write" in refused_last(inside(*TINY, *OWN, "--out", "new", cwd=tmp_path))
    assert len(list(last.parent.iterdir())) == 3
    assert inside("--out", "new", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert contents(tmp_path / "new") == contents(finished)


def refused_last(done) -> str:
    """The sentence that a training ended with, below its lines of progress."""
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_finished_run_with_a_checkpoint_too_many_is_pruned_when_it_goes_on(finished: Path, run: Path, tmp_path: Path):
    shutil.copy(
        run / "checkpoints" / "update-00000080.safetensors", run / "checkpoints" / "update-00000040.safetensors"
    )
    assert inside("--out", "run", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert contents(run) == contents(finished)
