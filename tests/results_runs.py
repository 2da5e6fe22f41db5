"""Run folders made up for the page of results, and the page that is made of them. A helper of the tests."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks import figures, plots
from tasks.babi import report
from tasks.flags import to_json
from tasks.pai import report as pai_report
from tasks.results.__main__ import make

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(name="unsaved")
def fixture_unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn, but not written, which takes long."""

    def close(figure, path: Path) -> Path:
        plots.pyplot().close(figure)
        return path

    for module in (figures, report, pai_report):
        monkeypatch.setattr(module, "save", close)


def evaluation(split: str, update: int, passes: int, levels: list[list[float]], draws: int = 1, **more) -> dict:
    """An evaluation as a run keeps it, its means made of the levels."""
    count = sum(row[1] for row in levels)
    accuracy, steps = (sum(row[1] * row[i] for row in levels) / count for i in (2, 3))
    means = {"accuracy": accuracy, "sampled_accuracy": accuracy, "expected_steps": steps, "sampled_steps": steps}
    where = {"kind": "eval", "split": split, "update": update, "forward_passes": passes, "examples": count}
    shares = [[row[0], 0.25, 0.75] for row in levels]
    return {**where, **means, "draws": draws, "levels": levels, "level_shares": shares, **more}


def logged(update: int, steps: float, passes: int = 6) -> dict:
    return {"kind": "train", "update": update, "expected_steps": steps, "forward_passes": passes * update}


SESSION = {"backend": "jax", "from": 0, "to": 40, "seconds": 14400.0, "cpu_seconds": 10800.0}


def write_run(folder: Path, task: str, config, metrics: list[dict], kept=(), sessions=(SESSION,)) -> None:
    folder.mkdir(parents=True)
    content = {"task": task, "backend": "jax", "config": to_json(config)}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    for name, records in (("metrics", metrics), ("sessions", sessions), ("evaluations", kept)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def write_about(folder: Path, **about: Any) -> None:
    (folder / "about.json").write_text(json.dumps({"title": "Made up", "text": "A text.", **about}))


def every_task(accuracy: float, steps: float, worst: float | None = None) -> list[list[float]]:
    """The levels of 20 tasks with 10 questions each; task 19 may be worse than the others."""
    return [[task, 10, worst if worst is not None and task == 19 else accuracy, steps] for task in range(1, 21)]


def rows_of(page: str, run: str, split: str) -> list[list[str]]:
    """What the rows of all tables say of a run and split."""
    lines = [line for line in page.splitlines() if line.startswith(f"| {run} | {split} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")][2:] for line in lines]


def page_of(place: Path, task: str, **about: Any) -> str:
    write_about(place / "results" / "made", task=task, **about)
    make(place / "results", place)
    return (place / "results.md").read_text(encoding="utf-8")


def cells(page: str, first: str, *more: str) -> list[str]:
    """The cells of the one row that begins so."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    (found,) = [row for row in rows if row[: 1 + len(more)] == [first, *more]]
    return found[1 + len(more) :]
