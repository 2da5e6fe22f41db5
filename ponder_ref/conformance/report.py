"""The verdicts as a table for people and as JSON for programs."""

import json
import textwrap
from pathlib import Path
from typing import Any

from ponder_ref.base import SPEC_VERSION
from ponder_ref.conformance.endings import write_whole
from ponder_ref.conformance.interface import ANNEX_REQUIREMENTS
from ponder_ref.conformance.registry import ALL_DTYPES, Verdict
from ponder_ref.conformance.spec_data import requirements

ANNEX_LINE = "The annex (O1 to O5, M8 to M10: optimisers, networks of experiments) was not judged: --annex judges it."
ORDER = {"not tried": -2, "not offered": -1, "passed": 0, "failed": 1}


def merge(one: dict[str, Verdict], other: dict[str, Verdict]) -> dict[str, Verdict]:
    """Verdicts of two runs: failed if either failed, passed if either passed."""
    merged = {}
    for requirement, verdict in one.items():
        second = other[requirement]
        status = max(verdict.status, second.status, key=ORDER.__getitem__)
        checks, failures = verdict.checks + second.checks, verdict.failures + second.failures
        merged[requirement] = Verdict(requirement, status, checks, failures)
        merged[requirement].lacks((*verdict.needs, *second.needs))
    return merged


def untried(verdicts: dict[str, Verdict]) -> dict[str, tuple[str, ...]]:
    """Requirements of the level that no check could be tried for, and the dtypes of which they need one."""
    return {name: v.needs for name, v in verdicts.items() if v.status == "not tried" and v.needs}


def conclusion(verdicts: dict[str, Verdict]) -> str:
    """Whether the backend conforms, and what that does not speak of."""
    total, left = counts(verdicts), untried(verdicts)
    said = "conforms" if total["failed"] == 0 else "does not conform"
    if left:
        needed = [dtype for dtype in ALL_DTYPES if any(dtype in needs for needs in left.values())]
        count = f"{len(left)} requirement{'s' * (len(left) > 1)} not tried"
        which = "they need" if len(left) > 1 else "it needs"
        said += f", {count}: {', '.join(left)} ({which} {' or '.join(needed)})"
    return said


def counts(verdicts: dict[str, Verdict]) -> dict[str, int]:
    return {
        status: sum(v.status == status for v in verdicts.values())
        for status in ("passed", "failed", "not offered", "not tried")
    }


def table(verdicts: dict[str, Verdict], label: str, *, only: list[str] | None = None, width: int = 118) -> str:
    """One row per requirement, and under a failed one its shortest failing input."""
    texts, left = requirements(), untried(verdicts)
    lines = [f"{label} against the PonderNet standard {SPEC_VERSION}", ""]
    for requirement, verdict in verdicts.items():
        if only and requirement not in only and not verdict.failures:
            continue
        needs = f" (needs {' or '.join(verdict.needs)})" if requirement in left else ""
        row = f"  {requirement:<4} {verdict.status:<12} {verdict.checks:>4} checks   {texts[requirement]}{needs}"
        lines.append(row)
        for sentence in verdict.failures:
            lines += textwrap.wrap(sentence, width, initial_indent="         ", subsequent_indent="         ")
    if only:
        passed = sum(verdicts[requirement].status == "passed" for requirement in only)
        lines += ["", f"{label}: {passed} of {', '.join(only)} passed; no other requirement was tried"]
        return "\n".join(lines)
    total = counts(verdicts)
    total["of other levels"] = total.pop("not tried") - len(left)  # the rest is named before
    lines += ["", f"{label} {conclusion(verdicts)}: " + ", ".join(f"{n} {status}" for status, n in total.items())]
    if ANNEX_REQUIREMENTS.isdisjoint(verdicts):
        lines.insert(-1, ANNEX_LINE)
    return "\n".join(lines)


def write_report(path: Path, verdicts: dict[str, Verdict], label: str, options: dict[str, Any]) -> None:
    """The verdicts as JSON, written to a temporary name, flushed and renamed."""
    content = {
        "backend": label,
        "spec_version": SPEC_VERSION,
        "options": options,
        "conforms": None if options.get("only") else counts(verdicts)["failed"] == 0,
        "counts": counts(verdicts),
        "not_tried_for_want_of_dtypes": list(untried(verdicts)),
        "requirements": [
            {
                "id": requirement,
                "text": requirements()[requirement],
                "status": verdict.status,
                "needs_one_of": list(verdict.needs) if verdict.status == "not tried" else [],
                "checks": verdict.checks,
                "failures": verdict.failures,
            }
            for requirement, verdict in verdicts.items()
        ],
    }
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False), "--report")


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """The verdicts of a report."""
    rows = json.loads(path.read_text(encoding="utf-8"))["requirements"]
    return {
        row["id"]: Verdict(row["id"], row["status"], row["checks"], row["failures"], needs=tuple(row["needs_one_of"]))
        for row in rows
    }
