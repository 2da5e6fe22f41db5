"""An experiment's runs in groups of seeds, and what every section says of them."""

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from ponder_ref.runtime.errors import Refused, shell_word
from tasks import history
from tasks.history import History
from tasks.registry import task_class
from tasks.summary import for_seeds, time_spent, training_command, updates_not_noted
from tasks.views import Views


class Experiment(NamedTuple):
    """A folder of runs: what about.json says, the class of the task, and the runs of each label by seed."""

    folder: Path
    about: dict[str, Any]
    task: type[Views]
    groups: dict[str, list[History]]

    @property
    def runs(self) -> dict[str, History]:
        """All runs, by the names of their folders."""
        return {run.folder.name: run for group in self.groups.values() for run in group}


def load(folder: Path, about: dict[str, Any]) -> Experiment:
    task = task_class(about.get("task"))
    runs = [history.load(path) for path in history.find_runs([str(folder)])]
    for run in runs:
        if run.task is not task:
            raise Refused(f"{run.folder} is a run of the task {run.values['task']!r}, not of {task.NAME!r}")
        asked = task.asked(run.config)  # a label says what files are, not where they lie on a machine
        run.values.update({name: asked[name] for name in task.FILES if name in asked})
    found = named_groups(runs, about["labels"]) if "labels" in about else history.label_groups(runs)
    groups = {label: sorted(group, key=lambda run: run.seed) for label, group in found.items()}
    return Experiment(folder, about, task, groups)


def named_groups(runs: list[History], labels: dict[str, str]) -> dict[str, list[History]]:
    """The runs by the labels that about.json gives their folders, in its order."""
    by_name = {run.folder.name: run for run in runs}
    if missing := set(by_name) ^ set(labels):
        raise Refused(f"labels in about.json and runs beside it differ: {', '.join(sorted(missing))}")
    groups: dict[str, list[History]] = {}
    for name, label in labels.items():
        groups.setdefault(label, []).append(by_name[name])
    return groups


def spread(values: list[float], digits: int) -> str:
    """Mean ± standard deviation over seeds, or the one value."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def each(values: list[Any]) -> str:
    """The value of every seed, or the one that all have."""
    return "/".join(map(str, values if len(set(values)) > 1 else values[:1]))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def evaluations(run: History, split: str) -> list[dict[str, Any]]:
    """The evaluations of a split in the course of a run."""
    return [record for record in run.records if record.get("split") == split]


def final_splits(group: list[History]) -> list[str]:
    """The splits to report: those of the test, or, of runs that have not ended, those of their last validation."""
    # In order of appearance: a dict keeps it, a set would not.
    seen = [dict.fromkeys(str(record.get("split", "")) for record in run.records) for run in group]
    for stage in ("test", "valid"):
        shared = [split for split in seen[0] if all(split in others for others in seen)]
        found = [split for split in shared if split == stage or split.startswith(f"{stage}-")]
        if found:
            return found
    return []


def kept(group: list[History]) -> dict[tuple[str, str, int], list[dict[str, Any]]]:
    """The evaluations kept with --record that all seeds have, the last by (data, split, N) of each seed."""
    found: list[dict[tuple[str, str, int], dict[str, Any]]] = [{} for _ in group]
    for run, records in zip(group, found, strict=True):
        for record in run.kept:
            records[record.get("data", "other data"), record["split"], record["max_steps"]] = record
    shared = sorted(set.intersection(*(set(records) for records in found)))
    return {key: [records[key] for records in found] for key in shared}


def duration(group: list[History], updates: list[int]) -> str:
    """The time of a run, mean over the seeds: of the processor, where it was noted, and by the clock.

    `updates` of each seed; said too is of how many the time was not noted.
    """
    sessions = [run.sessions for run in group]
    spent = [time_spent(records) for records in sessions]
    clocks, worked = ([hours for hours in column if hours is not None] for column in zip(*spent, strict=True))
    if not clocks:
        return "time not noted"
    text = f"{in_words(statistics.mean(clocks))} each"
    if len(worked) == len(clocks):
        text = (
            f"{in_words(statistics.mean(worked))} of one core each ({in_words(statistics.mean(clocks))} by the clock)"
        )
    missing = [updates_not_noted(records, update) for records, update in zip(sessions, updates, strict=True)]
    return f"{text}, without {each(missing)} updates whose time was not noted" if any(missing) else text


def in_words(hours: float) -> str:
    return f"{60 * hours:.1f} minutes" if hours < 2 else f"{hours:.1f} hours"


def by_stop(group: list[History]) -> dict[int | None, list[History]]:
    """The runs of a group by the update at which they were stopped; None: they were trained to their end."""
    found: dict[int | None, list[History]] = {}
    for run in group:
        last = run.last_update
        found.setdefault(last if last < run.config.updates else None, []).append(run)
    return found


def begun_with(experiment: Experiment, group: list[History]) -> str:
    """The runs whose parameters a group's runs began with, by name and label."""
    labels = {run.folder.name: label for label, runs in experiment.groups.items() for run in runs}
    starts = [Path(run.config.start).name for run in group if run.config.start is not None]
    named = [f"`{name}` ({labels.get(name, 'not here')})" for name in starts]
    return f"; begun with {', '.join(named)}" if named else ""


def commands(experiment: Experiment) -> list[str]:
    """How every group was made, and how long it took."""
    lines = ["", "Commands:", ""]
    for label, whole in experiment.groups.items():
        for stop, group in by_stop(whole).items():
            first = group[0]
            made = training_command(first.config, first.backend, experiment.task, model=first.model, seed="SEED")
            if stop is not None:
                made += f" --stop-at {stop}"
            folder = for_seeds(first.folder.name, first.config.seed, "SEED")
            alike = all(run.backend == first.backend for run in group)
            # Seeds of one group may have been trained on either backend: the command has that of the first.
            seeds = ", ".join(str(run.config.seed) + ("" if alike else f" ({run.backend})") for run in group)
            last = [run.last_update for run in group]
            seen = f"{each(last)} updates, {each([update * first.config.batch_size for update in last])} examples"
            seen = seen if stop is None else f"stopped after {seen}"
            made, start = f"{made} --out {shell_word(folder)}", begun_with(experiment, group)
            lines.append(f"- {label}: `{made}`, seeds {seeds}{start}; {seen}; {duration(group, last)}")
    return lines


def pictures(experiment: Experiment, drawn: list[Path], docs: Path) -> list[str]:
    """Links to the pictures."""
    title = experiment.about["title"]
    return ["", *(f"![{path.stem} of {title}]({path.relative_to(docs).as_posix()})" for path in drawn), ""]


def own_figures(experiment: Experiment, out: Path) -> list[Path]:
    """The task's own figures of every group's first run, in a folder by the run's name."""
    first = [group[0] for group in experiment.groups.values()]
    drawn = [experiment.task.draw(run.config, run.records, out / run.folder.name) for run in first]
    return [path for paths in drawn for path in paths]
