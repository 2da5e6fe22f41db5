"""The tasks on the JAX backend, on their real command lines."""

import os
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

import task_backend_checks as checks
from task_helpers import parity, refused


def test_smoke_learns(tmp_path: Path):
    checks.check_smoke_learns("jax", tmp_path)


def test_resume_is_exact(tmp_path: Path):
    checks.check_resume_is_exact("jax", tmp_path)


def test_every_method_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # the command sets it for its own process
    checks.check_methods("jax", tmp_path)


def test_babi_runs(tmp_path: Path):
    checks.check_babi("jax", tmp_path)


def test_a_platform_that_is_not_there_gets_one_sentence(tmp_path: Path):
    done = parity("--preset", "smoke", "--backend", "jax", "--out", "run", cwd=tmp_path, JAX_PLATFORMS="nowhere")
    assert "--backend jax: its trainer cannot be made: RuntimeError: " in refused(done) and "nowhere" in done.stderr
    assert not (tmp_path / "run").exists()


def test_rows_halt_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_rows_that_halt("jax", tmp_path)


def test_a_run_begins_where_another_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_start("jax", tmp_path)


def test_an_own_network_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_own_network("jax", tmp_path)


def test_an_own_network_reads_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_own_network_on_stories("jax", tmp_path)


def test_what_was_trained_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_load("jax", tmp_path)
