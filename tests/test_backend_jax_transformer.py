"""The Transformer in JAX: every example against the reference, padding, inputs that do not fit."""

import pytest

pytest.importorskip("jax")

import jax.numpy as jnp
import numpy as np
from transformer_checks import (
    LAYERED,
    WAYS,
    check_against_the_reference,
    check_padding,
    check_refusals,
    check_rows_that_halt,
)

import ponder_jax
import ponder_ref


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


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_words_of_any_dtype_have_their_own_embeddings(dtype: str):
    """A vocabulary that a narrow dtype cannot count to."""
    rng = np.random.default_rng(0)
    params = {"embed.words": rng.normal(size=(300, 4)), "embed.mask": rng.normal(size=(3, 4))}
    params["embed.positions"] = rng.normal(size=(8, 4))
    words = rng.integers(0, 256 if dtype == "uint8" else 301, size=(2, 5, 3))
    want = ponder_ref.transformer_encode(params, words)
    on_device = {name: jnp.asarray(x, jnp.float32) for name, x in params.items()}
    got = ponder_jax.transformer_encode(on_device, jnp.asarray(words, dtype))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-5)
