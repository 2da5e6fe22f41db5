"""The script that repeats test sessions, with a nox that only notes how it was called: nothing here takes long."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32" or shutil.which("git") is None:
    pytest.skip("the script needs git and process groups", allow_module_level=True)

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "repeat_sessions.py"
# Ends as CODES says, by session and run; with PIPE set it says there that it has begun, and never ends by itself.
FAKE = """
import json, os, pathlib, sys, time
if "--list" in sys.argv:
    print(json.dumps([{"session": name, "name": name} for name in ("test_a", "test_b")]))
    sys.exit(0)
calls = pathlib.Path(os.environ["CALLS"])
before = calls.read_text().splitlines() if calls.exists() else []
words = " ".join(sys.argv[1:])
with calls.open("a") as file:
    print(words, file=file)
print("output of", words)
if "PIPE" in os.environ:
    parent = os.getppid()
    others = [int(word) for word in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    with open(os.environ["PIPE"], "w") as file:
        print(os.getpid(), *(other for other in others if other != os.getpid()), file=file)
    while True:
        time.sleep(60)
if "LEAVES" in os.environ:
    pathlib.Path(os.environ["LEAVES"]).write_text("")
run = f"{sys.argv[-1]} {sum(sys.argv[-1] in call for call in before) + 1}"
sys.exit(json.loads(os.environ.get("CODES", "{}")).get(run, 0))
"""


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false", "-c", "core.hooksPath="]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *who, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


class Proof:
    """A repository with one commit, a fake nox, and a folder for the state."""

    def __init__(self, folder: Path):
        self.folder, self.repo, self.out, self.calls = folder, folder / "repo", folder / "out", folder / "calls"
        self.repo.mkdir()
        (folder / "nox.py").write_text(FAKE)
        git(self.repo, "init", "--quiet")
        self.commit("one")

    def commit(self, content: str) -> None:
        (self.repo / "file").write_text(content)
        git(self.repo, "add", "file")
        git(self.repo, "commit", "--quiet", "--message", content)

    def command(self, *arguments: str) -> list[str]:
        nox = f"{sys.executable} {self.folder / 'nox.py'}"
        given = ["--repo", str(self.repo), "--out", str(self.out), "--nox", nox]
        sessions = [] if arguments[0].startswith("test_") else ["test_a", "test_b"]
        return [sys.executable, str(SCRIPT), *given, *sessions, *arguments]

    def environment(self, **extra: str) -> dict[str, str]:
        return os.environ | {"CALLS": str(self.calls)} | extra

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments), env=self.environment(**extra), capture_output=True, encoding="utf-8"
        )

    def called(self) -> list[str]:
        """How nox was called since the last question."""
        found = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return found

    def records(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "runs.jsonl").read_text().splitlines()]


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    return Proof(tmp_path)


def test_sessions_take_turns_and_half_of_the_runs_are_busy(proof: Proof):
    done = proof.run("--runs", "4")
    assert done.returncode == 0, done.stderr
    assert proof.called() == ["-s test_a", "-s test_b", *["-R -s test_a", "-R -s test_b"] * 3]
    kept = proof.records()
    assert [(each["session"], each["number"], each["load"]) for each in kept] == [
        (session, number, load)
        for number, load in enumerate(["idle", "busy"] * 2, 1)
        for session in ("test_a", "test_b")
    ]
    assert {each["code"] for each in kept} == {0} and {each["log"] for each in kept} == {None}
    assert all(len(each["commit"]) == 40 and each["seconds"] >= 0 and each["time"] for each in kept)
    assert list((proof.out / "logs").iterdir()) == []
    rows = [line.split()[:5] for line in done.stdout.splitlines()[-4:]]
    assert rows == [[name, load, "2", "0", "0"] for name in ("test_a", "test_b") for load in ("idle", "busy")]


def test_what_is_done_is_not_done_again(proof: Proof):
    assert proof.run("--runs", "1").returncode == 0 and len(proof.called()) == 2
    assert proof.run("--runs", "1").returncode == 0 and proof.called() == []
    assert proof.run("--runs", "2").returncode == 0
    assert proof.called() == ["-R -s test_a", "-R -s test_b"]
    with (proof.out / "runs.jsonl").open("a") as file:
        file.write('{"session": "test_a", "numb')  # of a process that was killed
    assert proof.run("--runs", "3").returncode == 0 and len(proof.called()) == 2
    assert len(proof.records()) == 6


def test_another_commit_starts_from_zero_unless_told_otherwise(proof: Proof):
    assert proof.run("--runs", "1").returncode == 0 and len(proof.called()) == 2
    proof.commit("two")
    assert proof.run("--runs", "1", "--any-commit").returncode == 0 and proof.called() == []
    assert proof.run("--runs", "1").returncode == 0
    assert proof.called() == ["-s test_a", "-s test_b"]  # installs again
    assert len({each["commit"] for each in proof.records()}) == 2


def test_failures_are_kept_and_end_with_exit_code_1(proof: Proof):
    codes = json.dumps({"test_a 1": 7, "test_b 2": 1})
    done = proof.run("--runs", "2", CODES=codes)
    assert done.returncode == 1
    assert proof.called() == ["-s test_a", "-s test_b", "-s test_a", "-R -s test_b"]  # what failed is installed again
    failed = [each for each in proof.records() if each["code"]]
    assert [(each["session"], each["number"], each["code"]) for each in failed] == [("test_a", 1, 7), ("test_b", 2, 1)]
    assert [Path(each["log"]).read_text() for each in failed] == ["output of -s test_a\n", "output of -R -s test_b\n"]
    assert all(each["log"] in done.stdout.splitlines()[-2:][k] for k, each in enumerate(failed))
    assert proof.run("--runs", "2").returncode == 1 and proof.called() == []
    shown = proof.run("--runs", "3", "--table")
    assert shown.returncode == 1 and proof.called() == []
    assert [line.split()[:5] for line in shown.stdout.splitlines()[1:3]] == [
        ["test_a", "idle", "0", "1", "1"],
        ["test_a", "busy", "1", "0", "0"],
    ]


def test_a_tree_that_is_not_committed_is_refused(proof: Proof):
    (proof.repo / "new").write_text("")
    done = proof.run("--runs", "1")
    assert done.returncode == 2 and proof.called() == []
    assert "has 1 changed or unknown files, the first is new: commit them" in done.stderr
    assert proof.run("--runs", "1", "--allow-dirty").returncode == 0 and len(proof.called()) == 2
    assert all(each["commit"].endswith("-dirty") for each in proof.records())


def test_a_run_that_changes_the_tree_is_not_recorded(proof: Proof):
    done = proof.run("--runs", "1", LEAVES=str(proof.repo / "left"))
    assert done.returncode == 2 and "the first is left" in done.stderr
    assert proof.records() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["test_c"], "there is no session 'test_c': nox -l lists them"),
        (["--runs", "0"], "--runs must be an integer in 1..10000, got 0"),
        (["--nox", "/nowhere/nox"], "gives no list of sessions: is nox installed?"),
        (["--out", "REPO/out"], "--out must be outside of REPO"),
        (["--repo", "/nowhere"], "git rev-parse failed in /nowhere"),
    ],
)
def test_what_cannot_be_is_refused(proof: Proof, arguments: list[str], said: str):
    done = proof.run(*(word.replace("REPO", str(proof.repo)) for word in arguments))
    assert done.returncode == 2 and proof.called() == []
    assert said.replace("REPO", str(proof.repo)) in done.stderr


@pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(), reason="processes are looked up in /proc"
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_everything_and_the_run_is_not_recorded(proof: Proof, number: int, busy: bool):
    if busy:
        assert proof.run("--runs", "1").returncode == 0
    finished = len(proof.records()) if busy else 0
    pipe = proof.folder / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = subprocess.Popen(
        proof.command("--runs", "2"),
        env=proof.environment(PIPE=str(pipe)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not select.select([reading], [], [], 0.1)[0]:
        assert script.poll() is None, script.communicate()
    with os.fdopen(reading, "rb") as file:
        os.set_blocking(file.fileno(), True)
        processes = [int(word) for word in file.readline().split()]
    assert len(processes) == 1 + busy * len(os.sched_getaffinity(0))
    script.send_signal(number)
    _, errors = script.communicate()
    assert script.returncode == 128 + number and b"the run in progress is not recorded" in errors
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert len(proof.records()) == finished
    proof.called()
    assert proof.run("--runs", "2").returncode == 0 and len(proof.called()) == 4 - finished


def test_two_do_not_write_to_one_state(proof: Proof):
    import fcntl

    proof.out.mkdir()
    with (proof.out / "runs.jsonl").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = proof.run("--runs", "1")
    assert done.returncode == 2 and "another process is writing to" in done.stderr
