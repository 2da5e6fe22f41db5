"""What an evaluation of paired associative inference came to: a table by type of query, and figures."""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.pai.trials import OTHER, query_types, type_name
from tasks.plots import COLOURS, chance_line, column, final, pyplot, save
from tasks.records import has_median

Row = tuple[str, int, float, float]


def rows_of(levels: list[list[Any]], length: int) -> list[Row]:
    """(type, queries, accuracy, steps) of each type of query, then of direct and indirect ones together.

    `levels` are a record's, or its `median_levels`. Queries of no type ("other") have a row of their own, and are
    neither direct nor indirect.
    """
    rows: list[Row] = [(type_name(level, length), n, accuracy, steps) for level, n, accuracy, steps in levels]
    for name, direct in (("direct", True), ("indirect", False)):
        names = {kind.name for kind in query_types(length) if (kind.steps == 0) == direct}
        chosen = np.array([row[1:] for row in rows if row[0] in names])
        if len(chosen):
            count = chosen[:, 0].sum()
            rows.append((name, int(count), *((chosen[:, :1] * chosen[:, 1:]).sum(0) / count).tolist()))
    return rows


def lines(record: dict[str, Any], length: int) -> list[str]:
    """A row for each type: queries, accuracy, its standard error at most, mean steps; then both at the median step.

    √(a(1 − a)/n) is the error of n answers that are right or wrong. An expected accuracy a is a mean of chances between
    0 and 1, which vary less; how much less is not kept.
    """
    table = [f"  {'query':<10} {'number':>7} {'accuracy, %':>12} {'(error at most)':>15} {'steps':>6}"]
    for name, count, accuracy, steps in rows_of(record["levels"], length):
        error = (accuracy * (1 - accuracy) / count) ** 0.5
        table.append(f"  {name:<10} {count:>7} {100 * accuracy:>12.2f} {f'({100 * error:.2f})':>15} {steps:>6.2f}")
    if has_median(record):
        table[0] += f" {'at the median, %':>17} {'steps':>6}"
        for place, (*_, accuracy, steps) in enumerate(rows_of(record["median_levels"], length), start=1):
            table[place] += f" {100 * accuracy:>17.2f} {steps:>6.2f}"
    return table


def draw_types(record: dict[str, Any], length: int, path: Path) -> Path:
    """Accuracy (top) and mean steps (bottom) of each type of query."""
    names, _, accuracy, steps = zip(*rows_of(record["levels"], length), strict=True)
    figure, (top, bottom) = pyplot().subplots(2, 1, figsize=(5.5, 4.5), sharex=True)
    top.bar(names, [100 * value for value in accuracy], color=COLOURS[0])
    top.set(ylabel="accuracy, %", ylim=(0, 103))
    chance_line(top, 50)
    bottom.bar(names, steps, color=COLOURS[1])
    bottom.set(ylabel="mean steps", xlabel="query")
    return save(figure, path)


def draw_course(records: list[dict[str, Any]], length: int, path: Path) -> Path:
    """Accuracy (top) and mean steps (bottom) of each type over the updates, on the validation split."""
    seen = [record for record in records if str(record.get("split", "")).startswith("valid")]
    figure, (top, bottom) = pyplot().subplots(2, 1, figsize=(6, 4.5), sharex=True)
    levels = [(one["update"], type_name(row[0], length), row) for one in seen for row in one["levels"]]
    names = [*(kind.name for kind in query_types(length)), OTHER]
    for name, colour in zip(names, COLOURS * 2, strict=False):
        chosen = [{"update": update, "row": row} for update, of, row in levels if of == name]
        if name == OTHER and not chosen:
            continue
        updates, values = column(chosen, "update"), np.array([one["row"] for one in chosen]).reshape(-1, 4)
        top.plot(updates, values[:, 2], color=colour, label=name)
        bottom.plot(updates, values[:, 3], color=colour)
    chance_line(top, 0.5)
    top.set(ylabel="expected accuracy")
    top.legend(ncols=3)
    bottom.set(ylabel="expected steps", xlabel="updates")
    return save(figure, path)


def draw(records: list[dict[str, Any]], length: int, folder: Path) -> list[Path]:
    """The task's own figures of a run: of its first test, or, where it has none, of its last evaluation."""
    judged = final(records)
    if not judged:
        return []
    return [
        draw_types(judged[0], length, folder / "queries.png"),
        draw_course(records, length, folder / "queries-learning.png"),
    ]
