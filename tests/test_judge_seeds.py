"""Verdicts do not depend on the seed: what shows under some options alone is always seen, what is lawful never is."""

import pytest

from ponder_ref.conformance.mutants import options, roundings
from ponder_ref.conformance.mutants.__main__ import DEFECTS, level_of
from ponder_ref.conformance.mutants.base import backend
from ponder_ref.conformance.run import judge

SEEDS = range(10)
# Mutants of other files that some seeds once let pass.
ONCE_MISSED = ("min-steps-capped", "slope-at-no-weight", "epsilon-saves-nothing", "module-min-steps-ignored")
ONCE_MISSED += ("act-epsilon-ignored",)
WATCHED = (*options.MUTANTS, *roundings.MUTANTS, *(mutant for mutant in DEFECTS if mutant.name in ONCE_MISSED))
# What each lawful way of rounding could be taken for.
SPOKEN_FOR = {
    "plain-sums": {"H1", "H2", "H3", "H4", "H10"},
    "prior-by-gamma": {"P4"},
    "kl-not-negative": {"L2", "L4", "L5"},
    "quantile-normalised": {"S6", "B8"},
}


def failures(mutant, seed: int, only: set[str]) -> dict[str, str]:
    settings = {"level": level_of(mutant), "examples": 5, "shrink": False, "only": only, "seed": seed, "annex": True}
    verdicts = judge(backend(mutant), label=mutant.name, **settings)
    return {name: verdict.failures[0] for name, verdict in verdicts.items() if verdict.failures}


@pytest.mark.parametrize("mutant", WATCHED, ids=lambda mutant: mutant.name)
def test_a_defect_is_rejected_at_every_seed(mutant):
    seen = {seed: mutant.requirement in failures(mutant, seed, {mutant.requirement}) for seed in SEEDS}
    assert all(seen.values()), seen


@pytest.mark.parametrize("mutant", roundings.EQUIVALENTS, ids=lambda mutant: mutant.name)
def test_a_lawful_rounding_is_accepted_at_every_seed(mutant):
    slow = mutant.name in ("plain-sums", "kl-not-negative")  # a thousand steps, and gradients by complex steps
    for seed in SEEDS[:3] if slow else SEEDS:
        assert failures(mutant, seed, SPOKEN_FOR[mutant.name]) == {}, seed
