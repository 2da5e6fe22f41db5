"""The Transformer of pairs in torch: every example against the reference, inputs that do not fit."""

import pytest

pytest.importorskip("torch")

from pair_checks import WAYS, XL, check_against_the_reference, check_refusals, check_slots

import ponder_torch


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_its_examples_alone(way: str):
    check_against_the_reference(ponder_torch, way)


@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
def test_earlier_states_are_seen(way: str):
    check_against_the_reference(ponder_torch, way, XL)


def test_slots_of_any_integer_dtype_and_slots_that_nobody_names():
    check_slots(ponder_torch)


def test_inputs_that_do_not_fit_are_named():
    check_refusals("ponder_torch")
