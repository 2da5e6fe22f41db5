"""Backends with one defect each, which the judge must reject, and backends that are right but different."""

import pytest

from ponder_ref.conformance.mutants.__main__ import DEFECTS, EQUIVALENTS, rejected_by
from ponder_ref.conformance.mutants.base import Mutant
from ponder_ref.conformance.mutants.offsets import NOT_JUDGED
from ponder_ref.conformance.spec_data import requirements, tolerances


@pytest.mark.parametrize("mutant", DEFECTS, ids=lambda mutant: mutant.name)
def test_every_defect_is_rejected_by_the_requirement_that_names_it(mutant):
    failed = rejected_by(mutant)
    assert mutant.requirement in failed, f"{mutant.name} ({mutant.defect}) was not rejected by {mutant.requirement}"


@pytest.mark.parametrize("mutant", EQUIVALENTS, ids=lambda mutant: mutant.name)
def test_what_is_right_but_different_is_not_rejected(mutant):
    assert rejected_by(mutant, whole=True) == {}


def test_a_mutant_without_its_defect_is_not_rejected():
    """The test of the mutants can fail: with the defect taken out, nothing rejects it."""
    kl = next(mutant for mutant in DEFECTS if mutant.name == "kl-reversed")
    healed = Mutant(kl.name, kl.defect, kl.requirement, {}, kl.dtypes)
    assert rejected_by(kl) and rejected_by(healed) == {}


def test_every_requirement_has_a_mutant():
    assert set(requirements()) <= {mutant.requirement for mutant in DEFECTS}


def test_every_tolerance_has_a_mutant():
    names = {mutant.name for mutant in DEFECTS}
    assert set(NOT_JUDGED) < set(tolerances())
    for quantity, entries in tolerances().items():
        for dtype in set(entries) - {"bfloat16"} if quantity not in NOT_JUDGED else ():
            assert any(name.startswith(f"off-{quantity}-{dtype}") for name in names), (quantity, dtype)
