"""The section of a task that has none of its own: accuracy and steps, in all and by group, commands and figures."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import figures
from tasks.history import History
from tasks.metrics import bands
from tasks.records import has_median
from tasks.results.experiment import (
    Experiment,
    commands,
    evaluations,
    final_splits,
    kept,
    own_figures,
    pictures,
    spread,
    table,
)

HEAD = ["run", "split", "seeds", "updates", "examples", "accuracy, expected", "sampled", "at the median"]
HEAD += ["steps, expected", "sampled", "of the median"]
SURE = 0.99
MOST_GROUPS = 8  # with more of them, groups are joined in bands, if they have an order
Column = tuple[int, str]  # a group, or the least of a band, and what it is called


def last_records(group: list[History], split: str) -> list[dict[str, Any]]:
    return [record for run in group for record in evaluations(run, split)[-1:]]


def judged(group: list[History]) -> dict[str, list[dict[str, Any]]]:
    """The evaluations of a group by what was judged: in the runs themselves, and those kept with --record."""
    found = {split: last_records(group, split) for split in final_splits(group)}
    return found | {f"{split}: {data}, N = {steps}": records for (data, split, steps), records in kept(group).items()}


def row(label: str, split: str, found: list[dict[str, Any]]) -> list[str]:
    """One row of the table: means over the seeds of the last evaluation of a split."""
    sampled, median = all(record["draws"] for record in found), all(map(has_median, found))
    updates = "/".join(map(str, sorted({record["update"] for record in found})))
    return [
        *(label, split, str(len(found)), updates, str(found[0]["examples"])),
        spread([record["accuracy"] for record in found], 4),
        spread([record["sampled_accuracy"] for record in found], 4) if sampled else "",
        spread([record["median_accuracy"] for record in found], 4) if median else "",
        spread([record["expected_steps"] for record in found], 2),
        spread([record["sampled_steps"] for record in found], 2) if sampled else "",
        spread([record["median_steps"] for record in found], 2) if median else "",
    ]


def levels(rows: list[list[Any]], joined: bool, name: Callable[[int], str]) -> dict[Column, tuple[float, float]]:
    """(accuracy, steps) by group or by band of them."""
    if joined:
        return {(int(band.split("-")[0]), band): (accuracy, steps) for band, _, accuracy, steps in bands(rows)}
    return {(level, name(level)): (accuracy, steps) for level, _, accuracy, steps in rows}


def reach(rows: list[list[Any]]) -> str:
    """The largest group up to which, from the least of the split on, none is below SURE; a dash: not even it."""
    found = "-"
    for level, _, accuracy, _ in rows:
        if accuracy < SURE:
            break
        found = str(level)
    return found


def by_group(experiment: Experiment) -> list[str]:
    """Accuracy and steps by group of examples, mean over the seeds; a row for each label, split and way to halt."""
    found = {}
    for label, group in experiment.groups.items():
        for split, records in judged(group).items():
            found[label, split] = [record["levels"] for record in records]
            if all(map(has_median, records)):
                found[label, f"{split}, at the median"] = [record["median_levels"] for record in records]
    names = {row[0] for seeds in found.values() for rows in seeds for row in rows}
    joined = len(names) > MOST_GROUPS and experiment.task.ORDERED
    rows = {}
    for (label, split), seeds in found.items():
        config = experiment.groups[label][0].config
        name = functools.partial(experiment.task.group_name, config=config)
        rows[label, split] = [levels(seed, joined, name) for seed in seeds]
    columns = {column: None for records in rows.values() for record in records for column in record}
    columns = sorted(columns, key=lambda column: column[0])
    lines = []
    for (label, split), records in rows.items():
        cells = []
        for column in columns:
            pairs = [record[column] for record in records if column in record]
            accuracy, steps = ([pair[i] for pair in pairs] for i in (0, 1))
            cells.append(f"{spread(accuracy, 3)} ({spread(steps, 1)} steps)" if pairs else "")
        if joined:
            cells.append("/".join(reach(seed) for seed in found[label, split]))
        lines.append([label, split, *cells])
    head = [name for _, name in columns] + ([f"{SURE} up to"] if joined else [])
    return ["", f"Accuracy by {experiment.task.GROUP}:", "", *table(["run", "split", *head], lines)]


def section(experiment: Experiment, docs: Path) -> list[str]:
    """Results, by group, commands, figure 1 of the paper, and the task's own figures."""
    rows = []
    for label, group in experiment.groups.items():
        rows += [row(label, split, records) for split, records in judged(group).items()]
    out = docs / "figures" / experiment.folder.name
    drawn = figures.draw_groups(experiment.groups, out) + own_figures(experiment, out)
    return [*table(HEAD, rows), *by_group(experiment), *commands(experiment), *pictures(experiment, drawn, docs)]
