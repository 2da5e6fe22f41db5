"""Identical training of the Transformer of pairs: 50 updates with dropout on both backends, in float64 to 1e-9."""

import os

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from train_both import train_both
from train_pairs import MAX_STEPS

from ponder_ref.models.pairs import stage_ends

UPDATES = 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Both backends at once, each in a process of its own."""
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    return train_both("train_pairs.py", "float64", UPDATES, tmp_path_factory.mktemp("training"), environment)


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


def test_what_is_run_is_counted(trained: tuple[dict, dict]):
    """Steps are run stage by stage, two and then two more, and no stage once all examples have left."""
    one, other = trained
    assert {2, 4} <= set(one["metrics.steps_run"]) <= set(stage_ends(MAX_STEPS))
    np.testing.assert_array_equal(one["metrics.steps_run"], other["metrics.steps_run"])
