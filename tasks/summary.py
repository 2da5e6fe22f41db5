"""One screen that says what a training or an evaluation came to."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ponder_ref.runtime.errors import shell_word
from tasks.flags import flag, show
from tasks.metrics import price
from tasks.records import has_median


def table(group: str, rows: Iterable[Sequence[Any]]) -> list[str]:
    """Number of examples, accuracy and steps of each group, or band of them, by its name."""
    lines = [f"  {group:>12} {'examples':>9} {'accuracy':>9} {'steps':>7}"]
    return lines + [f"  {name:>12} {n:>9} {accuracy:>9.3f} {steps:>7.2f}" for name, n, accuracy, steps in rows]


def of_record(record: dict[str, Any], task: Any) -> list[str]:
    """An evaluation: accuracy and steps, exact, sampled and at the median step, then the task's own table."""
    coin = (max(record["accuracy"] * (1 - record["accuracy"]), 0.0) / record["examples"]) ** 0.5
    error = record.get("accuracy_error", coin)  # older records lack it; it is at most that of a coin
    lines = [f"{record['split']}: {task.describe(record['split'])}, {record['examples']} examples"]
    if record["draws"]:
        median = has_median(record)
        lines += [
            f"  accuracy {record['accuracy']:.4f} expected (standard error {error:.4f}), "
            f"{record['sampled_accuracy']:.4f} sampled"
            + (f", {record['median_accuracy']:.4f} at the median step" if median else ""),
            f"  steps    {record['expected_steps']:.3f} expected, {record['sampled_steps']:.3f} sampled"
            + (f", {record['median_steps']:.3f} median" if median else ""),
        ]
    else:
        lines += [
            f"  accuracy {record['accuracy']:.4f} (standard error {error:.4f})",
            f"  steps    {record['expected_steps']:.3f}",
        ]
    weight = price(task.config.halting())
    parts = [record.get(name, math.nan) for name in ("loss", "loss_rec", "loss_reg")]  # a file may lack them
    lines.append(f"  loss     {parts[0]:.4f} = {parts[1]:.4f} + {weight:g} · {parts[2]:.4f}")
    return lines + task.report(record)


def of_run(run: Any, task: Any, records: list[dict[str, Any]], figures: list[Path], note: str) -> str:
    """The end of a training."""
    c = task.config
    lines = ["", f"{task.NAME}: {c.method}, {c.optimiser}, {c.updates} updates, seed {c.seed}, backend {run.backend}"]
    for record in records:
        lines += of_record(record, task)
    lines.append(f"run      {run.folder}")
    lines.append(f"figures  {run.figures}" if figures else f"figures  none: {note}")
    lines.append(f"evaluate {run.evaluate_command()} --examples 10000")
    lines.append(f"compare  python -m tasks.figures {shell_word(str(run.folder))} OTHER_RUN... --out FOLDER")
    return "\n".join(lines)


def time_spent(sessions: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Hours of the sessions of a run: by the clock, and of processors (None where that was not noted)."""
    if not sessions:
        return None, None
    worked = [record.get("cpu_seconds") for record in sessions]
    noted = [seconds for seconds in worked if seconds is not None]
    by_clock = sum(record["seconds"] for record in sessions) / 3600
    return by_clock, sum(noted) / 3600 if len(noted) == len(worked) else None


def updates_not_noted(sessions: list[dict[str, Any]], update: int) -> int:
    """How many of a run's first updates are in no session: one that was killed, or goes on still, was not noted."""
    noted: set[int] = set()
    for record in sessions:
        noted |= set(range(record["from"], min(record["to"], update)))
    return update - len(noted)


def for_seeds(name: str, seed: int, shown: str) -> str:
    """The name of a seed's run, as that of several seeds.

    >>> for_seeds("runs/ponder-3", 3, "SEED"), for_seeds("runs/ponder", 3, "SEED")
    ('runs/ponder-SEED', 'runs/ponder')
    """
    return re.sub(rf"-{seed}$", f"-{shown}", name)


def training_command(config: Any, backend: str, task: Any, *, model: str | None = None, seed: str | None = None) -> str:
    """The command that makes a run: the preset nearest to it, and the flags in which it differs.

    `model` is what --model named; `seed` stands for the run's own where the command is that of several runs.
    """
    values = {name: getattr(config, name) for name in config.__dataclass_fields__}
    defaults = task.Config()

    def differences(preset: str) -> dict[str, Any]:
        base = {name: getattr(defaults, name) for name in values} | task.PRESETS[preset]
        return {name: value for name, value in values.items() if value != base[name] and name != "seed"}

    preset = min(task.PRESETS, key=lambda name: len(differences(name)))
    shown = {name: show(value) for name, value in differences(preset).items()}
    shown |= {name: word for name, word in task.FILES.items() if name in shown}  # another place on every machine
    if seed is not None and "start" in shown:  # begun with the run of the same seed, by its name
        shown["start"] = for_seeds(shown["start"], config.seed, seed)
    flags = [f"{flag(name)} {shell_word(value)}" for name, value in sorted(shown.items())]
    flags += [] if model is None else [f"--model {shell_word(model)}"]
    flags += [f"--seed {config.seed if seed is None else seed}", f"--backend {shell_word(backend)}"]
    return " ".join([f"python -m tasks.{task.NAME} --preset {preset}", *flags])
