"""The tests do not depend on the user's shell: the checks of this file hold again where everything is set oddly."""

import argparse
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
ODD = {
    "CI": "true",
    "COLUMNS": "20",
    "LINES": "3",
    "FORCE_COLOR": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONOPTIMIZE": "",
    "PYTHONIOENCODING": "ascii",
    "JAX_DEBUG_NANS": "1",
    "JAX_DISABLE_JIT": "1",
    "MPLBACKEND": "none",
    "PONDERNET_CACHE": "/nowhere",
    "HOME": "/nowhere",
    "XDG_CACHE_HOME": "/nowhere",
    "XDG_CONFIG_HOME": "/nowhere",
    "TZ": "Asia/Kathmandu",
}
INHERITED = {"CI", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TZ", "COLUMNS", "PYTHONOPTIMIZE"}


def test_variables_of_the_shell_do_not_arrive():
    assert {name for name in ODD.keys() - INHERITED if name in os.environ} == set()
    assert os.environ["COLUMNS"] == "80" and os.environ["JAX_PLATFORMS"]


def test_help_has_80_columns():
    parser = argparse.ArgumentParser(prog="x", description="word " * 100)
    assert max(map(len, parser.format_help().splitlines())) in range(70, 80)


def test_hypothesis_has_no_clock_and_no_memory():
    default = hypothesis.settings.default
    assert default is not None and default.deadline is None and default.derandomize and default.database is None
    assert hypothesis.HealthCheck.too_slow in default.suppress_health_check
    assert ROOT not in hypothesis.configuration.storage_directory("examples").path.parents


@pytest.mark.parametrize("number", [1, 2])
def test_every_test_starts_with_the_same_draws(number):
    assert (random.random(), np.random.random()) == (0.8444218515250481, 0.5488135039273248)  # noqa: NPY002


def test_matplotlib_is_quiet_where_the_home_cannot_be_written():
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-c", "import matplotlib.pyplot"], env=os.environ | {"HOME": "/nowhere"}, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_signals_reach_programs_that_a_test_starts():
    """A shell without job control has its background jobs ignore SIGINT, and what they start inherits that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        code = f"import os; os.kill(os.getpid(), {number})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True)
        assert done.returncode == -number


@pytest.mark.skipif("PONDERNET_TESTS_AGAIN" in os.environ, reason="this is that process")
def test_all_of_this_in_an_odd_shell():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    again = {"PONDERNET_TESTS_AGAIN": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT TERM; exec "$@"', "sh", *words],
        env=environment | ODD | again,
        cwd=ROOT,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout.decode()
