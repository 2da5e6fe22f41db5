"""How a training ends: by a signal at any moment, on purpose (--stop-at), and where its output cannot be written."""

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, command, contents, environment, inside, parity, refused

from ponder_ref.runtime.errors import Refused, on_one_line, shell_word
from tasks.batches import stretches
from tasks.command import stop_update
from tasks.parity import ParityConfig
from tasks.progress import Careful, progress

OWN = ["--backend", "numpy_trainer"]
START = [*TINY, *OWN]
NUMBERS = [signal.SIGINT, signal.SIGTERM]
NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
full_disk = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    done = inside(*START, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def sessions(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "sessions.jsonl").read_text(encoding="utf-8").splitlines()]


def shadowed(folder: Path, module: str, number: int) -> dict[str, str]:
    """The environment in which importing a module sends the process a signal."""
    (folder / "shadow").mkdir()
    text = f"import os\nos.kill(os.getpid(), {int(number)})\n"
    (folder / "shadow" / f"{module}.py").write_text(text, encoding="ascii")
    return {"PYTHONPATH": os.pathsep.join([str(folder / "shadow"), environment()["PYTHONPATH"]])}


def redirected(where: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    """The command with its streams as the shell's words say."""
    words = ["sh", "-c", f'exec "$@" {where}', "sh", *command(*arguments)]
    return subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_figures_are_drawn(number: int, unbroken: Path, tmp_path: Path):
    done = parity(*START, "--out", "run", cwd=tmp_path, **shadowed(tmp_path, "matplotlib", number))
    assert done.returncode == 128 + number, done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith(f"{NAMES[signal.Signals(number)]}, everything is saved; go on with: python -m tasks.p")
    assert "--out run --resume" in sentence and "Traceback" not in done.stderr
    assert inside("--out", "run", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert contents(tmp_path / "run") == contents(unbroken)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("module", ["tasks.parity", "tasks.babi.download", "benchmarks", "benchmarks.peers"])
def test_a_signal_while_modules_are_imported(module: str, number: int, tmp_path: Path):
    done = parity(*START, cwd=tmp_path, module=module, **shadowed(tmp_path, "numpy", number))
    sentence = f"{NAMES[signal.Signals(number)]} before anything was done: give the command again\n"
    assert (done.returncode, done.stderr) == (128 + number, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["shadow"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_the_backend_is_imported(number: int, tmp_path: Path):
    place = shadowed(tmp_path, "other_trainer", number)
    done = parity(*TINY, "--backend", "other_trainer", "--out", "run", cwd=tmp_path, **place)
    sentence = f"{NAMES[signal.Signals(number)]} before the training began: give the command again\n"
    assert (done.returncode, done.stderr) == (128 + number, sentence)
    assert not (tmp_path / "run").exists()


@full_disk
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_training_does_not_end_with_its_log(where: str, unbroken: Path, tmp_path: Path):
    done = redirected(where, *START, "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("accuracy" in done.stdout) == (">&- 2" not in where)
    assert contents(tmp_path / "run") == contents(unbroken)


@full_disk
def test_a_summary_that_cannot_be_written_is_said_after_all_is_saved(unbroken: Path, tmp_path: Path):
    done = redirected(">/dev/full", *START, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    *_, sentence = done.stderr.splitlines()
    assert sentence == "everything is saved in run, but the summary cannot be written: no space left on device"
    assert contents(tmp_path / "run") == contents(unbroken)
    # The name of a folder that was not given is the first thing to be written.
    done = redirected(">/dev/full", *START, "--updates", "40", cwd=tmp_path)
    assert done.returncode == 2 and "everything is saved in runs/parity" in done.stderr.splitlines()[-1]


@full_disk
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_other_output_that_cannot_be_written_gets_one_sentence(unbuffered: str, unbroken: Path):
    words = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *command("--evaluate", unbroken, *OWN)]
    place = environment(PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run(words, cwd=unbroken.parent, env=place, capture_output=True, text=True)
    assert refused(done) == "cannot write the output: no space left on device"


class Full:
    """A terminal that takes a few letters, then fails."""

    encoding = "utf-8"

    def __init__(self, room: int):
        self.room = room

    def write(self, text: str) -> None:
        self.room -= len(text)
        if self.room < 0:
            raise OSError(28, "no space left on device")

    def flush(self) -> None:
        if self.room < 0:
            raise OSError(28, "no space left on device")

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError(25, "not a terminal")


@pytest.mark.parametrize("room", [0, 1, 50, 200])
def test_a_bar_on_a_terminal_that_fails_goes_on(room: int):
    pytest.importorskip("tqdm")
    record = {"update": 10, "split": "valid", "loss": 1.0, "accuracy": 0.5, "expected_steps": 2.0}
    show = progress(100, 0, Full(room))  # type: ignore[arg-type]
    for update in range(10, 110, 10):
        show.advance(update)
        show.logged(record | {"update": update})
        show.evaluated(record)
    show.close()
    assert Careful(None).isatty() is False


def test_stop_at_ends_there_and_the_run_goes_on_to_the_same_bytes(unbroken: Path, tmp_path: Path):
    done = inside(*START, "--out", "run", "--stop-at", "60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("stopped at update 60, everything is saved; go on with: python -m ")
    assert "--out run --resume" in done.stdout
    assert (tmp_path / "run" / "checkpoints" / "update-00000060.safetensors").exists()
    whole, stopped = (folder / "metrics.jsonl" for folder in (unbroken, tmp_path / "run"))
    assert whole.read_bytes().startswith(stopped.read_bytes())
    assert json.loads(stopped.read_text(encoding="utf-8").splitlines()[-1])["update"] == 60
    assert b"stop" not in (tmp_path / "run" / "config.json").read_bytes()
    # On the way it may stop again, where nothing else falls.
    again = inside("--out", "run", "--resume", "--stop-at", "110", *OWN, cwd=tmp_path)
    assert again.returncode == 0 and "stopped at update 110" in again.stdout, again.stderr
    last = inside("--out", "run", "--resume", *OWN, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert [(one["from"], one["to"], one["outcome"]) for one in sessions(tmp_path / "run")] == [
        (0, 60, "stopped"),
        (60, 110, "stopped"),
        (110, 120, "finished"),
    ]
    assert contents(tmp_path / "run") == contents(unbroken)


def test_stop_at_the_last_update_leaves_the_test(unbroken: Path, tmp_path: Path):
    assert inside(*START, "--out", "run", "--stop-at", "120", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "run" / "figures").exists() or not any((tmp_path / "run" / "figures").iterdir())
    assert inside("--out", "run", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert contents(tmp_path / "run") == contents(unbroken)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "--stop-at must be an integer in 1..120, got 0"),
        ("121", "--stop-at must be an integer in 1..120, got 121"),
        ("some", "got 'some'"),
        ("57", "it can be 50 or 60"),
        ("3", "it can be 10"),
        ("--", "--stop-at needs a value"),
    ],
)
def test_stop_at_is_refused_where_a_run_cannot_stop(value: str, words: str, tmp_path: Path):
    assert words in refused(inside(*START, "--out", "run", f"--stop-at={value}", cwd=tmp_path))
    assert not (tmp_path / "run").exists()


def test_stop_at_is_refused_behind_the_run_and_at_an_evaluation(unbroken: Path, tmp_path: Path):
    before = contents(unbroken)
    sentence = refused(inside("--out", unbroken, "--resume", "--stop-at", "60", *OWN, cwd=tmp_path))
    assert "is at update 120 already" in sentence
    assert "--stop-at" in refused(inside("--evaluate", unbroken, "--stop-at", "60", *OWN, cwd=tmp_path))
    assert contents(unbroken) == before


def test_every_end_of_a_chunk_can_be_stopped_at():
    """What --stop-at takes are the ends of the stretches, no others."""
    config = ParityConfig(updates=47, chunk=7, log_every=10, eval_every=9, checkpoint_every=20)
    taken = []
    for update in range(1, 48):
        with contextlib.suppress(Refused):
            taken.append(stop_update(Namespace(stop_at=str(update)), config))
    assert taken == [last for _, last in stretches(0, 47, *config.periods)]


def test_the_time_of_a_session_does_not_depend_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clock that is set back by a day meanwhile."""
    times = itertools.chain([2e9], itertools.repeat(2e9 - 86400))
    clocks = {"monotonic": time.monotonic, "process_time": time.process_time}
    monkeypatch.setattr("tasks.loop.time", SimpleNamespace(time=lambda: next(times), **clocks))
    assert inside(*START, "--updates", "40", "--out", "run", cwd=tmp_path).returncode == 0
    (session,) = sessions(tmp_path / "run")
    assert session["seconds"] >= 0 and session["began"] == 2e9


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash to read the command again")
def test_a_folder_s_name_with_line_breaks_is_said_on_one_line(tmp_path: Path):
    name = "a\nb\x1b[31m it's"
    done = inside(*START, "--out", name, "--stop-at", "60", cwd=tmp_path)
    sentence = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and "\x1b" not in sentence
    words = sentence.partition("go on with: ")[2]
    spoken = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert name in spoken.stdout.split("\0")
    sentence = refused(inside(*START, "--out", name, cwd=tmp_path))
    assert on_one_line(name) in sentence
    assert shlex.split(shell_word("a b'c")) == ["a b'c"]


@pytest.mark.parametrize("flag", ["--backend", "--preset", "--updates", "--method", "--bits", "--dtype", "--seed"])
def test_long_values_are_shortened_and_line_breaks_quoted(flag: str, tmp_path: Path):
    sentence = refused(inside(*START, flag, "x" * 5000, "--out", "run", cwd=tmp_path))
    assert flag in sentence and len(sentence) < 400 and "x" * 50 in sentence
    sentence = refused(inside(*START, flag, "x\ny", "--out", "run", cwd=tmp_path))
    assert "x\\ny" in sentence


def test_long_paths_are_shortened(tmp_path: Path):
    for flags in (["--out", "y" * 5000], ["--evaluate", "y " * 5000], ["--start", "y" * 6000, "--out", "run"]):
        words = [*OWN] if "--evaluate" in flags else START
        sentence = refused(inside(*words, *flags, cwd=tmp_path))
        assert len(sentence) < 600 and "more characters" in sentence, flags


@pytest.mark.parametrize("flag", ["--updates", "--out", "--backend", "--checkpoint"])
def test_two_dashes_are_no_value(flag: str, tmp_path: Path):
    assert refused(inside(*START, f"{flag}=--", cwd=tmp_path)) == f"{flag} needs a value, got '--'"
    assert list(tmp_path.iterdir()) == []


def test_the_commands_of_a_process_start_without_signals_taken():
    """Importing `tasks` as a library leaves the signals alone."""
    code = "import signal, tasks; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_a_module_of_somebody_else_keeps_its_signals(tmp_path: Path):
    """`python -m other`, whose package imports `tasks`."""
    package = tmp_path / "other"
    package.mkdir()
    (package / "__init__.py").write_text("import tasks\n", encoding="ascii")
    (package / "__main__.py").write_text(
        "import signal\nprint(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)\n", encoding="ascii"
    )
    words = [sys.executable, "-m", "other", "tasks.parity"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_a_command_may_run_in_a_thread(tmp_path: Path):
    """No other thread than the first can take signals."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(inside, *START, "--updates", "40", "--out", "run", cwd=tmp_path).result()
    assert done.returncode == 0 and (tmp_path / "run" / "figures").is_dir()
