"""The Transformer of pairs in JAX: every example against the reference, inputs that do not fit."""

import pytest

pytest.importorskip("jax")

from pair_checks import WAYS, XL, check_against_the_reference, check_refusals, check_slots

import ponder_jax


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_its_examples_alone(way: str):
    check_against_the_reference(ponder_jax, way)


@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
def test_earlier_states_are_seen(way: str):
    check_against_the_reference(ponder_jax, way, XL)


def test_slots_of_any_integer_dtype_and_slots_that_nobody_names():
    check_slots(ponder_jax)


def test_inputs_that_do_not_fit_are_named():
    check_refusals("ponder_jax")
