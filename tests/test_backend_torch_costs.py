"""Defects of torch backends that show in a second call, in a count, or in half precision, tried on the judge."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import ponder_torch
import ponder_torch.exits
from ponder_ref.conformance.run import judge


def mutant(**replaced) -> SimpleNamespace:
    members = {name: getattr(ponder_torch, name) for name in ponder_torch.__all__}
    return SimpleNamespace(**{**members, **replaced})


def failed(subject, requirement: str, level: str, **options) -> str:
    """The first complaint, or nothing."""
    verdicts = judge(subject, **{"level": level, "examples": 1, "only": {requirement}, "shrink": False, **options})
    return verdicts[requirement].failures[0] if verdicts[requirement].status == "failed" else ""


def accumulating(fn, *arrays, constants=()):
    """Gradients by `backward`, which adds them to those that are there."""
    leaves = [array.requires_grad_() for array in arrays]
    value = fn(*leaves, *constants)
    value.backward()
    return value.detach(), tuple(leaf.grad.clone() for leaf in leaves)


def traced(fn, *, optimize=False):
    """Compiled code that has the numbers of its first call built in."""
    kept = []

    def call(*args):
        if not kept:
            kept.append(fn(*args))
        return kept[0]

    return call


def half_sums(step, x, state, **options):
    with mock.patch.object(ponder_torch.exits, "as_float", lambda *arrays: arrays):
        return ponder_torch.predict(step, x, state, **options)


def cleaned(out, targets, criterion, **options):
    if out.log_p is not None and not out.y_hat.requires_grad:
        out.y_hat[out.log_p == -torch.inf] = 0.0
    return ponder_torch.training_loss(out, targets, criterion, **options)


@pytest.mark.parametrize(
    ("requirement", "level", "replaced", "options"),
    [
        ("B7", "core", {"value_and_grad": accumulating}, {"dtypes": ("float64",), "groups": ("gradients",)}),
        ("B9", "full", {"compiled": traced}, {"dtypes": ("float64",)}),
        ("I2", "infer", {"predict": half_sums}, {"dtypes": ("float16",)}),
        ("B7", "module", {"training_loss": cleaned}, {"dtypes": ("float64",), "groups": ("module",)}),
    ],
)
def test_a_defect_of_the_framework_is_rejected(requirement, level, replaced, options):
    assert failed(mutant(**replaced), requirement, level, **options)
