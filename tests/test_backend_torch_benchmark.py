"""The benchmark of serving runs on torch and says what it measured."""

import subprocess
import sys

from benchmark_checks import ROOT, check_babi, check_inference, check_refused


def test_inference(tmp_path):
    check_inference("torch", tmp_path / "out")


def test_a_wrong_option_is_refused():
    check_refused("--examples", "10", "--slots", "4", said="--examples must be a multiple of --slots, got 10 and 4")
    check_refused("--networks", "rnn,cnn", said="must be some of rnn, transformer")
    check_refused("--preset", "quick", said="--preset must be one of default, smoke", benchmark="babi")


def test_the_example_server_answers_and_draws(tmp_path):
    command = [sys.executable, str(ROOT / "docs" / "serving.py"), "--requests", "40", "--out", str(tmp_path / "s.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all answered after") == 2
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_babi():
    check_babi("torch")
