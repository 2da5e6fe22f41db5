"""Identical training of the Transformer: 50 updates with dropout on both backends, in float64 to 1e-9."""

import os

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from train_both import train_both
from train_transformer import WAYS

UPDATES = 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Both backends at once, each in a process of its own."""
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    return train_both("train_transformer.py", "float64", UPDATES, tmp_path_factory.mktemp("training"), environment)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_way(way: str, trained: tuple[dict, dict]):
    one, other = trained
    names = [name for name in one if name.startswith(f"{way}/")]
    assert names and set(one) == set(other)
    for name in names:
        assert np.abs(one[name] - other[name]).max() <= 1e-9 * np.abs(one[name]).max(initial=0.0), name


def test_what_was_trained_is_not_what_it_was(trained: tuple[dict, dict]):
    """Losses fall, dropout and leaving early do something: agreement is not that of standing still."""
    one, _ = trained
    for way in WAYS:
        losses = one[f"{way}/metrics.loss"]
        assert losses[-10:].mean() < losses[:10].mean() - 0.05, way
    assert one["ponder-adam/metrics.steps_run"].min() < one["ponder-muon/metrics.steps_run"].min()  # ε lets go
    assert not np.array_equal(one["act-adam/params.block.q"], one["act-muon/params.block.q"])
