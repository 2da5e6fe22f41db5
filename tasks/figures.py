"""python -m tasks.figures RUN... --out DIR: figure 1 of the paper from run folders, mean and spread over seeds.

Runs that differ in nothing but their seed are one line; its name is what sets it apart from the others. Runs of
different tasks, or of one task on different data, cannot be compared: each kind gets pictures of its own, in a folder
below DIR.
"""

import itertools
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref.runtime.errors import Refused, one_sentence
from tasks.flags import Parser
from tasks.history import History, comparable, find_runs, label_groups, load
from tasks.plots import COLOURS, chance_line, column, name_groups, pyplot, save

Groups = dict[str, list[History]]  # runs that differ in their seed alone, by label
WIDTH, LINE, LABEL = 5.5, 0.17, 80  # of a figure and of a line of its legend, in inches; letters of such a line


def curves(group: list[History], split: str, x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, mean of y and its standard deviation over the group's runs, at the evaluations that all of them have."""
    rows = [[record for record in run.evaluations if record["split"] == split] for run in group]
    rows = [row for row in rows if row]
    if not rows:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    shared = set.intersection(*({record["update"] for record in row} for row in rows))
    # Of an update that was evaluated twice the last counts.
    rows = [list({record["update"]: record for record in row if record["update"] in shared}.values()) for row in rows]
    values = np.array([column(row, y) for row in rows])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return np.mean([column(row, x) for row in rows], axis=0), values.mean(axis=0), spread


def styled(groups: Groups) -> Iterator[tuple[str, list[History], dict[str, str]]]:
    """Label, runs and look of each group; once the colours are used up the lines change."""
    looks = itertools.cycle([{"color": colour, "linestyle": line} for line in ("-", "--", ":") for colour in COLOURS])
    for (label, group), look in zip(groups.items(), looks, strict=False):
        yield label, group, look


def with_seeds(label: str, runs: int) -> str:
    return f"{label} ({runs} seeds)" if runs > 1 else label


def plot_groups(axes: Any, groups: Groups, split: str, x: str, y: str) -> None:
    for label, group, look in styled(groups):
        drawn = [run for run in group if any(record["split"] == split for record in run.evaluations)]
        at, mean, spread = curves(drawn, split, x, y)
        if len(at):
            axes.plot(at, mean, **look, label=with_seeds(label, len(drawn)), linewidth=1.6)
            axes.fill_between(at, mean - spread, mean + spread, color=look["color"], alpha=0.2, linewidth=0)


def accuracy_axis(axes: Any, guess: float | None, **about: str) -> None:
    """From 0 to 1, or from a little below the accuracy of guessing where no line goes lower; `about` as of `set`."""
    lowest = min((np.nanmin(line.get_ydata()) for line in axes.get_lines()), default=1.0)
    chance_line(axes, guess)
    bottom = guess - 0.1 if guess is not None and lowest >= guess - 0.1 else 0
    axes.set(ylabel="expected accuracy", ylim=(bottom, 1.02), **about)


def guess_of(groups: Groups) -> float | None:
    """The accuracy of guessing, where all runs are of one task and it has one."""
    guesses = {run.task and run.task.GUESS for group in groups.values() for run in group}
    return guesses.pop() if len(guesses) == 1 else None


def subplots(rows: int, height: float, groups: Groups) -> tuple[Any, Any]:
    """Axes above each other, sharing x, with room for the legend below them."""
    names = sum(len(textwrap.wrap(label, LABEL)) for label in groups)
    return pyplot().subplots(rows, 1, figsize=(WIDTH, height + LINE * names), sharex=True, squeeze=False)


def legend(figure: Any, axes: Any) -> None:
    """Below the axes: names may be many and long."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, [textwrap.fill(label, LABEL) for label in labels], loc="outside lower left", fontsize=8)


def draw_training(groups: Groups, split: str, title: str, path: Path) -> Path:
    """Accuracy (top) and steps (bottom) over the updates: figures 1a and 1b."""
    figure, ((accuracy,), (steps,)) = subplots(2, 5, groups)
    plot_groups(accuracy, groups, split, "update", "accuracy")
    plot_groups(steps, groups, split, "update", "expected_steps")
    accuracy_axis(accuracy, guess_of(groups), title=title)
    steps.set(ylabel="steps at evaluation", ylim=(0, None), xlabel="updates")
    legend(figure, accuracy)
    return save(figure, path)


def draw_passes(groups: Groups, path: Path) -> Path:
    """Accuracy against the forward passes of the step network in training so far: figure 1c."""
    figure, ((axes,),) = subplots(1, 3.5, groups)
    plot_groups(axes, groups, "valid", "forward_passes", "accuracy")
    accuracy_axis(axes, guess_of(groups), title="Computation", xlabel="forward passes of the step network in training")
    legend(figure, axes)
    return save(figure, path)


def final_levels(group: list[History]) -> np.ndarray:
    """Group, accuracy and steps `[groups, 3]` of the runs' last tests, beyond training's range too; means."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in group:
        tests = {record["split"]: record for record in run.evaluations if record["split"] in ("test", "test-beyond")}
        for record in tests.values():
            for level, _, accuracy, steps in record.get("levels", []):
                found.setdefault(level, []).append((accuracy, steps))
    return np.array([(level, *np.mean(values, axis=0)) for level, values in sorted(found.items())]).reshape(-1, 3)


def draw_difficulty(groups: Groups, name: str, path: Path) -> Path:
    """Accuracy (top) and steps (bottom) by the ordered groups of a task at the end; a line where training's end."""
    figure, ((accuracy,), (steps,)) = subplots(2, 5, groups)
    for label, group, look in styled(groups):
        tested = [run for run in group if len(final_levels([run]))]
        levels = final_levels(tested)
        ends = {run.task.trained_to(run.config) for run in tested if run.task} - {None}
        for axes, index in ((accuracy, 1), (steps, 2)):
            if len(levels):
                axes.plot(levels[:, 0], levels[:, index], **look, label=with_seeds(label, len(tested)), linewidth=1.2)
            for end in ends:
                axes.axvline(end, color="grey", linewidth=0.8, linestyle="--")
    name_groups(accuracy, steps, name, guess_of(groups))
    accuracy.set(title="Test at the end, mean over seeds")
    legend(figure, accuracy)
    return save(figure, path)


def draw_groups(groups: Groups, out: Path) -> list[Path]:
    """All figures that the runs have data for."""
    runs = [run for group in groups.values() for run in group if run.evaluations]
    if not runs:
        raise Refused("none of the runs has been evaluated yet")
    drawn = [draw_training(groups, "valid", "Interpolation", out / "figure-1a.png")]
    if any(record["split"] == "valid-beyond" for run in runs for record in run.evaluations):
        drawn.append(draw_training(groups, "valid-beyond", "Extrapolation", out / "figure-1b.png"))
    drawn.append(draw_passes(groups, out / "figure-1c.png"))
    task = runs[0].task
    if task and task.ORDERED and any(len(final_levels([run])) for run in runs):
        drawn.append(draw_difficulty(groups, task.GROUP, out / "difficulty.png"))
    return drawn


def draw(places: Sequence[str], out: Path) -> list[Path]:
    """The figures of the runs in these places, named by what sets them apart; of several kinds in a folder each."""
    runs = [run for folder in find_runs(places) if (run := load(folder)).evaluations]
    if not runs:
        raise Refused("none of the runs has been evaluated yet")
    kinds = {name: label_groups(group) for name, group in comparable(runs).items()}
    if len(kinds) == 1:
        return draw_groups(next(iter(kinds.values())), out)
    counts = {name: sum(map(len, groups.values())) for name, groups in kinds.items()}
    said = ", ".join(f"{name} ({count} run{'s' if count > 1 else ''})" for name, count in counts.items())
    print(f"runs that cannot be compared are drawn apart, in folders of {out}: {said}", file=sys.stderr)
    return [path for name, groups in kinds.items() for path in draw_groups(groups, out / name)]


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m tasks.figures", description=__doc__)
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run folder, or a folder that has run folders below it"
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where the pictures go; several kinds of runs get a folder each"
    )
    options = parser.parse(arguments)
    for path in draw(options.runs, Path(options.out)):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
