"""Defects that only a framework can have, tried on the judge: untraceable code, half precision, gradients cut."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ponder_jax
from ponder_ref.conformance.run import judge


def mutant(**replaced) -> SimpleNamespace:
    members = {name: getattr(ponder_jax, name) for name in ponder_jax.__all__}
    return SimpleNamespace(**{**members, **replaced})


def looks_at_values(log_p):
    """Works eagerly; a tracer has no value to look at."""
    if float(np.max(np.asarray(log_p))) > 1e9:
        raise ValueError("log_p is too large")
    return ponder_jax.expected_steps(log_p)


def half_results(log_p):
    steps = ponder_jax.expected_steps(log_p)
    return steps.astype(log_p.dtype) if log_p.dtype in (jnp.bfloat16, jnp.float16) else steps


def detached(halt_logits, *, remainder="last", lengths=None):
    return ponder_jax.log_halting(jax.lax.stop_gradient(halt_logits), remainder=remainder, lengths=lengths)


@pytest.mark.parametrize(
    ("requirement", "replaced"),
    [
        ("B9", {"expected_steps": looks_at_values}),
        ("B10", {"expected_steps": looks_at_values}),
        ("B8", {"expected_steps": half_results}),
        ("L5", {"log_halting": detached}),
    ],
)
def test_a_defect_of_the_framework_is_rejected(requirement, replaced):
    dtypes = ("float32", "bfloat16")  # float64 needs a process of its own
    options = {"level": "full", "examples": 5, "only": {requirement}, "dtypes": dtypes, "shrink": False}
    assert judge(mutant(**replaced), **options)[requirement].status == "failed"


def test_this_jax_knows_the_flags_of_quick_compilation():
    """XLA ends a process that gives it a flag it does not know."""
    code = "import jax; print(int((jax.numpy.ones(2) + 1).sum()))"
    environment = {**os.environ, **ponder_jax.QUICK}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
