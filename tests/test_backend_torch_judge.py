"""Defects that only a framework can have, tried on the judge: eager-only code, half precision, gradients cut."""

from types import SimpleNamespace

import pytest
import torch

import ponder_torch
from ponder_ref.conformance.compare import tolerance
from ponder_ref.conformance.run import judge


def mutant(**replaced) -> SimpleNamespace:
    members = {name: getattr(ponder_torch, name) for name in ponder_torch.__all__}
    return SimpleNamespace(**{**members, **replaced})


def looks_at_values(log_p):
    """Works eagerly; a compiler must break the graph and vmap must give up."""
    if float(log_p.max()) > 1e9:
        raise ValueError("log_p is too large")
    return ponder_torch.expected_steps(log_p)


def in_half_precision(log_p, step_losses):
    ponder_torch.expected_loss(log_p, step_losses)
    if log_p.dtype in (torch.bfloat16, torch.float16):
        return (log_p.exp() * torch.where(log_p == -torch.inf, 0.0, step_losses)).sum(0).float()
    return ponder_torch.expected_loss(log_p, step_losses)


def half_results(log_p):
    steps = ponder_torch.expected_steps(log_p)
    return steps.to(log_p.dtype) if log_p.dtype in (torch.bfloat16, torch.float16) else steps


def detached(halt_logits, *, remainder="last", lengths=None):
    return ponder_torch.log_halting(halt_logits.detach(), remainder=remainder, lengths=lengths)


def gradients_off(fn, *arrays, constants=()):
    value, grads = ponder_torch.value_and_grad(fn, *arrays, constants=constants)
    entry = tolerance("gradient", "bfloat16")
    if arrays[0].dtype != torch.bfloat16:
        return value, grads
    return value, tuple(g + 10 * entry["rtol"] * g.nan_to_num().abs().max() for g in grads)


@pytest.mark.parametrize(
    ("requirement", "replaced"),
    [
        ("B9", {"expected_steps": looks_at_values}),
        ("B10", {"expected_steps": looks_at_values}),
        ("B8", {"expected_loss": in_half_precision}),
        ("B8", {"expected_steps": half_results}),
        ("B8", {"value_and_grad": gradients_off}),
        ("H9", {"log_halting": detached}),
        ("L5", {"log_halting": detached}),
    ],
)
def test_a_defect_of_the_framework_is_rejected(requirement, replaced):
    verdicts = judge(mutant(**replaced), level="full", examples=10, only={requirement}, shrink=False)
    assert verdicts[requirement].status == "failed"


def test_without_a_defect_nothing_is_rejected():
    verdicts = judge(mutant(), level="core", examples=10, only={"B8", "B10", "H9", "L5"}, shrink=False)
    assert {v.status for v in verdicts.values()} == {"passed", "not tried"}
