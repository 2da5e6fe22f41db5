"""The tasks on the torch backend, on their real command lines."""

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

import task_backend_checks as checks


def test_smoke_learns(tmp_path: Path):
    checks.check_smoke_learns("torch", tmp_path)


def test_resume_is_exact(tmp_path: Path):
    checks.check_resume_is_exact("torch", tmp_path)


def test_every_method_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # the command sets it for its own process
    checks.check_methods("torch", tmp_path)


def test_babi_runs(tmp_path: Path):
    checks.check_babi("torch", tmp_path)


def test_rows_halt_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_rows_that_halt("torch", tmp_path)


def test_a_run_begins_where_another_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_start("torch", tmp_path)


def test_an_own_network_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_own_network("torch", tmp_path)


def test_an_own_network_reads_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_own_network_on_stories("torch", tmp_path)


def test_what_was_trained_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    checks.check_load("torch", tmp_path)
