"""The lines of metrics.jsonl, sessions.jsonl and evaluations.jsonl: written, read, and checked as they are read.

A reader may rely on it that the fields which are needed are there and are what they should be. A number that was not
finite is null in the file and NaN in memory.
"""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.files import opened
from ponder_ref.runtime.schemas import Count, Name, check_depth, check_text, checked, decoded

METRICS, SESSIONS, EVALUATIONS = "metrics.jsonl", "sessions.jsonl", "evaluations.jsonl"
MAX_LINE, MAX_BYTES = 2**22, 2**30

Record = dict[str, Any]
Number = float | None
Level = tuple[Count, Annotated[int, msgspec.Meta(ge=1)], Number, Number]  # difficulty, count, accuracy, steps
Levels = Annotated[list[Level], msgspec.Meta(min_length=1)]


class Train(msgspec.Struct, tag_field="kind", tag="train"):
    """The means of a stretch of updates. Fields that are not named in these classes are not computed with."""

    update: Count
    forward_passes: Count
    expected_steps: Number
    loss: Number | UnsetType = UNSET
    loss_rec: Number | UnsetType = UNSET
    loss_reg: Number | UnsetType = UNSET
    accuracy: Number | UnsetType = UNSET


class Eval(msgspec.Struct, tag_field="kind", tag="eval"):
    """An evaluation; what older runs lack may be unset."""

    update: Count
    split: Name
    examples: Annotated[int, msgspec.Meta(ge=1)]
    draws: Count
    accuracy: Number
    sampled_accuracy: Number
    expected_steps: Number
    sampled_steps: Number
    levels: Levels
    loss: Number | UnsetType = UNSET
    loss_rec: Number | UnsetType = UNSET
    loss_reg: Number | UnsetType = UNSET
    step_share: list[Number] | UnsetType = UNSET
    step_accuracy: list[Number] | UnsetType = UNSET
    level_shares: Annotated[list[list[Number]], msgspec.Meta(min_length=1)] | UnsetType = UNSET
    forward_passes: Count | UnsetType = UNSET
    accuracy_error: Number | UnsetType = UNSET
    median_accuracy: Number | UnsetType = UNSET
    median_steps: Number | UnsetType = UNSET
    median_levels: Levels | UnsetType = UNSET
    data: Name | UnsetType = UNSET

    def __post_init__(self) -> None:
        """What must fit together across fields, and can be printed."""
        check_text(split=self.split, data=self.data)
        shares, right = self.step_share, self.step_accuracy
        if (0 if shares is UNSET else len(shares)) != (0 if right is UNSET else len(right)):
            raise ValueError("step_share and step_accuracy must have the same length")
        rows = [] if self.level_shares is UNSET else self.level_shares
        if any(not len(rows[0]) == len(row) > 1 or type(row[0]) is not float for row in rows):
            raise ValueError("level_shares must be a list of rows [difficulty, chance, ...] of one length")
        medians = ("median_accuracy", "median_steps", "median_levels")
        there = [name for name in medians if getattr(self, name) is not UNSET]
        if there and there != list(medians):
            missing = next(name for name in medians if name not in there)
            raise ValueError(f"{missing} is missing beside {there[0]}")
        if self.median_levels is not UNSET and [row[:2] for row in self.median_levels] != [
            row[:2] for row in self.levels
        ]:
            raise ValueError("median_levels must have the difficulties and counts of levels")


class Diverged(msgspec.Struct, tag_field="kind", tag="diverged"):
    update: Count


class Evaluation(Eval, kw_only=True, tag_field="kind", tag="eval"):
    """An evaluation that was kept with --record."""

    max_steps: Count


class Session(msgspec.Struct):
    """What one process did of a run; seconds by the clock and of processors."""

    backend: Name
    begin: Count = msgspec.field(name="from")
    end: Count = msgspec.field(name="to")
    seconds: float
    cpu_seconds: float | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_text(backend=self.backend)


SCHEMAS: dict[str, Any] = {METRICS: Train | Eval | Diverged, SESSIONS: Session, EVALUATIONS: Evaluation}


def has_median(record: Record) -> bool:
    """Whether the method has a distribution over the steps, and its median was noted: older records lack it."""
    return record["draws"] > 0 and "median_levels" in record


def in_memory(value: Any) -> Any:
    """NaN for null, a float for an integer that is too large for others."""
    return math.nan if value is None else float(value) if type(value) is int and abs(value) >= 2**63 else value


def read_records(path: Path) -> list[Record]:
    """The whole lines of a file of JSON objects, checked. A last line that a crash cut short is left out."""
    schema, records = SCHEMAS.get(path.name, dict[str, Any]), []
    if not os.path.lexists(path):
        return []
    with opened(path, MAX_BYTES) as file:
        while (line := file.readline(MAX_LINE)).endswith(b"\n"):
            name = f"{path}, line {len(records) + 1}"
            record = decoded(line, dict[str, Any], name)
            checked(record, schema, name)
            try:
                check_depth(record)
                records.append(map_json(in_memory, record))
            except (OverflowError, ValueError) as error:
                raise Refused(f"{name}: {error}") from None
        if len(line) == MAX_LINE:
            raise Refused(f"{path}, line {len(records) + 1}: longer than {MAX_LINE} bytes")
    return records


def map_json(fn: Callable[[Any], Any], value: Any) -> Any:
    """fn of every number, text and null of a JSON value; null is a value here, not an empty tree."""
    if isinstance(value, dict):
        return {name: map_json(fn, part) for name, part in value.items()}
    return [map_json(fn, part) for part in value] if isinstance(value, list | tuple) else fn(value)


def line_of(record: Record) -> str:
    """The record as a line, with null in the place of what is not finite."""
    finite = map_json(lambda x: None if isinstance(x, float) and not math.isfinite(x) else x, record)
    return json.dumps(finite, allow_nan=False) + "\n"
