"""What a backend must do under `tasks`: learn, resume to the same bytes. Shared by the tests of both backends."""

import json
from pathlib import Path

import numpy as np
from task_helpers import TINY, contents, parity, records


def check_smoke_learns(backend: str, folder: Path) -> None:
    """The smoke preset solves four bits, and the metrics agree with what was trained on."""
    done = parity("--preset", "smoke", "--backend", backend, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    kept = records(folder / "run")
    assert kept[0]["update"] == 0 and kept[0]["accuracy"] < 0.7
    assert kept[-1]["split"] == "test" and kept[-1]["accuracy"] > 0.95
    assert abs(kept[-1]["sampled_accuracy"] - kept[-1]["accuracy"]) < 0.05
    assert abs(kept[-1]["sampled_steps"] - kept[-1]["expected_steps"]) < 0.5
    assert {record["backend"] for record in map(json.loads, (folder / "run" / "sessions.jsonl").open())} == {backend}


def check_resume_is_exact(backend: str, folder: Path, *settings: str) -> None:
    """Interrupted once and resumed, the run's files are those of the unbroken one."""
    start = [*TINY, "--backend", backend, *settings]
    whole = parity(*start, "--out", "whole", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    for name, keep in (("late", 80), ("early", 40)):
        # A run that was killed after `keep`: later checkpoints are gone, metrics may have gone on.
        broken = folder / name
        done = parity(*start, "--out", name, cwd=folder)
        assert done.returncode == 0, done.stderr
        for path in (broken / "checkpoints").iterdir():
            if path.stem != f"update-{keep:08d}":
                path.unlink()
        if keep == 40:
            assert not list((broken / "checkpoints").iterdir())  # it starts anew, from config.json alone
        again = parity("--out", name, "--resume", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert contents(broken) == contents(folder / "whole")


def check_methods(backend: str, folder: Path) -> None:
    """Every method trains and is measured with its own number of steps."""
    lengths = {"act": 5, "repeat": 5, "once": 1}
    for method, steps in lengths.items():
        done = parity(*TINY, "--backend", backend, "--method", method, "--out", method, cwd=folder)
        assert done.returncode == 0, done.stderr
        kept = records(folder / method)
        assert len(kept[-1]["step_share"]) == steps
        train = [record for record in kept if record["kind"] == "train"][-1]
        assert np.isfinite(train["loss"])
        assert train["forward_passes"] <= 120 * steps
    assert kept[-1]["forward_passes"] == 120


def check_more_steps_than_trained(backend: str, folder: Path) -> None:
    done = parity(*TINY, "--backend", backend, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = parity("--evaluate", "run", "--max-steps", "12", "--draws", "3", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "N = 12" in done.stdout
