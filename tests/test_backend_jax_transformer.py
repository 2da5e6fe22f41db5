"""The Transformer in JAX: every example against the reference, padding, inputs that do not fit."""

import pytest

pytest.importorskip("jax")

from transformer_checks import (
    LAYERED,
    WAYS,
    check_against_the_reference,
    check_padding,
    check_refusals,
    check_rows_that_halt,
)

import ponder_jax


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_its_examples_alone(way: str):
    check_against_the_reference(ponder_jax, way)


def test_two_layers():
    check_against_the_reference(ponder_jax, "ponder", LAYERED)


def test_rows_halt_by_themselves():
    check_rows_that_halt(ponder_jax)


def test_padding_has_no_influence():
    check_padding("ponder_jax")


def test_inputs_that_do_not_fit_are_named():
    check_refusals("ponder_jax")
