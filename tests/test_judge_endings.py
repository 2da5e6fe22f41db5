"""How the judge's commands end where something goes wrong: one sentence, an exit code, and nothing lost."""

import os
import signal
import stat
import subprocess
import sys

import pytest

JUDGE, MUTANTS = "ponder_ref.conformance", "ponder_ref.conformance.mutants"
QUICK = ("--backend", "ponder_ref", "--only", "H7", "--examples", "2")


def run(*arguments, module=JUDGE, cwd=None, stdout=subprocess.PIPE, **environment):
    command, given = [sys.executable, "-m", module, *arguments], {**os.environ, **environment}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=cwd, env=given)


def one_sentence(result) -> str:
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of the arguments --backend --new is required"),
        (["--level", "most", *QUICK], "'most'"),
        (["--seed", "x", *QUICK], "'x'"),
        (["--nothing", *QUICK], "--nothing"),
        (["--backend", "ponder_ref", "--new", "a.py"], "not allowed with"),
        ([*QUICK, "a\nb"], "a\\nb"),
        ([*QUICK, "x" * 5000], "xxx...xxx"),
        (["--backend", "no\nsuch" + "y" * 5000], "no\\nsuch"),
    ],
)
def test_bad_flags_get_one_short_sentence(arguments, said):
    result = run(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert said in one_sentence(result) and len(result.stderr) < 500


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--seeds", "x"], ["nobody"], ["--what"]])
def test_bad_flags_of_the_mutants_get_one_sentence(arguments):
    result = run(*arguments, module=MUTANTS)
    assert result.returncode == 2 and one_sentence(result)


def test_an_encoding_without_the_letters_is_no_failure():
    """nan-beyond has a subscript in its description, H8 has letters of its own in a complaint."""
    result = run("nan-beyond", "chunked", module=MUTANTS, PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert "every verdict is right" in result.stdout and result.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(("module", "arguments"), [(JUDGE, QUICK), (MUTANTS, ["missing-name"])])
def test_output_that_cannot_be_written_gets_one_sentence(module, arguments):
    with open("/dev/full", "w") as full:
        result = run(*arguments, module=module, stdout=full)
    assert result.returncode == 2
    assert one_sentence(result) == "cannot write the standard output: no space left on device"


@pytest.mark.parametrize(("module", "arguments"), [(JUDGE, QUICK), (MUTANTS, ["missing-name"])])
def test_a_reader_that_leaves_gets_no_traceback(module, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = run(*arguments, module=module, stdout=writing)
    finally:
        os.close(writing)
    assert result.returncode == 141 and result.stderr == ""


WAITING = """
import os, signal, time
import ponder_ref as _r
from ponder_ref import *
NOT_OFFERED = ("compiled", "vmapped")
ENVIRONMENT = {"float64": {"A_PROCESS_OF_ITS_OWN": "1"}}
def expected_steps(log_p):
    if "A_PROCESS_OF_ITS_OWN" in os.environ:
        with open("child", "w") as file:
            file.write(str(os.getpid()))
        os.rename("child", "child.pid")
        time.sleep(3600)
    return _r.expected_steps(log_p)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_judge_and_its_processes_without_a_traceback(tmp_path, number, code):
    (tmp_path / "waiting.py").write_text(WAITING)
    listening = (  # where the tests run in the background of a shell, SIGINT is ignored and would be here too
        "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "sys.argv = ['judge', '--backend', 'waiting.py', '--only', 'H7'];"
        f"runpy.run_module({JUDGE!r}, run_name='__main__')"
    )
    judge = subprocess.Popen(
        [sys.executable, "-c", listening], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "child.pid").exists():
        assert judge.poll() is None
    child = int((tmp_path / "child.pid").read_text())
    judge.send_signal(number)
    _, errors = judge.communicate()
    assert judge.returncode == code and errors == ""
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_report_is_never_written_over_what_is_no_file(tmp_path):
    fifo, link, kept = tmp_path / "fifo", tmp_path / "link.json", tmp_path / "kept.json"
    os.mkfifo(fifo)
    kept.write_text("mine")
    link.symlink_to(kept)
    for path, kind in ((fifo, "a device"), (link, "a link"), (tmp_path, "a folder")):
        result = run(*QUICK, "--report", str(path))
        assert result.returncode == 2 and f"is {kind}, not a file" in one_sentence(result)
    assert stat.S_ISFIFO(fifo.lstat().st_mode) and link.is_symlink() and kept.read_text() == "mine"


def test_a_report_leaves_other_files_alone(tmp_path):
    mine = tmp_path / "report.json.tmp"
    mine.write_text("mine")
    assert run(*QUICK, "--report", str(tmp_path / "report.json")).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["report.json", "report.json.tmp"] and mine.read_text() == "mine"


def test_a_skeleton_that_cannot_be_written_leaves_nothing(tmp_path):
    """No file may grow beyond 100 bytes: as on a full disk."""
    limited = (
        "import resource, signal, sys, runpy; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); sys.dont_write_bytecode = True;"
        f"sys.argv = ['judge', '--new', 'mine.py']; runpy.run_module({JUDGE!r}, run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 2 and "cannot write mine.py (file too large)" in one_sentence(result)
    assert os.listdir(tmp_path) == []


def test_the_judge_needs_numpy_and_hypothesis_alone():
    """What `[tasks]` installs is not there: reports and sentences do without it."""
    bare = (
        "import runpy, sys; sys.modules |= dict.fromkeys(('msgspec', 'safetensors', 'matplotlib', 'tqdm'));"
        f"sys.argv = ['judge', *{QUICK}]; runpy.run_module({JUDGE!r}, run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "") and "1 of H7 passed" in result.stdout
