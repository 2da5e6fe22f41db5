"""Evaluations under an exit policy and priors by name, on the command line; what every task gives to the harness."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import ROOT, TINY, inside, records, refused

from ponder_ref.base import Predicted
from ponder_ref.runtime.checkpoint import newest
from ponder_ref.runtime.network import from_json
from ponder_ref.runtime.settings import Halting
from tasks import flags, registry
from tasks.metrics import Exits, Tally, score_answers
from tasks.parity import ParityConfig
from tasks.runs import read_records

BACKEND = ["--backend", "numpy_trainer"]
START = [*TINY, *BACKEND, "--updates", "10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind that answers otherwise."""
    made = tmp_path_factory.mktemp("evaluated")
    for method in ("ponder", "repeat", "act"):
        assert inside(*START, "--method", method, "--out", method, cwd=made).returncode == 0
    return made


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["quantile"], "median_steps"),
        (["sample"], "sampled_steps"),
        (["fixed"], 5.0),
        (["quantile", "--q", "1"], 5.0),
        (["expected"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_policy_gives_the_answers_of_predict(flags: list[str], wanted: str | float | None, folder: Path):
    """Its steps are those that were measured over all steps, and no row is computed after it has left."""
    before = len(read_records(folder / "ponder" / "evaluations.jsonl"))
    asked = ["--evaluate", "ponder", *BACKEND, "--policy", *flags]
    done = inside(*asked, "--record", cwd=folder)
    assert done.returncode == 0, done.stderr
    kept = read_records(folder / "ponder" / "evaluations.jsonl")
    assert len(kept) == before + 1
    record = kept[-1]
    found = record["policy"]
    assert found["name"] == flags[0] and ("q" in found) == (flags[0] == "quantile")
    if wanted is not None:
        assert found["steps"] == pytest.approx(record[wanted] if isinstance(wanted, str) else wanted)
        assert found["rows"] == round(found["steps"] * record["examples"])
    assert 0 <= found["accuracy"] <= 1
    if flags == ["quantile"]:
        assert found["accuracy"] == record["median_accuracy"]
    assert f"policy   {flags[0]}" in done.stdout and f"{found['rows']} rows computed" in done.stdout
    assert "policy" not in inside("--evaluate", "ponder", *BACKEND, cwd=folder).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fixed", "--out", "run"], "--policy goes with --evaluate RUN"),
        (["--q", "0.5", "--out", "run"], "--q goes with --evaluate RUN"),
        (
            ["--evaluate", "ponder", "--policy", "mean"],
            "--policy must be one of sample, quantile, fixed, expected, got 'm",
        ),
        (["--evaluate", "ponder", "--policy", "quantile", "--q", "0"], "--q must be a number in (0, 1], got 0.0"),
        (["--evaluate", "ponder", "--policy", "sample", "--q", "0.5"], "--q goes with --policy quantile"),
        (["--evaluate", "ponder", "--q", "0.5"], "--q goes with --policy quantile"),
        (["--evaluate", "repeat", "--policy", "sample"], "--policy sample needs a run of --method ponder"),
        (
            ["--evaluate", "act", "--policy", "fixed"],
            "--policy fixed needs a run of --method ponder, and act is one of act",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_policies_get_one_sentence(arguments: list[str], words: str, folder: Path):
    assert words in refused(inside(*arguments, *BACKEND, cwd=folder))


def test_a_run_that_does_not_halt_has_the_fixed_policy(folder: Path):
    done = inside("--evaluate", "repeat", *BACKEND, "--policy", "fixed", cwd=folder)
    assert done.returncode == 0 and "steps 5.000, 500 rows computed" in done.stdout


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("prior", ["geometric", "uniform", "poisson"])
def test_the_kl_is_to_the_prior_of_the_run(prior: str, tmp_path: Path):
    done = inside(*START, "--prior", prior, "--lambda-p", "0.4", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["prior"] == prior
    about = newest(tmp_path / "run" / "checkpoints").about
    assert from_json(about["network"]).halting.prior == prior
    n = np.arange(5)
    weights = {
        "geometric": 0.6**n,
        "uniform": np.ones(5),
        "poisson": np.array([1.5**k / math.factorial(k) for k in range(5)]),
    }[prior]
    record = records(tmp_path / "run")[-1]
    p = np.array(record["step_share"])  # of this trainer the same for every example
    assert record["loss_reg"] == pytest.approx(kl(p, weights / weights.sum()), abs=1e-4)


def test_an_example_is_right_if_all_its_answers_are():
    y_hat, targets = np.array([[[1.0, -1.0], [1.0, 1.0]]]), np.array([[1, 0], [1, 0]])
    correct, losses = score_answers(y_hat, targets, "binary")
    assert correct.tolist() == [[1, 0]]
    assert losses[0, 0] == pytest.approx(math.log1p(math.exp(-1)))
    assert losses[0, 1] == pytest.approx((math.log1p(math.exp(-1)) + math.log1p(math.e)) / 2)
    classes = np.log(np.array([[[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.8, 0.2]]]]))
    correct, losses = score_answers(classes, np.array([[0, 1], [0, 1]]), "classes")
    assert correct.tolist() == [[1, 0]]
    assert losses[0] == pytest.approx([-np.log([0.9, 0.8]).mean(), -np.log([0.9, 0.2]).mean()])
    tally = Tally(Halting(max_steps=1), "classes", seed=0)
    tally.add(classes, np.zeros((1, 2)), np.array([[0, 1], [0, 1]]), np.arange(2), np.ones(2, int))
    assert tally.result()["accuracy"] == 0.5
    exits = Exits("classes", policy="fixed")
    exits.add(Predicted(classes[0], np.ones(2, int), 2), np.array([[0, 1], [0, 1]]))
    assert exits.result() == {"name": "fixed", "accuracy": 0.5, "steps": 1.0, "rows": 2}


@pytest.mark.parametrize("name", registry.TASKS)
def test_every_task_gives_what_its_contract_names(name: str):
    task = registry.task_class(name)
    assert name == task.NAME and set(task.EVALUATION_FLAGS) | set(task.FILES) <= set(task.Config.__dataclass_fields__)
    made = task(flags.make(task.Config, task.PRESETS["smoke"], {}))
    if not task.NETWORKS:  # else its networks are built by code of its own
        network = made.network()
        assert from_json(json.loads(json.dumps(network.to_json()))) == network
        assert {k: x.shape for k, x in made.initial_parameters().items()} == network.model.shapes()
    batch = made.batches("train", range(2))
    assert batch.targets.shape[:2] == batch.example_ids.shape == (2, made.config.batch_size)
    first = next(iter(made.evaluation(made.splits("valid")[0], 20)))
    assert 0 < first.counted <= len(first.targets) == len(first.ids) == len(first.groups)
    assert made.describe("valid") and task.TITLE and task.EXAMPLES and task.GROUP


def test_settings_that_were_written_before_priors_had_names_are_read_as_they_were():
    """config.json of the runs in docs/results: no value is another one after it was read, and `prior` is new."""
    found = sorted((ROOT / "docs" / "results").rglob("config.json"))
    assert found
    for path in found:
        content = json.loads(path.read_text(encoding="utf-8"))
        task = registry.task_class(content["task"])
        again = flags.to_json(flags.from_json(task.Config, content["config"], str(path)))
        assert content["config"].items() <= again.items()
        assert again.get("prior") == "geometric"
    values = flags.to_json(ParityConfig(seed=3))
    del values["prior"]
    assert flags.from_json(ParityConfig, values, "here") == ParityConfig(seed=3)
