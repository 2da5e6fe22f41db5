"""What a backend must do under `tasks`: learn, resume to the same bytes. Shared by the tests of both backends."""

import importlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
from task_helpers import TINY, command, contents, environment, inside, parity, records, refused

import ponder_ref
from ponder_ref.runtime.checkpoint import newest
from tasks.babi import __main__ as babi
from tasks.babi import ship, text
from tasks.babi.generate import generated
from tasks.parity import Parity
from tasks.runs import Run, read_records


def check_smoke_learns(backend: str, folder: Path) -> None:
    """The smoke preset solves four bits, and the sampled numbers are near the expected ones."""
    done = parity("--preset", "smoke", "--backend", backend, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    kept = records(folder / "run")
    assert kept[0]["update"] == 0 and kept[0]["accuracy"] < 0.7
    assert kept[-1]["split"] == "test" and kept[-1]["accuracy"] > 0.95
    assert abs(kept[-1]["sampled_accuracy"] - kept[-1]["accuracy"]) < 0.05
    assert abs(kept[-1]["sampled_steps"] - kept[-1]["expected_steps"]) < 0.5
    (session,) = (folder / "run" / "sessions.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(session)["backend"] == backend


def check_resume_is_exact(backend: str, folder: Path) -> None:
    """A run that lost its last checkpoint, as if killed, is brought to the same bytes by a new process.

    So is one that was ended by --stop-at where nothing else falls.
    """
    whole = parity(*TINY, "--backend", backend, "--out", "whole", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    shutil.copytree(folder / "whole", folder / "broken")
    (folder / "broken" / "checkpoints" / "update-00000120.safetensors").unlink()
    again = parity("--out", "broken", "--resume", cwd=folder)
    assert again.returncode == 0, again.stderr
    sessions = (folder / "broken" / "sessions.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(sessions[-1])["from"] == 80
    assert contents(folder / "broken") == contents(folder / "whole")
    stopped = parity(*TINY, "--backend", backend, "--out", "stopped", "--stop-at", "70", cwd=folder)
    assert stopped.returncode == 0 and "stopped at update 70" in stopped.stdout, stopped.stderr
    again = parity("--out", "stopped", "--resume", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert contents(folder / "stopped") == contents(folder / "whole")


def check_methods(backend: str, folder: Path) -> None:
    """Every method trains and is measured with its own number of steps; N may grow at evaluation."""
    for method, steps in {"act": 5, "repeat": 5, "once": 1, "ponder": 5}.items():
        start = [*TINY, "--updates", "40", "--optimiser", "adam", "--chunk", "10", "--eval-every", "40"]
        done = inside(*start, "--backend", backend, "--method", method, "--out", method, cwd=folder)
        assert done.returncode == 0, done.stderr
        kept = records(folder / method)
        assert len(kept[-1]["step_share"]) == steps
        (train,) = [record for record in kept if record["kind"] == "train"]
        assert np.isfinite(train["loss"])
        assert 30 <= kept[-1]["forward_passes"] <= 40 * steps
    done = inside("--evaluate", "ponder", "--max-steps", "12", "--draws", "3", "--record", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "N = 12" in done.stdout
    (kept,) = read_records(folder / "ponder" / "evaluations.jsonl")
    assert (kept["max_steps"], kept["split"], kept["draws"], len(kept["step_share"])) == (12, "test", 3, 12)


def check_start(backend: str, folder: Path) -> None:
    """A run may begin where another ended; what cannot be begun with is refused, and no folder is left."""
    start = [*TINY, "--updates", "10", "--chunk", "10", "--backend", backend]
    assert inside(*start, "--out", "first", cwd=folder).returncode == 0
    done = inside(*start, "--start", "first", "--out", "second", cwd=folder)
    assert done.returncode == 0, done.stderr
    last = [record for record in records(folder / "first") if record.get("split") == "valid"][-1]
    first = records(folder / "second")[0]
    assert (first["update"], first["loss"], first["accuracy"]) == (0, last["loss"], last["accuracy"])
    for wrong, flags in {"is not a run folder": ["."], "does not fit": ["first", "--hidden", "9"]}.items():
        sentence = refused(inside(*start, "--start", *flags, "--out", "no", cwd=folder))
        assert wrong in sentence and not (folder / "no").exists()


def check_babi(backend: str, folder: Path) -> None:
    """The bAbI command trains on generated stories, ends in table and figures, and its checkpoint is evaluated."""
    small = ["--preset", "smoke", "--tasks", "1", "--updates", "20", "--log-every", "10", "--eval-every", "20"]
    done = parity(*small, "--backend", backend, "--out", "run", cwd=folder, module="tasks.babi")
    assert done.returncode == 0, done.stderr
    assert "of 1 tasks solved, average error" in done.stdout
    assert {path.name for path in (folder / "run" / "figures").iterdir()} >= {"tasks.png", "halting-by-task.png"}
    kept = records(folder / "run")
    assert kept[-1]["split"] == "test" and kept[-1]["loss"] < kept[0]["loss"]
    again = parity("--evaluate", "run", "--split", "valid", cwd=folder, module="tasks.babi")
    assert again.returncode == 0, again.stderr
    last = [record for record in kept if record.get("split") == "valid"][-1]
    assert f"error {100 * (1 - last['levels'][0][2]):.2f} %" in again.stdout
    story = "1 Mary moved to the kitchen.\n2 Where is Mary?\tkitchen\t1\n\nJohn went to the office.\nWhere is John?\n"
    asked = subprocess.run(
        command("--run", "run", module="tasks.babi.ask"),
        cwd=folder,
        env=environment(),
        input=story,
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.count("answer: ") == 2
    chances = [float(line.split()[1]) for line in asked.stdout.splitlines() if line.split()[0].isdecimal()]
    assert len(chances) == 6 and abs(sum(chances) - 2) < 0.01  # three steps for each of two questions
    check_shipped(backend, folder)


def check_rows_that_halt(backend: str, folder: Path) -> None:
    """ut-act: batches that halt after different numbers of steps are counted together; the run can go on."""
    start = ["--preset", "smoke", "--method", "ut-act", "--updates", "20", "--eval-every", "10", "--max-steps", "6"]
    start += ["--checkpoint-every", "10", "--log-every", "10", "--act-epsilon", "0.4", "--learning-rate", "0.01"]
    done = inside(*start, "--backend", backend, "--out", "whole", cwd=folder, main=babi.main)
    assert done.returncode == 0, done.stderr
    for record in records(folder / "whole"):
        if record["kind"] == "eval":
            assert len(record["step_share"]) == len(record["step_accuracy"]) == 6
            assert abs(sum(record["step_share"]) - 1) < 1e-5
    shutil.copytree(folder / "whole", folder / "broken")
    (folder / "broken" / "checkpoints" / "update-00000020.safetensors").unlink()
    again = inside("--out", "broken", "--resume", cwd=folder, main=babi.main)
    assert again.returncode == 0, again.stderr
    assert contents(folder / "broken") == contents(folder / "whole")


def check_shipped(backend: str, folder: Path) -> None:
    """The run is shipped as parameters and a card, whose scores `--evaluate` computes again from the split's files."""
    (folder / "data").mkdir()
    (folder / "data" / "qa1_valid.txt").write_text(text.write(generated(1, "valid", 20, 5, 0), 1), encoding="ascii")
    done = inside("run", "--data-dir", "data", "--out", "shipped", "--backend", backend, cwd=folder, main=ship.main)
    assert done.returncode == 0, done.stderr
    card = json.loads((folder / "shipped" / "card.json").read_text(encoding="utf-8"))
    assert [score["data"] for score in card["scores"]] == ["1 tasks, generated stories", "1 tasks, files of data"]
    (phase,) = card["phases"]
    assert card["updates"] == 20 and card["examples_seen"] == 640 and phase["updates_not_noted"] == 0
    test = [record for record in records(folder / "run") if record.get("split") == "test"][-1]
    assert card["scores"][0]["levels"] == test["levels"]
    whole = next((folder / "run" / "checkpoints").glob("*020.safetensors")).stat().st_size
    assert (folder / "shipped" / "model.safetensors").stat().st_size < 0.6 * whole  # no moments
    for split, place in {"test": [], "valid": ["--data-dir", "data"]}.items():
        again = inside("--evaluate", "shipped", "--split", split, *place, cwd=folder, main=babi.main)
        assert again.returncode == 0, again.stderr
        verdict = again.stdout.splitlines()[-1]
        assert verdict in (folder / "shipped" / "card.md").read_text(encoding="utf-8")
    kept = inside("--evaluate", "run", *place, "--split", "valid", "--record", cwd=folder, main=babi.main)
    (record,) = [json.loads(line) for line in (folder / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert kept.returncode == 0 and kept.stdout.splitlines()[-1] == verdict
    assert record["levels"] == card["scores"][1]["levels"] and record["data"] == "1 tasks, files of data"


def check_own_network(backend: str, folder: Path) -> None:
    """Somebody's own network trains, resumes to the same bytes in a new process, and answers under a policy."""
    own = ["--model", str(Path(__file__).with_name(f"own_{backend}.py")) + ":build"]
    start = [*TINY, "--backend", backend, "--prior", "poisson"]
    # Both in processes of their own: the threads of JAX, and with them its rounding, are those of its first use.
    whole = parity(*start, *own, "--out", "whole", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    shutil.copytree(folder / "whole", folder / "broken")
    (folder / "broken" / "checkpoints" / "update-00000120.safetensors").unlink()
    assert "whose code is needed again" in refused(inside("--out", "broken", "--resume", cwd=folder))
    again = parity("--out", "broken", "--resume", *own, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert contents(folder / "broken") == contents(folder / "whole")
    names = {name.partition(".")[0] for name in newest(folder / "whole" / "checkpoints").arrays}
    assert names == {"params", "m", "v", "rest", "update"}  # running statistics are saved, too
    done = inside("--evaluate", "whole", *own, "--policy", "sample", "--record", cwd=folder)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(folder / "whole" / "evaluations.jsonl")
    last = [one for one in records(folder / "whole") if one.get("split") == "test"][-1]
    assert record["accuracy"] == last["accuracy"] and record["levels"] == last["levels"]
    assert record["policy"]["steps"] == record["sampled_steps"]
    assert record["policy"]["accuracy"] == record["sampled_accuracy"]
    check_own_start(backend, [*start, *own], folder)
    act = inside(*start, *own, "--method", "act", "--updates", "20", "--out", "act", cwd=folder)
    assert act.returncode == 0, act.stderr
    other = [own[0], own[1].replace(":build", ":other")]
    assert "its PonderNet has max_steps 3, and the run 5" in refused(inside(*start, *other, "--out", "no", cwd=folder))
    wrong = [own[0], own[1].replace(":build", ":wrong")]
    assert "predictions must have the shape (2,), got (2, 2)" in refused(
        inside(*start, *wrong, "--out", "no", cwd=folder)
    )
    assert not (folder / "no").exists()


def check_own_start(backend: str, start: list[str], folder: Path) -> None:
    """A run that begins where `whole` ended has its running statistics and its weights that are not trained."""
    for seed in ("0", "1"):
        flags = ["--start", "whole", "--seed", seed, "--updates", "10", "--eval-every", "10", "--out", f"next-{seed}"]
        done = inside(*start, *flags, cwd=folder)
        assert done.returncode == 0, done.stderr
    whole, later = (newest(folder / name / "checkpoints").arrays for name in ("whole", "next-1"))
    (fixed,) = [name for name in whole if name.startswith("rest.") and "shift" in name]
    assert np.array_equal(whole[fixed], later[fixed]) and whole[fixed].any()
    last = [one for one in records(folder / "whole") if one.get("split") == "valid"][-1]
    first = records(folder / "next-0")[0]
    assert first["update"] == 0 and abs(first["loss"] - last["loss"]) < 1e-6


def check_own_network_on_stories(backend: str, folder: Path) -> None:
    """The same code on another task: classes instead of one logit, stories instead of bits."""
    own = ["--model", str(Path(__file__).with_name(f"own_{backend}.py")) + ":build"]
    small = ["--preset", "smoke", "--tasks", "1", "--updates", "20", "--eval-every", "20", "--sentences", "12"]
    done = inside(*small, *own, "--backend", backend, "--out", "run", cwd=folder, main=babi.main)
    assert done.returncode == 0, done.stderr
    assert "of 1 tasks solved, average error" in done.stdout
    assert inside("--evaluate", "run", *own, "--policy", "quantile", cwd=folder, main=babi.main).returncode == 0


def check_load(backend: str, folder: Path) -> None:
    """What a task trained is what `load` gives: the same answers without the task, here and by the reference."""
    done = inside(*TINY, "--backend", backend, "--updates", "40", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    asked = inside("--evaluate", "run", "--policy", "sample", "--record", cwd=folder)
    assert asked.returncode == 0, asked.stderr
    (record,) = read_records(folder / "run" / "evaluations.jsonl")
    task = Parity(Run.open(folder / "run", "parity", Parity.Config).config)
    (batch,) = task.evaluation("test", 100)
    n, rule = batch.counted, {"policy": "sample", "seed": task.config.seed}
    module = importlib.import_module(f"ponder_{backend}")
    x, ids = module.from_numpy(batch.inputs[:n], "float32"), module.from_numpy(batch.ids[:n], "int32")
    found = module.load(folder / "run").predict(x, example_ids=ids, **rule)
    oracle = ponder_ref.load(folder / "run").predict(batch.inputs[:n], example_ids=batch.ids[:n], **rule)
    for steps in (module.to_numpy(found.steps), oracle.steps):
        assert steps.mean() == record["policy"]["steps"] == record["sampled_steps"]
