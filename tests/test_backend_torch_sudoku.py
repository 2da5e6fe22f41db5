"""The Sudoku task on the torch backend: its own network is trained, resumed, evaluated and loaded."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

import sudoku_checks as checks
import torch

import ponder_torch
from tasks.sudoku.model_torch import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of the smoke preset."""
    folder = tmp_path_factory.mktemp("sudoku")
    checks.check_smoke_learns("torch", folder)
    return folder


def test_the_run_is_evaluated_on_its_own_backend_alone(folder: Path):
    checks.check_evaluation("torch", folder)


def test_the_code_of_the_network_may_change_and_its_parameters_may_not(folder: Path):
    checks.check_changed_code("torch", folder)


@torch.no_grad()
def test_the_run_is_loaded_saved_and_predicts(folder: Path):
    checks.check_loaded(folder, ponder_torch.load, build, torch.as_tensor)


def test_resume_is_exact(tmp_path: Path):
    checks.check_resume_is_exact("torch", tmp_path)
