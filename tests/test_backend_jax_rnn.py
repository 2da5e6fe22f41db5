"""The hand-written gradient of the parity RNN against the same network through `ponder`, and the trainer's manners."""

import pytest

pytest.importorskip("jax")

from rnn_checks import WAYS, check_against_ponder, check_state_is_kept

import ponder_jax


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("outputs", [1, 5])
def test_the_fast_way_is_the_general_one(way: str, outputs: int):
    check_against_ponder(ponder_jax, "ponder_jax", WAYS[way], outputs)


def test_a_state_can_be_used_again():
    check_state_is_kept("ponder_jax")
