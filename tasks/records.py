"""The lines of metrics.jsonl, sessions.jsonl and evaluations.jsonl: written, read, and checked as they are read.

Whoever reads them may rely on it that the fields which are needed are there and are what they should be. A number that
was not finite is null in the file and NaN in memory.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.errors import Refused, reason

METRICS, SESSIONS, EVALUATIONS = "metrics.jsonl", "sessions.jsonl", "evaluations.jsonl"

Record = dict[str, Any]
Fields = dict[str, Callable[[Any], Any]]


class Odd(Exception):
    """What a field must be, or what is wrong with a record."""


def count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise Odd("a count")
    return value


def number(value: Any) -> float:
    """The number itself, NaN for what is not finite."""
    if value is None or (type(value) is float and not math.isfinite(value)):
        return math.nan
    if type(value) is not float and (type(value) is not int or abs(value) >= 2**63):
        raise Odd("a number or null")
    return value


def seconds(value: Any) -> float:
    if not math.isfinite(number(value)):
        raise Odd("a number")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Odd("a name")
    return value


def numbers(value: Any) -> list[float]:
    if not isinstance(value, list):
        raise Odd("a list of numbers")
    return [number(item) for item in value]


def rows(value: Any, fit: Callable[[list[float]], bool], what: str) -> list[list[float]]:
    """Rows of numbers that begin with a difficulty, of one length at least 2."""
    try:
        found = [[count(row[0]), *numbers(row[1:])] for row in value]
        good = len(found) > 0 and all(len(found[0]) == len(row) > 1 and fit(row) for row in found)
    except (Odd, TypeError, IndexError, KeyError):
        good, found = False, []
    if not good:
        raise Odd(f"a list of rows {what}")
    return found


def levels(value: Any) -> list[list[float]]:
    """Rows of exactly four; a difficulty without examples has none."""

    def fit(row: list[float]) -> bool:
        return len(row) == 4 and type(row[1]) is int and row[1] > 0

    return rows(value, fit, "[difficulty, count, accuracy, steps]")


def shares(value: Any) -> list[list[float]]:
    return rows(value, lambda row: True, "[difficulty, chance, ...]")


# Of each kind of record the fields that it must have, and those that are checked where they are there: older runs lack
# some. What is not named here is not computed with.
TRAIN: Fields = {"update": count, "expected_steps": number, "forward_passes": count}
EVAL: Fields = {"update": count, "split": text, "examples": count, "draws": count, "levels": levels}
EVAL |= dict.fromkeys(("accuracy", "sampled_accuracy", "expected_steps", "sampled_steps"), number)
SESSION: Fields = {"backend": text, "from": count, "to": count, "seconds": seconds}
OPTIONAL: Fields = dict.fromkeys(("accuracy", "accuracy_error", "loss", "loss_rec", "loss_reg"), number)
OPTIONAL |= {"forward_passes": count, "step_share": numbers, "step_accuracy": numbers, "level_shares": shares}
MEDIAN: Fields = {"median_accuracy": number, "median_steps": number, "median_levels": levels}  # all, or none
OPTIONAL |= MEDIAN
OPTIONAL |= {"cpu_seconds": seconds, "data": text}


def checked(record: Record, needed: Fields) -> Record:
    made = dict(record)
    checks = needed | {name: check for name, check in OPTIONAL.items() if name not in needed}
    for name, check in checks.items():  # what is needed comes first
        if name in record:
            try:
                made[name] = check(record[name])
            except Odd as what:
                raise Odd(f"{name} must be {what}, got {json.dumps(record[name])[:60]}") from None
        elif name in needed:
            raise Odd(f"{name} is missing")
    if found := [name for name in MEDIAN if name in made]:
        if missing := [name for name in MEDIAN if name not in made]:
            raise Odd(f"{missing[0]} is missing beside {found[0]}")
        if [row[:2] for row in made["median_levels"]] != [row[:2] for row in made.get("levels", [])]:
            raise Odd("median_levels must have the difficulties and counts of levels")
    return made


def has_median(record: Record) -> bool:
    """Whether the method has a distribution over the steps, and its median was noted: older records lack it."""
    return record["draws"] > 0 and "median_levels" in record


def checked_metrics(record: Record) -> Record:
    """A line of the course of a training."""
    kinds: dict[Any, Fields] = {"train": TRAIN, "eval": EVAL, "diverged": {"update": count}}
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise Odd(f"kind must be one of {', '.join(kinds)}, got {json.dumps(kind)[:60]}")
    return checked(record, kinds[kind])


CHECKS: dict[str, Callable[[Record], Record]] = {
    METRICS: checked_metrics,
    SESSIONS: lambda record: checked(record, SESSION),
    EVALUATIONS: lambda record: checked(record, {**EVAL, "max_steps": count}),
}


def read_records(path: Path) -> list[Record]:
    """The whole lines of a file of JSON objects, checked. A last line that a crash cut short is left out."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise Refused(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise Refused(f"cannot read {path}: {reason(error)}") from None
    check = CHECKS.get(path.name, dict)
    records = []
    for place, line in enumerate(lines[:-1], start=1):  # behind the last line feed is nothing, or half a line
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise Refused(f"{path}, line {place}: not a JSON object")
        try:
            records.append(check(record))
        except Odd as odd:
            raise Refused(f"{path}, line {place}: {odd}") from None
    return records


def finite(value: Any) -> Any:
    """The value with null in the place of what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [finite(item) for item in value] if isinstance(value, list) else value


def line_of(record: Record) -> str:
    return json.dumps({name: finite(value) for name, value in record.items()}, allow_nan=False) + "\n"
