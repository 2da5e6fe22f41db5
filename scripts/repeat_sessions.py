"""Runs test sessions again and again, half of the time on a busy machine, to show that no test fails by chance.

    python scripts/repeat_sessions.py --out ../proof
    python scripts/repeat_sessions.py --out ../proof --runs 4 --repo ../clone test_ref

Run it in the background: it takes hours. Stop it with Ctrl-C or SIGTERM at any time, and start it again with the same
command: what is done is not done again. Every second run of a session has one busy process per core beside it. The
sessions take turns, so that an unfinished proof covers all of them. The tree must not change meanwhile: to go on
working in it, clone it and test the clone (--repo).

A line of JSON per finished run is appended to DIR/runs.jsonl: session, number, load (idle or busy), commit, code,
seconds, time, log. The output of a run that failed stays in DIR/logs. Runs count for the commit that was tested;
another commit starts from zero.

Exit code 0: all runs passed. 1: at least one failed. 2: it could not start, or the tree was changed under it.
128 + its number: stopped by a signal (Ctrl-C: 130, SIGTERM: 143); the run in progress is not recorded.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SESSIONS = ("test_torch", "test_jax", "test_ref", "test_agree")
LOADS = ("idle", "busy")
FIELDS = ("session", "number", "load", "commit", "code", "seconds", "time", "log")
GRACE = 10.0  # seconds that a stopped session has for its own end, before it is killed
# It ends with its parent, however that ends.
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"


class Refused(Exception):
    """Why nothing can be run, in one sentence."""


class Stopped(Exception):
    """A signal came."""


class Run(NamedTuple):
    """One run of one session; odd numbers are idle, even ones busy."""

    session: str
    number: int

    @property
    def load(self) -> str:
        return LOADS[1 - self.number % 2]


class Stop:
    """Notes the first SIGINT, SIGTERM or SIGHUP, which the work looks at between its steps."""

    def __init__(self) -> None:
        self.received: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
            signal.signal(signal.SIGHUP, self.note)

    def note(self, number: int, _: object) -> None:
        self.received = self.received or number

    def check(self) -> None:
        if self.received:
            raise Stopped


def git(repo: Path, *arguments: str) -> str:
    """What git prints, asked of this repository even where a hook's variables name another."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", "-C", repo, *arguments], env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise Refused("git is not installed, so the tested commit is not known") from None
    if done.returncode:
        raise Refused(f"git {arguments[0]} failed in {repo}: {' '.join(done.stderr.split())}")
    return done.stdout


def tested_commit(repo: Path, allow_dirty: bool) -> str:
    """The commit of the tree, with "-dirty" behind it if files differ from it and that is allowed."""
    commit = git(repo, "rev-parse", "HEAD").strip()
    changed = git(repo, "status", "--porcelain").splitlines()
    if not changed:
        return commit
    if not allow_dirty:
        raise Refused(
            f"{repo} has {len(changed)} changed or unknown files, the first is {changed[0][3:]}: "
            "commit them, or test them all the same with --allow-dirty"
        )
    return f"{commit}-dirty"


def check_sessions(nox: list[str], repo: Path, sessions: list[str]) -> None:
    """Asks nox which sessions there are."""
    try:
        done = subprocess.run([*nox, "--list", "--json"], cwd=repo, capture_output=True, text=True)
        known = {name for each in json.loads(done.stdout) for name in (each["session"], each["name"])}
    except (OSError, ValueError, TypeError, KeyError):
        raise Refused(f"{shlex.join(nox)} --list --json gives no list of sessions: is nox installed?") from None
    if missing := [name for name in sessions if name not in known]:
        raise Refused(f"there is no session {missing[0]!r}: nox -l lists them")


