"""python -m tasks.figures RUN... --out DIR: figure 1 of the paper from run folders, mean and spread over seeds.

Runs that differ in nothing but their seed are one line; its name is what sets it apart from the others. Runs of
different tasks, or of one task on different data, cannot be compared: each kind gets pictures of its own, in a folder
below DIR.
"""

import dataclasses
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ponder_ref.runtime.errors import Refused, one_sentence
from tasks.config import Parser, from_json, show
from tasks.plots import COLOURS, chance_line, column, name_levels, pyplot, save
from tasks.registry import task_class
from tasks.runs import CONFIG, METRICS, read_config, read_records

# What a task is measured on: runs that differ in it have other questions, and are not drawn in one picture.
MEASURED_ON = {
    "parity": ("bits", "positions", "train_ones", "eval_ones"),
    "babi": ("tasks", "data_dir", "layout"),
    "pai": ("length", "target", "data_dir", "embeddings", "control"),
}
WIDTH, LINE, LABEL = 5.5, 0.17, 80  # of a figure and of a line of its legend, in inches; letters of such a line


class Loaded(NamedTuple):
    """A run as it is drawn: its seed, the values that name it, and its evaluations."""

    folder: Path
    seed: Any
    values: dict[str, Any]
    evaluations: list[dict[str, Any]]


def find_runs(places: Sequence[str]) -> list[Path]:
    """The run folders among the places and below them."""
    found = []
    for place in map(Path, places):
        if not place.is_dir():
            raise Refused(f"{place} is not a folder")
        below = [path.parent for path in sorted(place.rglob(CONFIG)) if (path.parent / METRICS).exists()]
        if not below:
            raise Refused(f"there is no run in {place}: no folder with {CONFIG} and {METRICS}")
        found += below
    return list(dict.fromkeys(found))


def settings(task: Any, config: dict[str, Any], path: Path) -> dict[str, Any]:
    """A run's settings: of a known task checked, with defaults for those that were added later; others as they are."""
    try:
        known = task_class(task).Config
    except Refused:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
    made = from_json(known, config, str(path))
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}


def load(folder: Path) -> Loaded:
    content = read_config(folder)
    values = {"task": content.task, **settings(content.task, content.config, folder / CONFIG)}
    seed = values.pop("seed", None)
    evaluations = [record for record in read_records(folder / METRICS) if record.get("kind") == "eval"]
    return Loaded(folder, seed, values, evaluations)


def in_words(value: Any) -> str:
    """A value in a label; equal objects have one spelling."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def label_groups(runs: Sequence[Loaded]) -> dict[str, list[Loaded]]:
    """The runs by the values in which they differ; without any difference the method is the name."""
    names = {name for run in runs for name in run.values}
    # A value that only one method reads does not set runs of other methods apart.
    only = dict.fromkeys(("lambda_p", "beta", "remainder", "epsilon"), ("ponder",))
    only |= dict.fromkeys(("tau", "act_epsilon"), ("act", "ut-act"))

    def reads(name: str, method: Any) -> bool:
        return name not in only or method in only[name]

    def differ(name: str) -> bool:
        # A value may be anything that JSON knows: compared, and not looked up in a set.
        values = [run.values.get(name) for run in runs if reads(name, run.values.get("method"))]
        return any(value != values[0] for value in values)

    differing = [name for name in sorted(names - {"method"}) if differ(name)]
    groups: dict[str, list[Loaded]] = {}
    for run in runs:
        method = str(run.values.get("method"))
        parts = [f"{name} {in_words(run.values.get(name))}" for name in differing if reads(name, method)]
        group = groups.setdefault(", ".join([method, *parts]), [])
        if twin := next((other for other in group if other.seed == run.seed), None):
            raise Refused(f"{run.folder} and {twin.folder} are the same run with the same seed: give one of them")
        group.append(run)
    return dict(sorted(groups.items(), key=lambda item: ("ponder" not in item[0], item[0])))


def curves(group: list[Loaded], split: str, x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def styled(groups: dict[str, list[Loaded]]) -> Iterator[tuple[str, list[Loaded], dict[str, str]]]:
    """Label, runs and look of each group; once the colours are used up the lines change."""
    looks = itertools.cycle([{"color": colour, "linestyle": line} for line in ("-", "--", ":") for colour in COLOURS])
    for (label, group), look in zip(groups.items(), looks, strict=False):
        yield label, group, look


def with_seeds(label: str, runs: int) -> str:
    return f"{label} ({runs} seeds)" if runs > 1 else label


def plot_groups(axes: Any, groups: dict[str, list[Loaded]], split: str, x: str, y: str) -> None:
    for label, group, look in styled(groups):
        drawn = [run for run in group if any(record["split"] == split for record in run.evaluations)]
        at, mean, spread = curves(drawn, split, x, y)
        if len(at):
            axes.plot(at, mean, **look, label=with_seeds(label, len(drawn)), linewidth=1.6)
            axes.fill_between(at, mean - spread, mean + spread, color=look["color"], alpha=0.2, linewidth=0)


def accuracy_axis(axes: Any, groups: dict[str, list[Loaded]]) -> None:
    """From 0 to 1; parity, whose answers are right half of the time by chance, from there."""
    axes.set_ylabel("expected accuracy")
    if all(run.values.get("task") == "parity" for group in groups.values() for run in group):
        chance_line(axes)
        axes.set_ylim(0.4, 1.02)
    else:
        axes.set_ylim(0, 1.02)


def subplots(rows: int, height: float, groups: dict[str, list[Loaded]]) -> tuple[Any, Any]:
    """Axes above each other, sharing x, with room for the legend below them."""
    names = sum(len(textwrap.wrap(label, LABEL)) for label in groups)
    return pyplot().subplots(rows, 1, figsize=(WIDTH, height + LINE * names), sharex=True, squeeze=False)


def legend(figure: Any, axes: Any) -> None:
    """Below the axes: names may be many and long."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, [textwrap.fill(label, LABEL) for label in labels], loc="outside lower left", fontsize=8)


