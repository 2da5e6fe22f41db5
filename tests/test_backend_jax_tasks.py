"""The parity task on the JAX backend, on the real command line."""

from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

import task_backend_checks as checks


def test_smoke_learns(tmp_path: Path):
    checks.check_smoke_learns("jax", tmp_path)


@pytest.mark.parametrize("settings", [(), ("--optimiser", "adam", "--dtype", "float64")], ids=["muon", "adam-float64"])
def test_resume_is_exact(settings: tuple[str, ...], tmp_path: Path):
    checks.check_resume_is_exact("jax", tmp_path, *settings)


def test_every_method_runs(tmp_path: Path):
    checks.check_methods("jax", tmp_path)


def test_more_steps_than_trained(tmp_path: Path):
    checks.check_more_steps_than_trained("jax", tmp_path)
