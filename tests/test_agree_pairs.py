"""Identical training of the Transformer of pairs: 50 updates with dropout on both backends, in float64 to 1e-9."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from train_pairs import MAX_STEPS

ROOT = Path(__file__).resolve().parent.parent
UPDATES = 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Both backends at once, each in a process of its own."""
    folder = tmp_path_factory.mktemp("training")
    script = str(ROOT / "tests" / "train_pairs.py")
    files = {backend: folder / f"{backend}.npz" for backend in ("torch", "jax")}
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, script, backend, "float64", str(UPDATES), str(file)], cwd=ROOT, env=environment
        )
        for backend, file in files.items()
    ]
    assert [child.wait() for child in children] == [0, 0]
    one, other = (dict(np.load(file)) for file in files.values())
    return one, other


def test_the_same_way(trained: tuple[dict, dict]):
    one, other = trained
    assert one and set(one) == set(other)
    for name in one:
        assert np.abs(one[name] - other[name]).max() <= 1e-9 * np.abs(one[name]).max(initial=0.0), name


def test_what_was_trained_is_not_what_it_was(trained: tuple[dict, dict]):
    """Losses fall and leaving early does something: agreement is not that of standing still."""
    one, _ = trained
    losses = one["metrics.loss"]
    assert losses[-10:].mean() < losses[:10].mean() - 0.02
    # With λ near ½ three steps would be 1.75 expected ones; ε lets go after two, which are 4/3.
    assert one["metrics.expected_steps"][:10].max() < 1.5


def test_all_steps_are_counted(trained: tuple[dict, dict]):
    """Examples that leave early save this model nothing: its forward passes are all N."""
    one, other = trained
    assert (one["metrics.steps_run"] == MAX_STEPS).all() and (other["metrics.steps_run"] == MAX_STEPS).all()
