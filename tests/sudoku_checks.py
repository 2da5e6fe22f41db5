"""What a backend must do for the Sudoku task. Shared by the tests of both backends."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from task_helpers import ROOT, contents, inside, records, refused

from tasks.sudoku.__main__ import main
from tasks.sudoku.settings import PRESETS, SudokuConfig
from tasks.sudoku.task import Sudoku

TINY = ["--preset", "smoke", "--updates", "60", "--log-every", "20", "--eval-every", "30", "--checkpoint-every", "20"]
TINY += ["--eval-examples", "100", "--batch-size", "8"]


def sudoku(*arguments: object, cwd: Path) -> str:
    """What `python -m tasks.sudoku` prints, which must end well."""
    done = inside(*arguments, cwd=cwd, main=main)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_smoke_learns(backend: str, folder: Path) -> None:
    """The smoke preset fills in few blanks; the run has its figures, and notes its network without the machine's path.

    The run stays in `folder` for the checks that follow.
    """
    said = sudoku("--preset", "smoke", "--backend", backend, "--out", "run", cwd=folder)
    assert "--model" not in said  # the task brings its network
    kept = records(folder / "run")
    assert kept[0]["update"] == 0 and kept[0]["accuracy"] < 0.1
    assert kept[-1]["split"] == "test" and kept[-1]["accuracy"] > 0.8
    assert [level[0] for level in kept[-1]["levels"]] == [4, 5, 6]
    assert {path.name for path in (folder / "run" / "figures").iterdir()} >= {"learning.png", "difficulty.png"}
    noted = json.loads((folder / "run" / "config.json").read_text())["network"]["model"]
    assert noted["name"] == f"tasks/sudoku/model_{backend}.py:build"
    assert (noted["outputs"], noted["output"], noted["answers"]) == (4, "classes", [16])


def check_evaluation(backend: str, folder: Path) -> None:
    """Other blanks and more steps than in training, and answers as in use; the other backend's network is refused."""
    flags = ["--blanks", "9", "--max-steps", "7", "--examples", "60", "--policy", "quantile", "--record"]
    sudoku("--evaluate", "run", *flags, cwd=folder)
    (kept,) = [json.loads(line) for line in (folder / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert [level[:2] for level in kept["levels"]] == [[9, 60]]
    assert len(kept["step_share"]) == 7
    assert kept["policy"]["name"] == "quantile" and 1 <= kept["policy"]["steps"] <= 7
    other = "torch" if backend == "jax" else "jax"
    for flags in (["--evaluate", "run"], ["--out", "run", "--resume"]):
        sentence = refused(inside(*flags, "--backend", other, cwd=folder, main=main))
        assert f"model_{other}.py" in sentence and f"model_{backend}.py" in sentence


def check_changed_code(backend: str, folder: Path) -> None:
    """The task's network may get another comment, not other parameters."""
    file = Path("tasks") / "sudoku" / f"model_{backend}.py"
    text = (ROOT / file).read_text(encoding="utf-8")
    (folder / file).parent.mkdir(parents=True)
    with mock.patch("tasks.own_network.ROOT", folder):
        (folder / file).write_text(text + "# a comment\n", encoding="utf-8")
        sudoku("--evaluate", "run", "--examples", "10", cwd=folder)
        (folder / file).write_text(text.replace("WIDTH = 48", "WIDTH = 40"), encoding="utf-8")
        assert "does not fit the run's model" in refused(inside("--evaluate", "run", cwd=folder, main=main))


def check_loaded(folder: Path, load: Callable, build: Callable, to_input: Callable[[np.ndarray], Any]) -> None:
    """`load` gives the network whose accuracy the run noted; it is saved and loaded again, and predicts."""
    net = load(folder / "run", build=build)
    preset = SudokuConfig(**PRESETS["smoke"])
    (batch,) = Sudoku(preset).evaluation("test", 512)
    cells = to_input(batch.inputs)
    out = net(cells)
    y_hat, p = np.asarray(out.y_hat), np.exp(np.asarray(out.log_p, np.float64))
    assert y_hat.shape == (4, 512, 16, 4)
    right = (y_hat.argmax(axis=-1) == batch.targets).all(axis=-1)
    assert abs((p * right).sum(axis=0).mean() - records(folder / "run")[-1]["accuracy"]) < 1e-4
    net.save(folder / "saved")
    again = load(folder / "saved", build=build)
    assert np.array_equal(np.asarray(again(cells).y_hat), y_hat)
    found = again.predict(cells, policy="quantile", q=0.5)
    steps = np.asarray(found.steps)
    assert steps.min() >= 1 and steps.max() <= 4
    answers = np.take_along_axis(y_hat, steps[None, :, None, None] - 1, axis=0)[0]
    assert np.abs(np.asarray(found.y_hat) - answers).max() < 1e-4


def check_resume_is_exact(backend: str, folder: Path) -> None:
    """A run that lost its last checkpoint, as if killed, and one that was stopped, are brought to the same bytes."""
    sudoku(*TINY, "--backend", backend, "--out", "whole", cwd=folder)
    shutil.copytree(folder / "whole", folder / "broken")
    (folder / "broken" / "checkpoints" / "update-00000060.safetensors").unlink()
    sudoku("--out", "broken", "--resume", cwd=folder)
    sudoku(*TINY, "--backend", backend, "--out", "stopped", "--stop-at", "30", cwd=folder)
    sudoku("--out", "stopped", "--resume", cwd=folder)
    assert contents(folder / "broken") == contents(folder / "whole")
    assert contents(folder / "stopped") == contents(folder / "whole")
