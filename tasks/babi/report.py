"""What a bAbI evaluation came to: a table with a row for each task, and figures of errors, steps and halting."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tasks.plots import COLOURS, pyplot, save

SOLVED = 0.05  # a task is solved below this error (Weston et al. 2015)


def verdict(record: dict[str, Any]) -> str:
    """The last line: tasks solved, average error over the tasks, mean steps."""
    errors = [1 - accuracy for _, _, accuracy, _ in record["levels"]]
    solved = sum(error < SOLVED for error in errors)
    mean = sum(errors) / len(errors)
    return (
        f"{solved} of {len(errors)} tasks solved, average error {100 * mean:.2f} %, "
        f"mean steps {record['expected_steps']:.2f}"
    )


def lines(record: dict[str, Any], names: Mapping[int, str]) -> list[str]:
    """A row for each task: questions, error, whether it is solved, mean steps."""
    rows = [f"  {'task':<28} {'questions':>9} {'error, %':>9} {'solved':>7} {'steps':>6}"]
    for task, count, accuracy, steps in record["levels"]:
        yes = "yes" if 1 - accuracy < SOLVED else "no"
        name = names.get(task, "not a task")  # a file may say anything
        rows.append(f"  {task:>2} {name:<25} {count:>9} {100 * (1 - accuracy):>9.2f} {yes:>7} {steps:>6.2f}")
    return [*rows, verdict(record)]


def draw_tasks(record: dict[str, Any], path: Path) -> Path:
    """Error (top) and mean steps (bottom) of each task."""
    tasks = [str(row[0]) for row in record["levels"]]
    errors = [100 * (1 - row[2]) for row in record["levels"]]
    figure, (error, steps) = pyplot().subplots(2, 1, figsize=(6, 4.5), sharex=True)
    error.bar(tasks, errors, color=[COLOURS[0] if value < 100 * SOLVED else COLOURS[4] for value in errors])
    error.axhline(100 * SOLVED, color="grey", linewidth=0.8, linestyle=":")
    error.set(ylabel="error, %", title=verdict(record))
    steps.bar(tasks, [row[3] for row in record["levels"]], color=COLOURS[1])
    steps.set(ylabel="mean steps", xlabel="task")
    return save(figure, path)


def draw_shares(record: dict[str, Any], path: Path) -> Path:
    """The mean halting distribution of each task, a row each."""
    shares = np.array([row[1:] for row in record["level_shares"]])
    figure, axes = pyplot().subplots(figsize=(6, 4.5))
    image = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    axes.set_yticks(range(len(shares)), [str(row[0]) for row in record["level_shares"]])
    axes.set_xticks(range(shares.shape[1]), [str(n) for n in range(1, shares.shape[1] + 1)])
    axes.grid(False)
    axes.set(ylabel="task", xlabel="step")
    figure.colorbar(image, label="chance of halting")
    return save(figure, path)


def draw(records: list[dict[str, Any]], folder: Path) -> list[Path]:
    """The task's own figures of a run: of its test, or of its last evaluation if it has not come to that."""
    judged = [record for record in records if "split" in record]
    last = next((record for record in reversed(judged) if record["split"] == "test"), judged[-1])
    return [draw_tasks(last, folder / "tasks.png"), draw_shares(last, folder / "halting-by-task.png")]