def draw_training(groups: dict[str, list[Loaded]], split: str, title: str, path: Path) -> Path:
    """Accuracy (top) and steps (bottom) over the updates: figures 1a and 1b."""
    figure, ((accuracy,), (steps,)) = subplots(2, 5, groups)
    plot_groups(accuracy, groups, split, "update", "accuracy")
    plot_groups(steps, groups, split, "update", "expected_steps")
    accuracy_axis(accuracy, groups)
    accuracy.set_title(title)
    steps.set_ylabel("steps at evaluation")
    steps.set_ylim(bottom=0)
    steps.set_xlabel("updates")
    legend(figure, accuracy)
    return save(figure, path)


def draw_passes(groups: dict[str, list[Loaded]], path: Path) -> Path:
    """Accuracy against the forward passes of the step network in training so far: figure 1c."""
    figure, ((axes,),) = subplots(1, 3.5, groups)
    plot_groups(axes, groups, "valid", "forward_passes", "accuracy")
    accuracy_axis(axes, groups)
    axes.set_title("Computation")
    axes.set_xlabel("forward passes of the step network in training")
    legend(figure, axes)
    return save(figure, path)


def final_levels(group: list[Loaded]) -> np.ndarray:
    """Difficulty, accuracy and steps `[levels, 3]` of the runs' last tests, beyond training's range too; means."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in group:
        tests = {record["split"]: record for record in run.evaluations if record["split"] in ("test", "test-beyond")}
        for record in tests.values():
            for level, _, accuracy, steps in record.get("levels", []):
                found.setdefault(level, []).append((accuracy, steps))
    return np.array([(level, *np.mean(values, axis=0)) for level, values in sorted(found.items())]).reshape(-1, 3)


def training_ends(runs: list[Loaded]) -> set[int]:
    """The largest counts of training of runs that are evaluated beyond them, too."""
    ends = set()
    for run in runs:
        trained, beyond = (run.values.get(name) for name in ("train_ones", "eval_ones"))
        if trained is not None and beyond is not None and beyond[1] > trained[1]:
            ends.add(trained[1])
    return ends


def draw_difficulty(groups: dict[str, list[Loaded]], path: Path) -> Path:
    """Accuracy (top) and steps (bottom) by the number of non-zeros at the end; a line where training's range ends."""
    figure, ((accuracy,), (steps,)) = subplots(2, 5, groups)
    for label, group, look in styled(groups):
        tested = [run for run in group if len(final_levels([run]))]
        levels = final_levels(tested)
        for axes, index in ((accuracy, 1), (steps, 2)):
            if len(levels):
                name = with_seeds(label, len(tested))
                axes.plot(levels[:, 0], levels[:, index], **look, label=name, linewidth=1.2)
            for end in training_ends(tested):
                axes.axvline(end, color="grey", linewidth=0.8, linestyle="--")
    name_levels(accuracy, steps, "non-zeros")
    accuracy.set_title("Test at the end, mean over seeds")
    legend(figure, accuracy)
    return save(figure, path)


def draw_groups(groups: dict[str, list[Loaded]], out: Path) -> list[Path]:
    """All figures that the runs have data for."""
    runs = [run for group in groups.values() for run in group if run.evaluations]
    if not runs:
        raise Refused("none of the runs has been evaluated yet")
    drawn = [draw_training(groups, "valid", "Interpolation", out / "figure-1a.png")]
    if any(record["split"] == "valid-beyond" for run in runs for record in run.evaluations):
        drawn.append(draw_training(groups, "valid-beyond", "Extrapolation", out / "figure-1b.png"))
    drawn.append(draw_passes(groups, out / "figure-1c.png"))
    if all(run.values.get("task") == "parity" for run in runs) and any(len(final_levels([run])) for run in runs):
        drawn.append(draw_difficulty(groups, out / "difficulty.png"))
    return drawn


def measured_on(run: Loaded) -> dict[str, Any]:
    """Task and data of a run, as far as they decide what it is asked."""
    task = run.values.get("task")
    found = {name: run.values.get(name) for name in MEASURED_ON.get(task, ())} if isinstance(task, str) else {}
    for name in ("data_dir", "embeddings"):  # files lie in another place on every machine
        if name in found:
            found[name] = "generated" if found[name] is None else "released" if name == "data_dir" else "own"
    if found.get("train_ones") == (1, found.get("bits")):
        found["train_ones"] = None
    return {"task": task, **found}


def comparable(runs: Sequence[Loaded]) -> dict[str, list[Loaded]]:
    """The runs by what they are measured on, each kind with a name for a folder: the task, and what sets it apart."""
    kinds: list[tuple[dict[str, Any], list[Loaded]]] = []
    for run in runs:
        kind = measured_on(run)
        group = next((group for other, group in kinds if other == kind), None)
        if group is None:
            kinds.append((kind, group := []))
        group.append(run)
    named: dict[str, list[Loaded]] = {}
    for kind, group in kinds:
        alike = [other for other, _ in kinds if other["task"] == kind["task"]]
        differing = [name for name in kind if any(other[name] != kind[name] for other in alike)]
        differing = [name for name in differing if kind[name] is not None]  # what is not set does not name a kind
        words = [in_words(kind["task"]), *(f"{name} {show(kind[name])}" for name in differing)]
        name = re.sub(r"[^\w.]+", "-", " ".join(words).replace("_", "-")).strip(".-") or "runs"
        copies = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
        named[next(copy for copy in copies if copy not in named)] = group
    return named


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
