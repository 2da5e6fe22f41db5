"""Runs the checks in order and gathers one verdict a requirement."""

import functools
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref import interface
from ponder_ref.conformance import (  # noqa: F401 (importing a module of checks registers them)
    check_corners,
    check_extremes,
    check_gradients,
    check_independence,
    check_interface,
    check_laws,
    check_sampling,
    check_shapes,
    check_slopes,
    check_transforms,
    check_vectors,
)
from ponder_ref.conformance.compare import LOW_PRECISION
from ponder_ref.conformance.loading import CannotRun
from ponder_ref.conformance.registry import ANY_DTYPE, CHECKS, GROUPS, Check, Trial, Verdict, run_check
from ponder_ref.conformance.report import merge, read_verdicts
from ponder_ref.conformance.subject import Subject
from ponder_ref.spec_data import requirements

LEVELS = ("core", "full")
EXAMPLES = {"core": 25, "full": 60}

check_vectors.register_all()


def _missing(item: Check, subject: Subject) -> bool:
    return not subject.offers(item.requirement) or any(not subject.offers(name) for name in item.needs)


def _dtypes(item: Check, dtypes: tuple[str, ...], subject: Subject) -> tuple[str, ...]:
    if item.dtypes == ANY_DTYPE:  # the first that every function takes
        return tuple(d for d in dtypes if d not in LOW_PRECISION)[:1] or (() if subject.dtypes else ("float32",))
    return tuple(d for d in dtypes if d in item.dtypes)


def judge(
    backend: Any,
    *,
    label: str = "",
    level: str = "core",
    examples: int | None = None,
    seed: int = 0,
    dtypes: tuple[str, ...] | None = None,
    only: Collection[str] | None = None,
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
                for dtype in _dtypes(item, dtypes, subject):
                    if not verdicts[item.requirement].settled:
                        trial = Trial(subject, dtype, name=item.name, **trial_options)
                        run_check(item, trial, verdicts)
            if group == "names" and any(not hasattr(backend, name) for name in interface.REQUIRED):
                return verdicts  # nothing to judge
    return verdicts


def _environments(backend: Any, level: str) -> dict[tuple, list[str]]:
    """Dtypes by the environment variables they need and this process lacks; half precision apart, for speed."""
    groups: dict[tuple, list[str]] = {}
    quick = getattr(backend, "QUICK", {}) if level == "core" else {}
    for dtype in getattr(backend, "DTYPES", ()):
        wanted = {**quick, **getattr(backend, "ENVIRONMENT", {}).get(dtype, {})}
        missing = tuple(sorted((k, v) for k, v in wanted.items() if os.environ.get(k) != v))
        groups.setdefault((missing, bool(missing) and dtype in LOW_PRECISION), []).append(dtype)
    return groups


def _start(name: str, dtypes: list[str], variables: dict[str, str], report: Path, options: dict[str, Any]):
    command = [sys.executable, "-m", "ponder_ref.conformance", "--backend", name]
    command += ["--dtypes", ",".join(dtypes), "--report", str(report)]
    for key in ("level", "examples", "seed"):
        command += [f"--{key}", str(options[key])] if options[key] is not None else []
    command += ["--only", ",".join(options["only"])] if options["only"] else []
    environment = {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def judge_in_processes(backend: Any, name: str, options: dict[str, Any], progress) -> dict[str, Verdict]:
    """As `judge`; dtypes for which the backend asks for an environment of their own run in processes that have it."""
    groups = _environments(backend, options["level"])
    here = tuple(groups.pop(((), False), ()))
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number, ((variables, _), dtypes) in enumerate(groups.items()):
            report = Path(folder) / f"{number}.json"
            children.append((dtypes, dict(variables), report, _start(name, dtypes, dict(variables), report, options)))
        runs = [judge(backend, label=name, dtypes=here, progress=progress, **options)] if here or not groups else []
        for dtypes, variables, report, child in children:
            progress(f"{', '.join(dtypes)} in a process of their own")
            _, errors = child.communicate()
            if not report.is_file():  # an accelerator of compilation that this version does not know: do without it
                kept = {k: v for k, v in variables.items() if k not in getattr(backend, "QUICK", {})}
                _, errors = _start(name, dtypes, kept, report, options).communicate()
            if not report.is_file():
                raise CannotRun(f"the process for {', '.join(dtypes)} failed: {' '.join(errors.split())[-300:]}")
            runs.append(read_verdicts(report))
    return functools.reduce(merge, runs)
