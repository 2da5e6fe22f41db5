"""A task that is registered has summary, figures and a section of the page of results; shared rooms know no task."""

import ast
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("matplotlib")

from results_runs import evaluation, fixture_unsaved, logged, page_of, rows_of, write_run  # noqa: F401

from ponder_ref.runtime.values import Integer, option
from tasks import figures, history, plots, registry, summary
from tasks.config import TrainingConfig
from tasks.contracts import Task
from tasks.runs import Run

TASKS = Path(registry.__file__).parent
PARTS = {"step_share": [0.5, 0.5], "step_accuracy": [0.5, 1.0]}


@dataclasses.dataclass(frozen=True)
class ToyConfig(TrainingConfig):
    digits: int = option(3, Integer(1, 9), "digits of a number", group="toy")
    table: str | None = option(None, Integer(1, 9, off=True), "a file", group="toy")


class Toy(Task):
    """As little as a task can say of itself."""

    NAME = "toy"
    GROUP = "digits"
    GUESS = 0.1
    FILES: ClassVar[Mapping[str, str]] = {"table": "FILE"}
    NETWORKS: ClassVar[Mapping[str, str]] = {
        "torch": "tasks/toy/model_torch.py:build",
        "jax": "tasks/toy/model_jax.py:build",
    }
    Config = ToyConfig
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    def __init__(self, config: ToyConfig):
        self.config = config

    @classmethod
    def asked(cls, config: ToyConfig) -> dict[str, Any]:
        return {"digits": config.digits, "table": "generated" if config.table is None else "own"}

    def describe(self, split: str) -> str:
        return f"{self.config.digits} digits"


class Unordered(Toy):
    NAME = "unordered"
    ORDERED = False

    @classmethod
    def group_name(cls, group: int, config: ToyConfig) -> str:
        return f"kind {group}"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attribute in (("toy", "Toy"), ("unordered", "Unordered")):
        monkeypatch.setitem(registry.TASKS, name, f"{__name__}:{attribute}")


def write_toys(folder: Path, task: str, configs: list[ToyConfig]) -> None:
    for number, config in enumerate(configs):
        levels = [[1, 10, 1.0, 2.0], [2, 30, 0.5 + 0.1 * number, 3.0]]
        records = [evaluation(split, 40, 240, levels, **PARTS) for split in ("valid", "test")]
        write_run(folder / f"run-{number}", task, config, [logged(40, 2.0), *records])


def test_a_task_that_is_registered_is_drawn_by_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture):
    configs = [ToyConfig(updates=40, seed=seed, digits=digits) for seed, digits in ((0, 3), (1, 3), (0, 4))]
    write_toys(tmp_path / "runs", "toy", configs)
    assert figures.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    names = [f"toy-digits-{n}/{name}.png" for n in (3, 4) for name in ("figure-1a", "figure-1c", "difficulty")]
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / name) for name in names]


def test_networks_that_a_task_brings_are_its_own_on_either_backend(tmp_path: Path):
    write_toys(tmp_path, "toy", [ToyConfig(updates=40, seed=seed) for seed in range(3)])
    for number, name in enumerate((*Toy.NETWORKS.values(), "else.py:build")):
        file = tmp_path / f"run-{number}" / "config.json"
        own = {"model": {"kind": "own", "name": name, "sha256": str(number)}}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"network": own}))
    runs = [history.load(tmp_path / f"run-{number}") for number in range(3)]
    assert [run.model for run in runs] == [None, None, "else.py:build"]
    assert sorted(map(len, history.label_groups(runs).values())) == [1, 2]


@pytest.mark.parametrize(("task", "own"), [(Toy, ["difficulty.png"]), (Unordered, [])])
def test_the_figures_of_a_run_follow_its_groups(task, own: list[str], tmp_path: Path):
    write_toys(tmp_path, task.NAME, [ToyConfig(updates=40)])
    run = Run.open(tmp_path / "run-0", task.NAME, ToyConfig)
    drawn, note = plots.draw_run(run, task(run.config))
    assert [path.name for path in drawn] == ["learning.png", "halting.png", *own] and note == ""


def test_a_task_that_is_registered_has_a_table_in_the_summary():
    record = evaluation("test", 40, 240, [[1, 10, 1.0, 2.0], [2, 30, 0.5, 3.0]], loss=1.0, loss_rec=1.0, loss_reg=1.0)
    lines = summary.of_record(record, Toy(ToyConfig()))
    assert lines[0] == "test: 3 digits, 40 examples"
    assert [line.split() for line in lines[-2:]] == [
        ["digits", "examples", "accuracy", "steps"],
        ["1-2", "40", "0.625", "2.75"],
    ]
    assert [line.split()[:2] for line in Unordered(ToyConfig()).report(record)[1:]] == [["kind", "1"], ["kind", "2"]]


@pytest.mark.parametrize(("task", "columns"), [("toy", "1 | 2"), ("unordered", "kind 1 | kind 2")])
def test_a_task_that_is_registered_has_a_section_of_the_page(unsaved, tmp_path: Path, task: str, columns: str):
    configs = [ToyConfig(updates=40, seed=seed, table=7) for seed in (0, 1)]
    write_toys(tmp_path / "results" / "made", task, configs)
    page = page_of(tmp_path, task)
    assert f"Accuracy by digits:\n\n| run | split | {columns} |" in page
    assert rows_of(page, "ponder", "test")[1][1] == "0.550 ± 0.071 (3.0 ± 0.0 steps)"
    assert f"`python -m tasks.{task} --preset default --table FILE --updates 40 --seed SEED --backend jax" in page


def shared_files() -> list[Path]:
    """Modules that all tasks use: those of tasks/ itself but for the registry, and the page of results."""
    return sorted({*TASKS.glob("*.py"), *(TASKS / "results").glob("*.py")} - {TASKS / "registry.py"})


def known_secrets() -> set[str]:
    """The names of tasks, and of settings that belong to one of them."""
    found = set()
    for name in set(registry.TASKS) - {"toy", "unordered"}:
        config = registry.task_class(name).Config
        found |= {name, *(field.name for field in dataclasses.fields(config))}
    return found - {"tasks", *(field.name for field in dataclasses.fields(TrainingConfig))}  # also a package


def words_of(path: Path) -> set[str]:
    """What a module's code names or says: attributes, names after a dot in imports, words of strings; no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("config", "c"):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= set((node.module or "").split(".")[1:2]) | {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+", node.value):
            found.add(node.value)
    return found


def test_shared_rooms_know_no_task():
    secrets = known_secrets()
    assert {"parity", "babi", "train_ones", "data_dir"} <= secrets
    files = shared_files()
    assert {"figures.py", "plots.py", "summary.py", "general.py"} <= {path.name for path in files}
    told = {path.relative_to(TASKS).as_posix(): words_of(path) & secrets for path in files}
    for name in told:
        if name.startswith("results/"):  # keys of about.json, and of what benchmarks write
            told[name] -= {"labels", "sentences"}
    assert {name: sorted(words) for name, words in told.items() if words} == {}


def test_a_secret_would_be_found(tmp_path: Path):
    (tmp_path / "bad.py").write_text(
        "from tasks.babi import report\nif config.train_ones or task == 'parity': x = ['data_dir']\n"
    )
    assert words_of(tmp_path / "bad.py") & known_secrets() == {"babi", "train_ones", "parity", "data_dir"}
