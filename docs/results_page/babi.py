"""The section of bAbI: errors and steps by method and by task, and what it took to solve all tasks."""

import statistics
from pathlib import Path
from typing import Any

from results_page.shared import (
    Experiment,
    commands,
    each,
    evaluations,
    final_splits,
    kept,
    own_figures,
    pictures,
    spread,
    table,
)
from tasks import figures
from tasks.babi.report import SOLVED
from tasks.babi.stories import TASK_NAMES
from tasks.runs import Run, read_records

PAPER = {"PonderNet": 1658, "Universal Transformer with ACT": 10161}  # steps, paper §3.2; it does not say of what
Scores = dict[tuple[str, str], list[dict[str, Any]]]  # (data, split) -> an evaluation for each seed


def errors(record: dict[str, Any]) -> dict[int, float]:
    return {task: 1 - accuracy for task, _, accuracy, _ in record["levels"]}


def average_error(record: dict[str, Any]) -> float:
    """In percent, over the tasks."""
    return 100 * statistics.mean(errors(record).values())


def solved(record: dict[str, Any]) -> int:
    return sum(error < SOLVED for error in errors(record).values())


def total_steps(record: dict[str, Any]) -> float:
    return record["expected_steps"] * record["examples"]


def scores(group: list[Run]) -> Scores:
    """The last evaluation of each kind that all seeds have: in the run itself, and those kept with --record."""
    found: Scores = {}
    for split in final_splits(group):
        found["own", split] = [evaluations(run, split)[-1] for run in group]
    for (data, split, _), records in kept(group).items():
        found[data, split] = records
    return found


def method_table(found: dict[str, Scores]) -> list[str]:
    head = ["run", "questions of", "split", "seeds", "updates", "questions", "tasks solved", "average error, %"]
    rows = []
    for label, by_data in found.items():
        for (data, split), records in by_data.items():
            rows.append(
                [
                    *(label, "the run's own data" if data == "own" else data, split, str(len(records))),
                    each([record["update"] for record in records]),
                    str(records[0]["examples"]),
                    f"{each([solved(record) for record in records])} of {len(records[0]['levels'])}",
                    spread([average_error(record) for record in records], 2),
                    spread([record["expected_steps"] for record in records], 2),
                    spread([total_steps(record) for record in records], 0),
                ]
            )
    return table([*head, "mean steps", "sum of steps"], rows)


def task_table(found: dict[str, Scores]) -> list[str]:
    """Error and mean steps of each task, on the last data that every group was evaluated on."""
    shared = [key for key in next(iter(found.values())) if all(key in by_data for by_data in found.values())]
    if not shared:
        return []
    data, split = shared[-1]
    where = "the run's own data" if data == "own" else data
    rows = []
    for task, name in TASK_NAMES.items():
        cells = []
        for by_data in found.values():
            levels = [row for record in by_data[data, split] for row in record["levels"] if row[0] == task]
            error, steps = spread([100 * (1 - row[2]) for row in levels], 2), spread([row[3] for row in levels], 2)
            cells.append(f"{error} ({steps})" if levels else "")
        if any(cells):
            rows.append([f"{task} {name}", *cells])
    lead = f"Error of each task in percent, with its mean steps ({where}, {split}):"
    return ["", lead, "", *table(["task", *found], rows)]


def effort(run: Run) -> dict[str, float] | None:
    """Updates and example-steps of training until every task was first under 5 % in a validation; None: never.

    "run" counts the steps that were computed, "expected" those until halting: the mean steps of the updates logged.
    """
    for record in evaluations(run, "valid"):
        if max(errors(record).values()) < SOLVED:
            break
    else:
        return None
    batch, last, expected = run.config.batch_size, 0, 0.0
    for line in read_records(run.metrics):
        if line["kind"] == "train" and line["update"] <= record["update"]:
            expected += line["expected_steps"] * (line["update"] - last) * batch
            last = line["update"]
    return {"updates": record["update"], "run": record["forward_passes"] * batch, "expected": expected}


def effort_table(experiment: Experiment, found: dict[str, Scores]) -> list[str]:
    """What solving all tasks took, and the ratios of each group to the first."""
    efforts = {label: [effort(run) for run in group] for label, group in experiment.groups.items()}
    base = next(iter(efforts))
    rows = []
    for label, of_seeds in efforts.items():
        reached = [one for one in of_seeds if one is not None]
        cells = [f"{len(reached)} of {len(of_seeds)}"]
        for name in ("updates", "run", "expected"):
            values = [one[name] for one in reached]
            cells.append(spread(values, 0) if values else "not reached")
        rows.append([label, *cells, *(ratio(efforts[label], efforts[base], name) for name in ("run", "expected"))])
        rows[-1].append(steps_ratio(found[label], found[base]))
    head = ["run", "seeds", "updates", "example-steps run", "expected", f"run, over {base}", "expected, over it"]
    first, second = PAPER.values()
    text = "Training until every task was first under 5 % in a validation of the run:"
    note = (
        f"The paper gives {first} steps for PonderNet and {second} for the Universal Transformer with ACT, "
        f"{second / first:.1f} times as many, and does not say of what: none of these ratios is the same quantity."
    )
    return ["", text, "", *table([*head, "sum of steps in evaluation, over it"], rows), "", note]


def ratio(mine: list[dict[str, float] | None], base: list[dict[str, float] | None], name: str) -> str:
    """Mean over mean, of the seeds that got there."""
    means = []
    for seeds in (mine, base):
        values = [one[name] for one in seeds if one is not None]
        if not values:
            return ""
        means.append(statistics.mean(values))
    return f"{means[0] / means[1]:.2f}"


def steps_ratio(mine: Scores, base: Scores) -> str:
    """Mean sum of steps over that of the base, on the last data that both were evaluated on."""
    shared = [key for key in mine if key in base]
    if not shared:
        return ""
    means = [statistics.mean(map(total_steps, of[shared[-1]])) for of in (mine, base)]
    return f"{means[0] / means[1]:.2f}"


def section(experiment: Experiment, docs: Path) -> list[str]:
    """All tables, the commands, learning curves and the task's own figures."""
    found = {label: scores(group) for label, group in experiment.groups.items()}
    out = docs / "figures" / experiment.folder.name
    drawn = [figures.draw_training(experiment.loaded, "valid", "Validation in training", out / "learning.png")]
    return [
        *method_table(found),
        *task_table(found),
        *effort_table(experiment, found),
        *commands(experiment),
        *pictures(experiment, [*drawn, *own_figures(experiment, out)], docs),
    ]
