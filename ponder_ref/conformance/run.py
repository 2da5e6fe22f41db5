"""Runs the checks in order and gathers one verdict a requirement."""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref import interface
from ponder_ref.conformance import (  # noqa: F401 (importing a module of checks registers them)
    check_extremes,
    check_gradients,
    check_independence,
    check_interface,
    check_laws,
    check_sampling,
    check_transforms,
    check_vectors,
)
from ponder_ref.conformance.registry import ANY_DTYPE, CHECKS, GROUPS, Check, Trial, Verdict, run_check
from ponder_ref.conformance.report import merge, read_verdicts
from ponder_ref.conformance.subject import Subject
from ponder_ref.spec_data import requirements

LEVELS = ("core", "full")
EXAMPLES = {"core": 25, "full": 60}

check_vectors.register_all()


def _missing(item: Check, subject: Subject) -> bool:
    return not subject.offers(item.requirement) or any(not subject.offers(name) for name in item.needs)


def _dtypes(item: Check, dtypes: tuple[str, ...]) -> tuple[str, ...]:
    return dtypes[:1] if item.dtypes == ANY_DTYPE else tuple(d for d in dtypes if d in item.dtypes)


def judge(
    backend: Any,
    *,
    label: str = "",
    level: str = "core",
    examples: int | None = None,
    seed: int = 0,
    dtypes: tuple[str, ...] | None = None,
    only: set[str] | None = None,
    shrink: bool = True,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Verdict]:
    """Runs every check of the level on a backend, in this process; a requirement that has failed is not tried further.

    `only` keeps to the checks of some requirements.
    """
    subject = Subject(backend, label or getattr(backend, "NAME", "backend"))
    dtypes = subject.dtypes if dtypes is None else tuple(d for d in subject.dtypes if d in dtypes)
    verdicts = {requirement: Verdict(requirement) for requirement in requirements()}
    chosen = [
        item
        for item in CHECKS
        if (item.level == "core" or level == "full") and (only is None or item.requirement in only)
    ]
    trial_options = {"examples": examples or EXAMPLES[level], "seed": seed, "shrink": shrink}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for group in GROUPS:
            progress(group)
            for item in (item for item in chosen if item.group == group):
                if _missing(item, subject):
                    continue
                for dtype in _dtypes(item, dtypes):
                    if verdicts[item.requirement].status != "failed":
                        trial = Trial(subject, dtype, name=item.name, **trial_options)
                        run_check(item, trial, verdicts)
            if group == "names" and any(not hasattr(backend, name) for name in interface.REQUIRED):
                return verdicts  # nothing to judge
    return verdicts


def judge_in_processes(backend: Any, name: str, options: dict[str, Any], progress) -> dict[str, Verdict]:
    """As `judge`; dtypes for which the backend asks for an environment of their own run in a process that has it."""
    environment = getattr(backend, "ENVIRONMENT", {})
    offered = tuple(getattr(backend, "DTYPES", ()))
    apart = [d for d in offered if any(os.environ.get(k) != v for k, v in environment.get(d, {}).items())]
    children = []
    folder = tempfile.TemporaryDirectory()
    for dtype in apart:
        report = Path(folder.name) / f"{dtype}.json"
        command = [
            sys.executable,
            "-m",
            "ponder_ref.conformance",
            "--backend",
            name,
            "--dtypes",
            dtype,
            "--report",
            str(report),
        ]
        command += [
            part
            for key in ("level", "examples", "seed")
            if options[key] is not None
            for part in (f"--{key}", str(options[key]))
        ]
        child = subprocess.Popen(
            command,
            env={**os.environ, **environment[dtype]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append((dtype, report, child))
    here = tuple(d for d in offered if d not in apart)
    verdicts = judge(backend, label=name, dtypes=here or None, progress=progress, **options)
    for dtype, report, child in children:
        progress(f"{dtype} in a process of its own")
        _, errors = child.communicate()
        if not report.is_file():
            raise RuntimeError(f"the process for {dtype} ended with code {child.returncode}: {errors.strip()[-300:]}")
        verdicts = merge(verdicts, read_verdicts(report))
    folder.cleanup()
    return verdicts
