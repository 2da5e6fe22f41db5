"""Judges a backend in several processes: by the environment its dtypes ask for, and by the compiler it is judged with.

A process is `python -m ponder_ref.conformance.processes`, with its job as JSON in the standard input.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ponder_ref.conformance.compare import LOW_PRECISION
from ponder_ref.conformance.loading import backend_named
from ponder_ref.conformance.registry import GROUPS, Verdict
from ponder_ref.conformance.report import merge, read_verdicts, write_report
from ponder_ref.conformance.run import judge
from ponder_ref.conformance.subject import most_exact
from ponder_ref.runtime.errors import Refused


class Job(NamedTuple):
    """What one process judges: some dtypes, some groups of checks, under some environment variables."""

    variables: dict[str, str]
    dtypes: tuple[str, ...]
    groups: tuple[str, ...]
    once: bool  # whether it has the checks that say the same in every dtype


def jobs(backend: Any, level: str, dtypes: tuple[str, ...] | None = None) -> list[Job]:
    """Dtypes (all that are offered, if None) by the variables they need and this process lacks.

    Where code is compiled, which takes long, half precision runs beside the others, and so do the golden cases and the
    gradients of the widest dtype. Quick compilation is for everything but compiled code at level full: the compiler as
    it is judges that.
    """
    quick, environment = getattr(backend, "QUICK", {}), getattr(backend, "ENVIRONMENT", {})
    offered = tuple(getattr(backend, "DTYPES", None) or ()) if dtypes is None else dtypes
    widest = most_exact(offered)
    alone = ("compiled",) if level == "full" and quick else ()
    parts = [(quick, tuple(group for group in GROUPS if group not in alone))]
    parts += [({}, alone)] if alone else []
    golden = ("vectors", "gradients")
    found: dict[tuple, list[str]] = {}
    for variables, groups in parts:
        for dtype in offered:
            wanted = {**variables, **environment.get(dtype, {})}
            missing = tuple(sorted((k, v) for k, v in wanted.items() if os.environ.get(k) != v))
            apart = bool(missing) and dtype in LOW_PRECISION and groups != alone
            if dtype == widest and missing and groups != alone:
                rest = tuple(group for group in groups if group not in golden)
                found[(rest, missing, apart)], found[(golden, missing, apart)] = [dtype], [dtype]
            else:
                found.setdefault((groups, missing, apart), []).append(dtype)
    return [
        Job(dict(missing), tuple(dtypes), groups, widest in dtypes) for (groups, missing, _), dtypes in found.items()
    ]


def _start(name: str, job: Job, report: Path, options: dict[str, Any]) -> subprocess.Popen:
    command = [sys.executable, "-m", "ponder_ref.conformance.processes"]
    content = {"name": name, "report": str(report), "options": options, "dtypes": job.dtypes, "groups": job.groups}
    child = subprocess.Popen(
        command,
        env={**os.environ, **job.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    with child.stdin:
        json.dump({**content, "once": job.once}, child.stdin)
    child.stdin = None
    return child


def _ended(
    backend: Any, name: str, options: dict[str, Any], progress, job: Job, report: Path, child: subprocess.Popen
) -> dict[str, Verdict]:
    """The verdicts of a process, when it has ended."""
    progress(f"{', '.join(job.dtypes)} in a process of their own")
    _, errors = child.communicate()
    if not report.is_file():  # an accelerator of compilation that this version does not know: do without it
        quick = getattr(backend, "QUICK", {})
        plain = job._replace(variables={k: v for k, v in job.variables.items() if k not in quick})
        with _start(name, plain, report, options) as again:
            _, errors = again.communicate()
    if not report.is_file():
        raise Refused(f"the process for {', '.join(job.dtypes)} failed: {' '.join(errors.split())[-300:]}")
    return read_verdicts(report)


def judge_in_processes(
    backend: Any, name: str, options: dict[str, Any], progress, dtypes: tuple[str, ...] | None = None
) -> dict[str, Verdict]:
    """As `judge`; what asks for an environment of its own runs in processes that have it."""
    todo = jobs(backend, options["level"], dtypes)
    here, others = [job for job in todo if not job.variables], [job for job in todo if job.variables]
    with tempfile.TemporaryDirectory() as folder:
        children: list[tuple[Job, Path, subprocess.Popen]] = []
        try:
            for number, job in enumerate(others):
                report = Path(folder) / f"{number}.json"
                children.append((job, report, _start(name, job, report, options)))
            runs = []
            for job in here:
                chosen = {"dtypes": job.dtypes, "groups": job.groups, "once": job.once}
                runs.append(judge(backend, label=name, progress=progress, **chosen, **options))
            runs += [_ended(backend, name, options, progress, *child) for child in children]
        finally:
            for _, _, child in children:  # after Ctrl-C none goes on alone
                child.kill()
                child.wait()
    return functools.reduce(merge, runs or [judge(backend, label=name, progress=progress, **options)])


def main() -> None:
    """One job."""
    job = json.load(sys.stdin)
    chosen = {key: tuple(job[key]) for key in ("dtypes", "groups")}
    verdicts = judge(backend_named(job["name"]), label=job["name"], once=job["once"], **chosen, **job["options"])
    write_report(Path(job["report"]), verdicts, job["name"], job["options"])


if __name__ == "__main__":
    main()
