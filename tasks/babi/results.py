"""The section of bAbI: errors and steps by method and by task, and what it took to solve all tasks."""

import math
import statistics
from pathlib import Path
from typing import Any

from tasks import figures
from tasks.babi.report import SOLVED
from tasks.babi.stories import TASK_NAMES
from tasks.history import History
from tasks.results.experiment import (
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

PAPER = {"PonderNet": 1658, "Universal Transformer with ACT": 10161}  # steps, paper §3.2; it does not say of what
EFFORT = ("updates", "run", "expected")  # what was spent: updates, and example-steps in two ways of counting
# (data, split, N where it is not the run's own) -> an evaluation for each seed
Scores = dict[tuple[str, str, int | None], list[dict[str, Any]]]


def errors(record: dict[str, Any]) -> dict[int, float]:
    return {task: 1 - accuracy for task, _, accuracy, _ in record["levels"]}


def average_error(record: dict[str, Any]) -> float:
    """In percent, over the tasks."""
    return 100 * statistics.mean(errors(record).values())


def solved(record: dict[str, Any]) -> int:
    return sum(error < SOLVED for error in errors(record).values())


def total_steps(record: dict[str, Any]) -> float:
    return record["expected_steps"] * record["examples"]


def scores(group: list[History]) -> Scores:
    """The last evaluation of each kind that all seeds have: in the run itself, and those kept with --record."""
    found: Scores = {}
    for split in final_splits(group):
        found["own", split, None] = [evaluations(run, split)[-1] for run in group]
    for (data, split, steps), records in kept(group).items():
        found[data, split, None if steps == group[0].config.own_steps else steps] = records
    return found


def last_shared(found: list[Scores]) -> tuple[str, str, None] | None:
    """The last data that all groups were evaluated on with their own N; None: there are none."""
    keys = [(data, split, steps) for data, split, steps in found[0] if steps is None]
    return next((key for key in reversed(keys) if all(key in by_data for by_data in found)), None)


def method_table(found: dict[str, Scores]) -> list[str]:
    head = ["run", "questions of", "split", "seeds", "updates", "questions", "tasks solved", "average error, %"]
    rows = []
    for label, by_data in found.items():
        for (data, split, steps), records in by_data.items():
            of = split if steps is None else f"{split}, N = {steps}"
            rows.append(
                [
                    *(label, "the run's own data" if data == "own" else data, of, str(len(records))),
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
    shared = last_shared(list(found.values()))
    if shared is None:
        return []
    data, split, _ = shared
    where = "the run's own data" if data == "own" else data
    rows = []
    for task, name in TASK_NAMES.items():
        cells = []
        for by_data in found.values():
            levels = [row for record in by_data[shared] for row in record["levels"] if row[0] == task]
            if not levels:  # a run of some tasks alone
                cells.append("")
                continue
            error, steps = spread([100 * (1 - row[2]) for row in levels], 2), spread([row[3] for row in levels], 2)
            cells.append(f"{error} ({steps})")
        if any(cells):
            rows.append([f"{task} {name}", *cells])
    lead = f"Error of each task in percent, with its mean steps ({where}, {split}):"
    return ["", lead, "", *table(["task", *found], rows)]


def phases(run: History, named: dict[str, History]) -> list[History] | None:
    """The runs that a run began with (--start), the first of them first, and itself; None: one is not at hand."""
    found = [run]
    while (start := found[-1].config.start) is not None:
        before = named.get(Path(start).name)
        if before is None or before in found:
            return None
        found.append(before)
    return found[::-1]


def spent(run: History, last: float = math.inf) -> dict[str, float]:
    """Updates and example-steps of a training as far as it was logged, or as far as the update `last`.

    "run" counts the steps that were computed, "expected" those until halting: the mean steps of the updates logged.
    """
    batch, updates, passes, expected = run.config.batch_size, 0, 0, 0.0
    for line in run.records:
        if line["kind"] == "train" and line["update"] <= last:
            expected += line["expected_steps"] * (line["update"] - updates) * batch
            updates, passes = line["update"], line["forward_passes"]
    return {"updates": updates, "run": passes * batch, "expected": expected}


def effort(runs: list[History]) -> dict[str, float] | None:
    """What runs, each begun with the one before, spent until every task was first under 5 %; None: never."""
    total, wanted = dict.fromkeys(EFFORT, 0.0), len(runs[-1].config.task_numbers())
    for run in runs:
        solved_at = [line["update"] for line in evaluations(run, "valid") if solved(line) == wanted]
        part = spent(run, min(solved_at, default=math.inf))
        total = {name: total[name] + part[name] for name in EFFORT}
        if solved_at:
            return total
    return None


def effort_table(experiment: Experiment, found: dict[str, Scores]) -> list[str]:
    """What solving all tasks took, and the ratios of each group to the first that did."""
    named = experiment.runs
    chains = {label: [phases(run, named) for run in group] for label, group in experiment.groups.items()}
    efforts = {
        label: [effort(runs) for runs in of_seeds if runs is not None]
        for label, of_seeds in chains.items()
        if None not in of_seeds
    }
    if not efforts:
        return []
    base = next((label for label, of_seeds in efforts.items() if any(of_seeds)), next(iter(efforts)))
    rows = []
    for label, of_seeds in efforts.items():
        reached = [one for one in of_seeds if one is not None]
        cells = [f"{len(reached)} of {len(of_seeds)}"]
        for name in EFFORT:
            values = [one[name] for one in reached]
            cells.append(spread(values, 0) if values else "not reached")
        rows.append([label, *cells, *(ratio(efforts[label], efforts[base], name) for name in ("run", "expected"))])
        rows[-1].append(steps_ratio(found[label], found[base]))
    head = ["run", "seeds", "updates", "example-steps run", "expected", f"run ÷ {base}", f"expected ÷ {base}"]
    first, second = PAPER.values()
    text = "Training until every task was first under 5 % in a validation of the run"
    if any(runs is not None and len(runs) > 1 for of_seeds in chains.values() for runs in of_seeds):
        text += ", together with the runs whose parameters it began with"
    if len(efforts) < len(chains):
        text += " (left out are runs that began with one that is not here)"
    note = (
        f"The paper gives {first} steps for PonderNet and {second} for the Universal Transformer with ACT, "
        f"{second / first:.1f} times as many, and does not say of what: none of these ratios is the same quantity."
    )
    return ["", f"{text}:", "", *table([*head, f"evaluation steps ÷ {base}"], rows), "", note]


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
    shared = last_shared([mine, base])
    if shared is None:
        return ""
    means = [statistics.mean(map(total_steps, of[shared])) for of in (mine, base)]
    return f"{means[0] / means[1]:.2f}"


def draw_learning(experiment: Experiment, path: Path) -> Path:
    """Average error and tasks solved in the validations of every run; updates of the runs it began with come before."""
    named = experiment.runs
    figure, ((error,), (tasks,)) = figures.subplots(2, 5, experiment.groups)
    for label, group, look in figures.styled(experiment.groups):
        for run in group:
            before = phases(run, named) or []
            offset = sum(one.last_update for one in before[:-1])
            seen = evaluations(run, "valid")
            at = [offset + record["update"] for record in seen]
            name = figures.with_seeds(label, len(group)) if run is group[0] else None
            error.plot(at, [average_error(record) for record in seen], **look, label=name, linewidth=1.2)
            tasks.plot(at, [solved(record) for record in seen], **look, linewidth=1.2)
    error.set(yscale="log", ylabel="average error, %", title="Validation in training (the run's own data)")
    tasks.set(ylabel="tasks under 5 %", xlabel="updates, with those of the runs it began with")
    figures.legend(figure, error)
    return figures.save(figure, path)


def section(experiment: Experiment, docs: Path) -> list[str]:
    """All tables, the commands, learning curves and the task's own figures."""
    found = {label: scores(group) for label, group in experiment.groups.items()}
    out = docs / "figures" / experiment.folder.name
    drawn = [draw_learning(experiment, out / "learning.png")]
    return [
        *method_table(found),
        *task_table(found),
        *effort_table(experiment, found),
        *commands(experiment),
        *pictures(experiment, [*drawn, *own_figures(experiment, out)], docs),
    ]
