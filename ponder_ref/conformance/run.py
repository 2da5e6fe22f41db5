"""Runs the checks in order and gathers one verdict a requirement."""

import warnings
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ponder_ref.conformance import (  # noqa: F401 (importing a module of checks registers them)
    check_arrays,
    check_corners,
    check_costs,
    check_empty,
    check_gradients,
    check_half_sums,
    check_independence,
    check_infer,
    check_interface,
    check_laws,
    check_matrices,
    check_module,
    check_module_losses,
    check_repeated_calls,
    check_sampling,
    check_shapes,
    check_slopes,
    check_stream,
    check_stream_habits,
    check_transformers,
    check_transforms,
    check_vectors,
    interface,
)
from ponder_ref.conformance.registry import ANY_DTYPE, CHECKS, GROUPS, Check, Trial, Verdict, run_check
from ponder_ref.conformance.spec_data import requirements
from ponder_ref.conformance.subject import Subject, most_exact

# Which levels of checks a level has.
LEVELS = {
    "core": ("core",),
    "full": ("core", "full"),
    "module": ("core", "module"),
    "infer": ("core", "module", "infer"),
}
EXAMPLES = {"core": 15, "full": 40, "module": 15, "infer": 15}

check_vectors.register_all()


def _missing(item: Check, subject: Subject) -> bool:
    return not subject.offers(item.requirement) or any(not subject.offers(name) for name in item.needs)


def _dtypes(item: Check, dtypes: tuple[str, ...], subject: Subject) -> tuple[str, ...]:
    if item.dtypes == ANY_DTYPE:
        return (most_exact(dtypes) or subject.most_exact(),)
    return tuple(d for d in dtypes if d in item.dtypes)


def wants_annex(annex: bool, only: Collection[str] | None) -> bool:
    """Whether the annex is judged: on request, or where one of its requirements is asked for by name."""
    return annex or not interface.ANNEX_REQUIREMENTS.isdisjoint(only or ())


def judge(
    backend: Any,
    *,
    label: str = "",
    level: str = "core",
    examples: int | None = None,
    seed: int = 0,
    dtypes: tuple[str, ...] | None = None,
    only: Collection[str] | None = None,
    annex: bool = False,
    shrink: bool = True,
    groups: Collection[str] = GROUPS,
    once: bool = True,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Verdict]:
    """Runs every check of the level on a backend, in this process; a requirement that has failed is not tried further.

    `only` keeps to the checks of some requirements, `groups` to some groups of checks. The annex is judged with `annex`
    or where `only` names one of its requirements; otherwise those have no verdict. Without `once`, what says the same
    in every dtype is left out: another process has it. That arrays come back as they went is always checked first.
    """
    groups, annex = {"arrays", *groups}, wants_annex(annex, only)
    subject = Subject(backend, label or getattr(backend, "NAME", "backend"), annex=annex)
    dtypes = subject.dtypes if dtypes is None else tuple(d for d in subject.dtypes if d in dtypes)
    judged = [name for name in requirements() if annex or name not in interface.ANNEX_REQUIREMENTS]
    verdicts = {requirement: Verdict(requirement) for requirement in judged}
    chosen = [
        item
        for item in CHECKS
        if item.requirement in verdicts and item.level in LEVELS[level]
        if only is None or item.requirement in only or item.group == "arrays"
        if item.group in groups and (once or item.dtypes != ANY_DTYPE)
    ]
    trial_options = {"examples": examples or EXAMPLES[level], "seed": seed, "shrink": shrink}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        holes = check_interface.unwritten(backend, LEVELS[level], annex)
        subject.unwritten = tuple(name for name in holes if name not in subject.not_offered)
        for group in (group for group in GROUPS if group in groups):
            progress(group)
            for item in (item for item in chosen if item.group == group):
                if _missing(item, subject):
                    verdicts[item.requirement].not_offered()
                    continue
                tried = _dtypes(item, dtypes, subject)
                if not tried:
                    verdicts[item.requirement].lacks(item.dtypes)
                for dtype in tried:
                    if not verdicts[item.requirement].settled:
                        trial = Trial(subject, dtype, name=item.name, **trial_options)
                        run_check(item, trial, verdicts)
            missing = [name for name in interface.REQUIRED if not hasattr(backend, name)]
            if group == "names" and (missing or set(interface.FUNCTIONS) <= {*subject.unwritten, *subject.not_offered}):
                return verdicts  # nothing to judge
            if group == "arrays" and verdicts["B3"].status == "failed":
                return verdicts  # anything else would be said of other numbers than the backend was given
            if group == "arrays" and only is not None and "B3" not in only:
                verdicts["B3"] = Verdict("B3")  # it was not asked for
    return verdicts
