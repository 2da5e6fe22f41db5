"""The judge counts what JAX computes, in loops and branches of compiled code."""

from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ponder_jax
from ponder_ref.conformance.run import judge


def mutant(**replaced) -> SimpleNamespace:
    members = {name: getattr(ponder_jax, name) for name in ponder_jax.__all__}
    return SimpleNamespace(**{name: value for name, value in {**members, **replaced}.items() if value is not None})


def failed(subject, requirement: str) -> str:
    """The first complaint, or nothing."""
    options = {"level": "infer", "examples": 1, "only": {requirement}, "dtypes": ("float32",), "shrink": False}
    verdict = judge(subject, groups=("module", "inference"), **options)[requirement]
    return verdict.failures[0] if verdict.status == "failed" else ""


def masked(step, x, state, **options):
    """With ε all steps are computed, and what lies beyond the largest Nᵢ is selected away."""

    def both(which, one, other, *operands):
        return jax.tree.map(lambda a, b: jnp.where(which, a, b), one(*operands), other(*operands))

    with mock.patch.object(jax.lax, "cond", both):
        return ponder_jax.ponder(step, x, state, **options)


def lying(step, x, state, **options):
    """The sum of the steps, without the idle rows of the loop."""
    out = ponder_jax.predict(step, x, state, **options)
    return out._replace(rows=int(out.steps.sum()))


@pytest.mark.parametrize(
    ("requirement", "replaced", "sentence"),
    [
        ("M2", {"ponder": masked}, "computed 7 times"),
        ("I6", {"predict": lying}, "but the step network was given"),
        ("M1", {"witness": None}, "offer witness"),
    ],
)
def test_what_is_computed_for_nothing_is_rejected(requirement, replaced, sentence):
    assert sentence in failed(mutant(**replaced), requirement)


def test_a_witness_sees_every_computation_and_no_tracing():
    seen = []

    def body(carry, _):
        return jax.lax.cond(carry[0] < 3, lambda c: ponder_jax.witness(seen.append, c + 1), lambda c: c, carry), None

    run = jax.jit(lambda x: jax.lax.scan(body, x, None, length=10)[0])
    run.lower(jnp.zeros(2))
    assert seen == []
    assert np.asarray(run(jnp.zeros(2))).tolist() == [3, 3]
    assert [values.tolist() for values in seen] == [[1, 1], [2, 2], [3, 3]]
