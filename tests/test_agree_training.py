"""Identical training: from one seed both backends go the same way, in float64 to 1e-9, in float32 as far as it goes."""

import os

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from train_both import train_both
from train_states import WAYS

from ponder_jax.arrays import QUICK
from ponder_ref.conformance.spec_data import tolerances

UPDATES = {"float64": 500, "float32": 100}
# Steps are whole numbers and accuracies counts: one example near a tie would move them by more than rounding.
COUNTED = ("metrics.steps_run", "metrics.accuracy")


@pytest.fixture(scope="module", params=["float64", "float32"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Both backends at once, each in a process of its own."""
    dtype, folder = request.param, tmp_path_factory.mktemp("training")
    # Code that runs for minutes is worth optimising: not the quick compilation that conftest.py asks for.
    environment = {name: value for name, value in os.environ.items() if name not in QUICK}
    return dtype, *train_both("train_states.py", dtype, UPDATES[dtype], folder, environment)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_way(way: str, trained):
    dtype, one, other = trained
    limit = tolerances()["training"][dtype]["rtol"]
    names = [name for name in one if name.startswith(f"{way}/")]
    assert names and set(one) == set(other)
    for name in names:
        size = np.abs(one[name]).max(initial=0.0)
        allowed = limit * size if not name.endswith(COUNTED) or dtype == "float64" else 0.05 * size
        assert np.abs(one[name] - other[name]).max() <= allowed, name
