"""Runs as they are read for figures and tables: each folder is opened once; seeds are joined, settings told apart."""

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ponder_ref.runtime.errors import Refused
from tasks.flags import from_json, show
from tasks.records import EVALUATIONS, SESSIONS
from tasks.registry import TASKS, task_class
from tasks.runs import CONFIG, METRICS, read_config, read_records
from tasks.views import Views

# A setting that only one method reads does not set runs of other methods apart.
OF_PONDER = ("prior", "lambda_p", "beta", "remainder", "epsilon")
OF_ACT = ("tau", "act_epsilon")  # and of its relatives


@dataclasses.dataclass(frozen=True, eq=False)
class History:
    """A run folder. `values` are its settings, without the seed, with the names of task and network.

    The task's class and the config are None for a task that is not registered; its settings are then as in the file.
    `model` is what --model named, None for the task's network.
    """

    folder: Path
    task: type[Views] | None
    config: Any
    backend: str
    model: str | None
    seed: Any
    values: dict[str, Any]
    records: list[dict[str, Any]]  # of metrics.jsonl

    @functools.cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Those in the course of the training and at its end."""
        return [record for record in self.records if record.get("kind") == "eval"]

    @functools.cached_property
    def kept(self) -> list[dict[str, Any]]:
        """Evaluations made later, with --evaluate RUN --record."""
        return read_records(self.folder / EVALUATIONS)

    @functools.cached_property
    def sessions(self) -> list[dict[str, Any]]:
        return read_records(self.folder / SESSIONS)

    @functools.cached_property
    def last_update(self) -> int:
        """How far it was trained: as its sessions say, or, of one that goes on or was killed, its metrics."""
        return max([*(one["to"] for one in self.sessions), *(one["update"] for one in self.records)], default=0)


def load(folder: Path) -> History:
    content = read_config(folder)
    task, made = task_class(content.task) if content.task in TASKS else None, None
    if task is None:
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in content.config.items()}
    else:  # checked, with defaults for settings that were added later
        made = from_json(task.Config, content.config, str(folder / CONFIG))
        values = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    own = (content.network or {}).get("model")  # a file with the same name may have changed
    name, checksum = (str(own.get(key)) for key in ("name", "sha256")) if isinstance(own, dict) else (None, None)
    if task is not None and name in task.NETWORKS.values():
        name, checksum = None, None
    values = {"task": content.task, "network": name or "the task's", "network_file": checksum, **values}
    seed = values.pop("seed", None)
    return History(folder, task, made, content.backend, name, seed, values, read_records(folder / METRICS))


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


def in_words(value: Any) -> str:
    """A value in a label; equal objects have one spelling."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def reads(method: Any, name: str) -> bool:
    """Whether runs of a method read the setting of that name."""
    if name in OF_PONDER:
        return method == "ponder"
    return name not in OF_ACT or method not in ("ponder", "repeat", "once")


def label_groups(runs: Sequence[History]) -> dict[str, list[History]]:
    """The runs by the values in which they differ; without any difference the method is the name."""
    names = {name for run in runs for name in run.values}

    def differ(name: str) -> bool:
        # A value may be anything that JSON knows: compared, and not looked up in a set.
        values = [run.values.get(name) for run in runs if reads(run.values.get("method"), name)]
        return any(value != values[0] for value in values)

    differing = [name for name in sorted(names - {"method"}) if differ(name)]
    groups: dict[str, list[History]] = {}
    for run in runs:
        method = str(run.values.get("method"))
        parts = [f"{name} {in_words(run.values.get(name))}" for name in differing if reads(method, name)]
        group = groups.setdefault(", ".join([method, *parts]), [])
        if twin := next((other for other in group if other.seed == run.seed), None):
            raise Refused(f"{run.folder} and {twin.folder} are the same run with the same seed: give one of them")
        group.append(run)
    return dict(sorted(groups.items(), key=lambda item: ("ponder" not in item[0], item[0])))


def comparable(runs: Sequence[History]) -> dict[str, list[History]]:
    """The runs by what they are asked, each kind with a name for a folder: the task, and what sets it apart."""
    kinds: list[tuple[dict[str, Any], list[History]]] = []
    for run in runs:
        kind = {"task": run.values.get("task"), **(run.task.asked(run.config) if run.task else {})}
        group = next((group for other, group in kinds if other == kind), None)
        if group is None:
            kinds.append((kind, group := []))
        group.append(run)
    named: dict[str, list[History]] = {}
    for kind, group in kinds:
        alike = [other for other, _ in kinds if other["task"] == kind["task"]]
        differing = [name for name in kind if any(other.get(name) != kind[name] for other in alike)]
        differing = [name for name in differing if kind[name] is not None]  # what is not set does not name a kind
        words = [in_words(kind["task"]), *(f"{name} {show(kind[name])}" for name in differing)]
        name = re.sub(r"[^\w.]+", "-", " ".join(words).replace("_", "-")).strip(".-") or "runs"
        copies = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
        named[next(copy for copy in copies if copy not in named)] = group
    return named
