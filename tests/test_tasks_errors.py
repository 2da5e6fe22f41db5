"""How commands end: one sentence, an exit code, and no traceback for want of a letter, a reader or a name."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from task_helpers import command, environment, inside, refused

from ponder_ref.runtime.errors import Diverged, Interrupted, Refused, one_sentence
from tasks import figures

# Where the terminal has ASCII alone.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PRINTS = (
    "import sys; from ponder_ref.runtime.errors import one_sentence; "
    "sys.exit(one_sentence(lambda: print('\\u03b2') or 0)())"
)
LONG = "x" * 300


def test_commands_end_in_one_sentence_and_their_exit_code(capsys: pytest.CaptureFixture):
    def end(error: BaseException | None) -> int:
        if error is not None:
            raise error
        return 7

    main = one_sentence(end)
    for error, code in ((None, 7), (Refused("no"), 2), (Diverged("no"), 1), (Interrupted("no", 15), 143)):
        assert main(error) == code
        assert capsys.readouterr().err == ("" if error is None else "no\n")
    assert main(KeyboardInterrupt()) == 130 and capsys.readouterr().err == "interrupted\n"
    with pytest.raises(ZeroDivisionError):  # a fault of the program is no refusal
        main(ZeroDivisionError())


def test_what_the_system_refuses_is_named(capsys: pytest.CaptureFixture):
    def end(name: str | None) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), name)

    assert one_sentence(end)("there") == 2
    assert capsys.readouterr().err == "cannot use there: permission denied\n"
    with pytest.raises(PermissionError):
        one_sentence(end)(None)


@pytest.mark.parametrize(
    "arguments",
    [["--out", LONG], ["--out", LONG, "--resume"], ["--evaluate", LONG], ["--start", LONG, "--out", "run"]],
    ids=lambda value: value[0] + value[-1][:9],
)
def test_names_that_are_too_long_get_one_sentence(arguments: list[str], tmp_path: Path):
    pytest.importorskip("safetensors")
    sentence = refused(inside(*arguments, "--backend", "numpy_trainer", cwd=tmp_path))
    assert LONG in sentence and "file name too long" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_a_name_that_is_too_long_is_not_drawn(tmp_path: Path):
    sentence = refused(inside(LONG, "--out", "x", cwd=tmp_path, main=figures.main))
    assert LONG in sentence and "file name too long" in sentence


@pytest.mark.parametrize("place", [PLAIN, {"PYTHONIOENCODING": "cp1252"}], ids=["ASCII", "cp1252"])
def test_letters_that_the_terminal_lacks_end_nothing(place: dict[str, str], tmp_path: Path):
    settings = {"cwd": tmp_path, "env": environment(**place), "capture_output": True}
    done = subprocess.run([sys.executable, "-c", PRINTS], **settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?" in done.stdout
    done = subprocess.run(command("--help"), **settings)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [["-c", PRINTS], ["-m", "tasks.parity", "--help"]], ids=["prints", "--help"])
def test_a_reader_that_leaves_gets_no_trace(arguments: list[str], tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode in ((141,) if arguments[0] == "-c" else (0, 141))  # argparse may not mind


def test_a_command_without_any_output_ends(tmp_path: Path):
    words = [sys.executable, "-c", PRINTS]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *words], cwd=tmp_path, env=environment())
    assert done.returncode == 0
