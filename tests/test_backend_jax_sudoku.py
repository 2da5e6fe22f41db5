"""The Sudoku task on the JAX backend: its own network is trained, resumed, evaluated and loaded."""

from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

import jax.numpy as jnp
import sudoku_checks as checks

import ponder_jax
from tasks.sudoku.model_jax import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of the smoke preset."""
    folder = tmp_path_factory.mktemp("sudoku")
    checks.check_smoke_learns("jax", folder)
    return folder


def test_the_run_is_evaluated_on_its_own_backend_alone(folder: Path):
    checks.check_evaluation("jax", folder)


def test_the_code_of_the_network_may_change_and_its_parameters_may_not(folder: Path):
    checks.check_changed_code("jax", folder)


def test_the_run_is_loaded_saved_and_predicts(folder: Path):
    checks.check_loaded(folder, ponder_jax.load, build, jnp.asarray)


def test_resume_is_exact(tmp_path: Path):
    checks.check_resume_is_exact("jax", tmp_path)
