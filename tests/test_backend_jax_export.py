"""Runs exported to StableHLO: read and run by a process that knows JAX and nothing of this project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flatbuffers")
pytest.importorskip("safetensors")

import export_checks as checks
from export_checks import EXITS, SEED, export
from task_helpers import refused

from ponder_ref.exits import POLICIES
from ponder_ref.runtime.errors import Refused
from tasks.export import stablehlo
from tasks.export.policy import Exit

# Answers requests, one a line: a file, the arguments and where the results go; and keeps the programs it has read.
SERVER = """
import json, sys
import numpy as np
from jax import export

programs = {}
for line in sys.stdin:
    file, arguments, results = json.loads(line)
    if file not in programs:
        with open(file, "rb") as opened:
            programs[file] = export.deserialize(bytearray(opened.read()))
    with np.load(arguments) as given:
        answers = programs[file].call(*(given[name] for name in sorted(given)))
    np.savez(results, *answers)
    print(any(name.startswith(("ponder_", "tasks")) for name in sys.modules), flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    """The fresh process; its path has nothing of this repository."""
    folder = tmp_path_factory.mktemp("server")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=folder, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process, folder
    process.communicate()


def runner(server, file: Path, exit: Exit) -> checks.Runner:
    process, folder = server

    def run(x: np.ndarray, ids: np.ndarray):
        words = [np.array([SEED & 0xFFFFFFFF, SEED >> 32], np.uint32), ids.astype(np.uint32)]
        np.savez(folder / "given.npz", x, *(words if exit.policy == "sample" else []))
        request = [str(file), str(folder / "given.npz"), str(folder / "results.npz")]
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "False\n", "the process failed, or has loaded this project"
        with np.load(folder / "results.npz") as found:
            y_hat, steps, iterations = (found[name] for name in sorted(found))
        return y_hat, steps, int(iterations)

    return run


@pytest.mark.parametrize("exit", EXITS.values(), ids=EXITS)
def test_a_fresh_process_answers_as_the_unroll(exit: Exit, server, tmp_path: Path):
    folder = checks.make_run(tmp_path / "run")
    file = tmp_path / "run.stablehlo"
    done = export(folder, "--format", "stablehlo", "--out", file, *checks.flags(exit))
    assert done.returncode == 0, done.stderr
    run = runner(server, file, exit)
    checks.check_answers(run, exit)
    if exit.policy == "sample":  # each batch size compiles again
        checks.check_iterations(run, exit)


def test_mass_left_at_the_last_step(server, tmp_path: Path):
    """N so small that mass is left: the cut of H2."""
    exit = Exit("expected", 4, epsilon=0.05, remainder="last")
    file = tmp_path / "last.stablehlo"
    file.write_bytes(stablehlo.write(checks.MODEL, checks.parameters(), exit, {}))
    x, ids = checks.inputs(50), np.arange(50)
    y_hat, steps, _ = runner(server, file, exit)(x, ids)
    right = checks.right_answers(*checks.unroll(checks.parameters(), x, exit.max_steps), ids, exit)
    np.testing.assert_array_equal(steps, right.steps)
    np.testing.assert_allclose(y_hat, right.y_hat, rtol=1e-5, atol=2e-5)


def test_the_file_has_a_while_loop_and_a_description(tmp_path: Path):
    from jax import export as jax_export

    folder, file = checks.make_run(tmp_path / "run"), tmp_path / "run.stablehlo"
    assert export(folder, "--format", "stablehlo", "--out", file).returncode == 0
    read = jax_export.deserialize(bytearray(file.read_bytes()))
    assert read.mlir_module().count("stablehlo.while") == 1
    beside = json.loads((tmp_path / "run.stablehlo.json").read_text(encoding="utf-8"))
    assert beside["platforms"] == list(read.platforms) and beside["policy"]["name"] == "sample"
    for ports, found in ((beside["inputs"], read.in_avals), (beside["outputs"], read.out_avals)):
        shapes = [[axis if isinstance(axis, int) else str(axis) for axis in each.shape] for each in found]
        assert [(each["dtype"], each["shape"]) for each in ports] == [
            (each.dtype.name, shape) for each, shape in zip(found, shapes, strict=True)
        ]


def test_the_example_of_the_docs_runs(tmp_path: Path):
    checks.run_example("stablehlo", tmp_path)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = checks.make_run(tmp_path / "run")
    monkeypatch.setattr("tasks.export.__main__.find_spec", lambda name: None if name == "flatbuffers" else name)
    done = export(folder, "--format", "stablehlo", "--out", tmp_path / "no")
    assert "needs 'flatbuffers', which is not installed: pip install -e '.[jax,tasks,export]'" in refused(done)


def test_a_policy_that_the_exporter_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.export.policy.POLICIES", (*POLICIES, "newest"))
    with pytest.raises(Refused, match="--policy newest cannot be exported to stablehlo; what can be is sample, "):
        stablehlo.write(checks.MODEL, checks.parameters(), Exit("newest", 3), {})
    assert set(stablehlo.POLICIES) <= set(POLICIES)