class State:
    """The finished runs in DIR/runs.jsonl; only one process at a time may add to them."""

    def __init__(self, folder: Path):
        self.logs, self.file = folder / "logs", folder / "runs.jsonl"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.opened = self.file.open("a+b")
        try:
            fcntl.flock(self.opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another process is writing to {self.file}") from None
        self.opened.seek(0)
        whole, newline, _ = self.opened.read().rpartition(b"\n")
        self.opened.truncate(len(whole) + len(newline))  # half a line is left of a process that was killed
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            self.records = [{name: line[name] for name in FIELDS} for line in lines]
        except (ValueError, TypeError, KeyError):
            raise Refused(f"{self.file} is not a file of this script") from None

    def add(self, record: dict[str, Any]) -> None:
        self.opened.write(json.dumps(record).encode() + b"\n")
        self.opened.flush()
        os.fsync(self.opened.fileno())
        self.records.append(record)


def end(process: subprocess.Popen) -> None:
    """Ends a process and all that it has started."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


@contextlib.contextmanager
def under(load: str) -> Iterator[None]:
    """With one busy process per core, if the load is "busy"."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    command = [sys.executable, "-c", BUSY, str(os.getpid())]
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(count if load == "busy" else 0)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
        for process in others:
            process.wait()


def execute(command: list[str], repo: Path, log: Path, stop: Stop) -> int:
    """The exit code of a command whose output goes to the log; a signal ends it and all that it has started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=repo, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while True:
                stop.check()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(0.2)
        finally:
            end(process)  # also what a session has left behind


def table(records: list[dict[str, Any]], sessions: list[str], runs: int) -> str:
    """A row per session and load: how many passed and failed, and how long they took; then the failures."""
    lines = [f"{'session':<16} {'load':<5} {'passed':>7} {'failed':>7} {'to do':>6} {'median':>8} {'longest':>8}"]
    for session in sessions:
        for load in LOADS:
            own = [each for each in records if (each["session"], each["load"]) == (session, load)]
            failed = sum(each["code"] != 0 for each in own)
            wanted = sum(Run(session, number).load == load for number in range(1, runs + 1))
            seconds = [each["seconds"] for each in own]
            times = f"{statistics.median(seconds):>6.0f} s {max(seconds):>6.0f} s" if seconds else ""
            counts = f"{len(own) - failed:>7} {failed:>7} {max(0, wanted - len(own)):>6}"
            lines.append(f"{session:<16} {load:<5} {counts} {times}".rstrip())
    for each in records:
        if each["code"] != 0:
            where = f"{each['session']}, run {each['number']}, {each['load']}, at commit {each['commit'][:10]}"
            lines.append(f"failed: {where}, exit code {each['code']}: {each['log']}")
    return "\n".join(lines)


def repeat(options: argparse.Namespace, state: State, commit: str, stop: Stop) -> None:
    """Runs what is not done yet, the sessions in turn."""
    todo = [Run(session, number) for number in range(1, options.runs + 1) for session in options.sessions]
    for run in todo:
        own = [each for each in chosen(options, state, commit) if each["session"] == run.session]
        if any(each["number"] == run.number for each in own):
            continue
        installed = any(each["code"] == 0 and each["commit"] == commit for each in own)
        command = [*options.nox, *(["-R"] if installed else []), "-s", run.session]
        log = state.logs / f"{commit[:10]}-{run.session}-{run.number}-{run.load}.log"
        print(f"{run.session}, run {run.number} of {options.runs}, {run.load} ...", flush=True)
        began = time.monotonic()
        with under(run.load):
            code = execute(command, options.repo, log, stop)
        seconds = round(time.monotonic() - began, 1)
        if tested_commit(options.repo, options.allow_dirty) != commit:
            raise Refused(f"{options.repo} has another commit than at the start; this run was not recorded")
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        if code == 0:
            log.unlink()
        record = {**run._asdict(), "load": run.load, "commit": commit, "code": code, "seconds": seconds, "time": now}
        state.add(record | {"log": str(log) if code else None})
        print(f"    {'passed' if code == 0 else f'FAILED with exit code {code}: {log}'}, {seconds:.0f} s", flush=True)


def chosen(options: argparse.Namespace, state: State, commit: str) -> list[dict[str, Any]]:
    """The records that count: of this commit, or of all."""
    return [each for each in state.records if options.any_commit or each["commit"] == commit]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help=f"default: {' '.join(SESSIONS)}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of runs and logs; outside the tree")
    parser.add_argument("--runs", type=int, default=10, help="of each session; every second one is busy (default: 10)")
    parser.add_argument("--repo", type=Path, default=ROOT, metavar="DIR", help="the tree to test (default: this one)")
    nox = [sys.executable, "-m", "nox"] if find_spec("nox") else ["nox"]
    parser.add_argument("--nox", type=shlex.split, default=nox, metavar="COMMAND", help="how nox is called")
    parser.add_argument("--allow-dirty", action="store_true", help="test files that are not committed, too")
    parser.add_argument("--any-commit", action="store_true", help="count the runs of other commits as done, too")
    parser.add_argument("--table", action="store_true", help="print the table of what is done, and run nothing")
    options = parser.parse_args(arguments)
    options.sessions = list(dict.fromkeys(options.sessions or SESSIONS))
    options.repo, options.out = options.repo.resolve(), options.out.resolve()
    if not 1 <= options.runs <= 10_000:
        parser.error(f"--runs must be an integer in 1..10000, got {options.runs}")
    if options.out.is_relative_to(options.repo):
        parser.error(f"--out must be outside of {options.repo}: what is written there would change the tested tree")
    return options


def main(arguments: list[str] | None = None) -> int:
    options, stop = parse(arguments), Stop()
    try:
        commit = tested_commit(options.repo, options.allow_dirty)
        state = State(options.out)
        if not options.table:
            check_sessions(options.nox, options.repo, options.sessions)
            repeat(options, state, commit, stop)
    except (Refused, OSError) as reason:
        print(f"repeat_sessions.py: {reason}", file=sys.stderr)
        return 2
    except Stopped:
        print("stopped; the run in progress is not recorded, the same command goes on", file=sys.stderr)
        return 128 + (stop.received or 0)
    own = [each for each in chosen(options, state, commit) if each["session"] in options.sessions]
    print(table(own, options.sessions, options.runs))
    return int(any(each["code"] != 0 for each in own))


if __name__ == "__main__":
    sys.exit(main())
