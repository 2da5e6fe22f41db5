"""What the reference refuses beyond the shapes and dtypes that every backend checks."""

import numpy as np
import pytest

import ponder_ref
from ponder_ref import exits, infer
from ponder_ref.criteria import cross_entropy
from ponder_ref.models.rnn import Rnn


def test_one_class_is_no_choice():
    """Its loss would be 0 whatever is learnt."""
    with pytest.raises(ValueError, match='outputs must be at least 2 where output is "classes", got 1'):
        Rnn(outputs=1, output="classes")
    assert Rnn(outputs=2, output="classes").outputs == 2


@pytest.mark.parametrize("target", [-1, 3])
def test_no_class(target: int):
    """A negative class would count from the end, without a word."""
    with pytest.raises(ValueError, match=r"targets must be classes in 0\.\.2"):
        cross_entropy(np.zeros((2, 3)), np.array([0, target]))


def test_a_policy_without_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch):
    """It is not taken for another: every name has a rule in the one table."""
    assert tuple(infer.RULES) == exits.POLICIES
    monkeypatch.setattr(exits, "POLICIES", (*exits.POLICIES, "mine"))
    monkeypatch.setattr(infer, "POLICIES", exits.POLICIES, raising=False)
    x = np.zeros((2, 3))
    with pytest.raises(ValueError, match="policy must be one of sample, quantile, fixed, expected, got 'mine'"):
        ponder_ref.predict(lambda x, h: (h, h, h[:, 0]), x, x, max_steps=3, policy="mine")
