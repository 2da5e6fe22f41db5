"""The card of a shipped checkpoint: what it was trained on, how, for how long, and what it scores.

Everything in it is read from the run or computed; card.md is a rendering of card.json.
"""

from typing import Any

from tasks.babi.report import SOLVED, verdict
from tasks.babi.stories import TASK_NAMES
from tasks.runs import Run, read_records
from tasks.summary import time_spent, training_command

SCORES = ("split", "data", "examples", "accuracy", "sampled_accuracy", "expected_steps", "loss", "levels")


def training_time(run: Run, update: int) -> dict[str, Any]:
    """Hours of the run's sessions; a session that was killed, or goes on still, has not been noted."""
    sessions = [record for record in read_records(run.sessions) if record["from"] < update]
    noted: set[int] = set()
    for record in sessions:
        noted |= set(range(record["from"], min(record["to"], update)))
    hours, core_hours = time_spent(sessions)
    return {
        "core_hours": None if core_hours is None else round(core_hours, 2),
        "hours": round(hours, 2),
        "sessions": len(sessions),
        "backends": sorted({record["backend"] for record in sessions}) or [run.backend],
        "updates_not_noted": update - len(noted),
    }


def make_card(run: Run, task: Any, about: dict[str, Any], file: dict[str, Any], scores: list[dict[str, Any]]) -> dict:
    """The card of a run's checkpoint. `file`: parameters, bytes, sha256; scores: evaluations with the name of their
    data."""
    c, update = run.config, about["update"]
    return {
        "task": run.task,
        "spec": about["spec"],
        "model": file,
        "data": f"{task.describe('train')}: {c.questions} questions a task"
        + (f", a new set of them after every {c.renew} updates" if c.renew is not None else ""),
        "command": training_command(run, task),
        "update": update,
        "updates_planned": c.updates,
        "batch_size": c.batch_size,
        "examples_seen": update * c.batch_size,
        **training_time(run, update),
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


def render(card: dict[str, Any]) -> str:
    """card.md."""
    worked = "" if card["core_hours"] is None else f" ({card['core_hours']} core hours)"
    hours = f"{card['hours']} hours{worked} in {card['sessions']} session(s)"
    if card["updates_not_noted"]:
        hours += f"; {card['updates_not_noted']} of the updates were made in sessions whose time was not noted"
    rows = {
        "trained on": card["data"],
        "updates": f"{card['update']} of {card['updates_planned']}, batches of {card['batch_size']}: "
        f"{card['examples_seen']} examples",
        "time": f"{hours}; {', '.join(card['backends'])}",
        "command": f"`{card['command']}`",
        "file": f"{card['model']['parameters']} parameters, float32, {card['model']['bytes']} bytes",
        "SHA-256": f"`{card['model']['sha256']}`",
        "standard": card["spec"],
    }
    lines = ["# The shipped bAbI checkpoint", ""]
    lines += ["Made by `python -m tasks.babi.ship`; no number here was typed. No released file was trained on.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    for score in card["scores"]:
        lines += score_lines(score)
    return "\n".join(lines)
