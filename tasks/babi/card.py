"""The card of a shipped checkpoint: what it was trained on, how, for how long, and what it scores.

Everything in it is read from the run or computed; card.md is a rendering of card.json.
"""

from typing import Any

from tasks.babi.report import SOLVED, verdict
from tasks.babi.stories import TASK_NAMES
from tasks.babi.task import Babi
from tasks.runs import Run, read_records
from tasks.summary import time_spent, training_command, updates_not_noted

SCORES = ("split", "data", "examples", "accuracy", "sampled_accuracy", "expected_steps", "loss", "levels")


def training_time(run: Run, update: int) -> dict[str, Any]:
    """Hours of the run's sessions; a session that was killed, or goes on still, has not been noted."""
    sessions = [record for record in read_records(run.sessions) if record["from"] < update]
    hours, core_hours = time_spent(sessions)
    return {
        "core_hours": None if core_hours is None else round(core_hours, 2),
        "hours": None if hours is None else round(hours, 2),
        "sessions": len(sessions),
        "backends": sorted({record["backend"] for record in sessions}) or [run.backend],
        "updates_not_noted": updates_not_noted(sessions, update),
    }


def describe_data(config: Any) -> str:
    """What a run was trained on."""
    counts, shares = config.question_counts(), sorted(config.shares().items())
    text = f"generated stories of tasks {config.tasks}: {config.questions} questions a task"
    if shares:
        more = ", ".join(f"{task}: {share:g} times, from {counts[task]}" for task, share in shares)
        text += f", some drawn more often ({more})"
    return text + (f", a new set of them after every {config.renew} updates" if config.renew is not None else "")


def make_card(
    phases: list[tuple[Run, int]], about: dict[str, Any], file: dict[str, Any], scores: list[dict[str, Any]]
) -> dict[str, Any]:
    """The card of a checkpoint.

    phases: the runs that made it, each begun with the one before, and their updates; file: parameters, bytes, sha256;
    scores: evaluations with the name of their data.
    """
    rows = [
        {
            "data": describe_data(run.config),
            "command": training_command(run.config, run.backend, Babi, model=run.model),
            "update": update,
            "updates_planned": run.config.updates,
            "batch_size": run.config.batch_size,
            "examples_seen": update * run.config.batch_size,
            **training_time(run, update),
        }
        for run, update in phases
    ]
    worked = [row["core_hours"] for row in rows]
    return {
        "task": about["task"],
        "spec": about["spec"],
        "model": file,
        "phases": rows,
        "updates": sum(row["update"] for row in rows),
        "examples_seen": sum(row["examples_seen"] for row in rows),
        "core_hours": None if None in worked else round(sum(worked), 2),
        "scores": [{name: record[name] for name in SCORES} for record in scores],
    }


def score_lines(score: dict[str, Any]) -> list[str]:
    """The table of one evaluation, as Markdown."""
    where = "" if score["data"].endswith("generated stories") else " --data-dir DIR"
    lines = [f"## {score['split']}: {score['data']}", "", f"{verdict(score)}.", ""]
    lines += [f"`python -m tasks.babi --evaluate pretrained{where} --split {score['split']}`", ""]
    lines += ["| task | questions | error, % | solved | mean steps |", "|---|---|---|---|---|"]
    for task, count, accuracy, steps in score["levels"]:
        solved = "yes" if 1 - accuracy < SOLVED else "no"
        lines.append(f"| {task} {TASK_NAMES[task]} | {count} | {100 * (1 - accuracy):.2f} | {solved} | {steps:.2f} |")
    return [*lines, ""]


def phase_rows(phase: dict[str, Any]) -> dict[str, str]:
    worked = "" if phase["core_hours"] is None else f" ({phase['core_hours']} core hours)"
    spent = "not noted" if phase["hours"] is None else f"{phase['hours']} hours{worked}"
    hours = f"{spent} in {phase['sessions']} session(s)"
    if phase["updates_not_noted"]:
        hours += f"; {phase['updates_not_noted']} of the updates were made in sessions whose time was not noted"
    stop = "" if phase["update"] == phase["updates_planned"] else f" --stop-at {phase['update']}"
    return {
        "trained on": phase["data"],
        "updates": f"{phase['update']} of {phase['updates_planned']}, batches of {phase['batch_size']}: "
        f"{phase['examples_seen']} examples",
        "time": f"{hours}; {', '.join(phase['backends'])}",
        "command": f"`{phase['command']}{stop}`",
    }


def render(card: dict[str, Any]) -> str:
    """card.md."""
    phases = card["phases"]
    rows = {}
    for number, phase in enumerate(phases, start=1):
        prefix = f"{number}. " if len(phases) > 1 else ""
        rows |= {prefix + name: value for name, value in phase_rows(phase).items()}
    if len(phases) > 1:
        worked = "" if card["core_hours"] is None else f", {card['core_hours']} core hours"
        rows["in all"] = f"{card['updates']} updates, {card['examples_seen']} examples{worked}"
    rows |= {
        "file": f"{card['model']['parameters']} parameters, float32, {card['model']['bytes']} bytes",
        "SHA-256": f"`{card['model']['sha256']}`",
        "standard": card["spec"],
    }
    lines = ["# The shipped bAbI checkpoint", ""]
    lines += ["Made by `python -m tasks.babi.ship RUN`; no number here was typed. No released file was trained on.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    for score in card["scores"]:
        lines += score_lines(score)
    return "\n".join(lines)
