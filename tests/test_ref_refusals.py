"""What the reference refuses beyond the shapes and dtypes that every backend checks."""

import numpy as np
import pytest

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
