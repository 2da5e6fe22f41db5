"""`python -m benchmarks.peers` where it cannot work: one sentence, and the page that was there stays."""

import errno
import os
from pathlib import Path

import pytest
from task_helpers import inside, refused

from benchmarks.peers import __main__ as peers


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peers to judge: the page is its head and the versions."""
    monkeypatch.setattr(peers, "adapters", list)
    monkeypatch.setattr(peers, "judge", lambda: None)
    monkeypatch.setattr(peers, "page", lambda judged: "the page\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--out"),
        (["--out"], "--out"),
        (["--out=--"], "--out needs a value"),
        (["--out", "x.md", "--level", "full"], "unknown argument '--level'"),
        (["--out", "none/x.md"], "the folder none does not exist"),
    ],
)
def test_bad_command_lines_get_one_sentence(arguments: list[str], words: str, tmp_path: Path):
    assert words in refused(inside(*arguments, cwd=tmp_path, main=peers.main))
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_written_whole(nobody: None, tmp_path: Path):
    done = inside("--out", "x.md", cwd=tmp_path, main=peers.main)
    assert (done.returncode, done.stdout) == (0, "wrote x.md\n")
    assert (tmp_path / "x.md").read_text(encoding="utf-8") == "the page\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.md"]


@pytest.mark.parametrize(("name", "number"), [("fsync", errno.ENOSPC), ("replace", errno.EROFS)])
def test_a_page_that_cannot_be_written(
    name: str, number: int, nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "x.md").write_text("before", encoding="ascii")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, fail)
    sentence = refused(inside("--out", "x.md", cwd=tmp_path, main=peers.main))
    assert sentence == f"cannot write x.md: {os.strerror(number).lower()}"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x.md": "before"}


def test_a_folder_that_is_read_only_is_refused_before_anything_is_judged(
    nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(peers, "adapters", None)  # not reached
    assert "cannot be written to" in refused(inside("--out", "x.md", cwd=tmp_path, main=peers.main))


def test_an_interruption_while_it_imports_or_judges(nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(peers, "adapters", interrupt)
    done = inside("--out", "x.md", cwd=tmp_path, main=peers.main)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_judge() -> None:
        raise ModuleNotFoundError("no", name="hypothesis")

    monkeypatch.setattr(peers, "judge", no_judge)
    done = inside("--out", "x.md", cwd=tmp_path, main=peers.main)
    assert "needs 'hypothesis', which is not installed" in refused(done)
