"""The text that about.json gives an experiment: written by hand, but for the numbers that were measured.

`{updates:RUN}`, `{parameters:RUN}`, `{reach:RUN}` and `{lowest:RUN}` are filled in from the run of that name, `{sure}`
is what counts as solved. Any other number must be a setting of one of the runs, or be listed in about.json under
"given" with what it is: a number of the paper, or one that the task fixes.
"""

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ponder_ref.runtime.errors import Refused
from tasks.history import History
from tasks.results.experiment import Experiment, final_splits
from tasks.results.general import SURE, last_records, reach

WIDTH = 100
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e-?\d+)?"


def levels(run: History) -> list[list[Any]]:
    """Accuracy by group of the run's last test, or of its last validation."""
    (record,) = last_records([run], final_splits([run])[0])
    return record["levels"]


def parameters(task: Any, run: History) -> str:
    """How many numbers the run's model has."""
    made = task(dataclasses.replace(run.config, start=None))
    return f"{sum(array.size for array in made.initial_parameters().values()):,}"


def measures(task: Any) -> dict[str, Callable[[History], str]]:
    return {
        "updates": lambda run: f"{run.last_update:,}",
        "parameters": lambda run: parameters(task, run),
        "reach": lambda run: reach(levels(run)),
        "lowest": lambda run: f"{min(accuracy for _, _, accuracy, _ in levels(run)):.3f}",
    }


def fill(experiment: Experiment, text: str) -> str:
    """The text with what was measured in its places."""
    runs, known = experiment.runs, measures(experiment.task)

    def value(place: re.Match[str]) -> str:
        name, _, run = place[1].partition(":")
        if place[1] == "sure":
            return str(SURE)
        if name not in known or run not in runs:
            raise Refused(f"{experiment.folder / 'about.json'}: {place[0]} is not known, or names no run")
        return known[name](runs[run])

    return re.sub(r"\{([^{}]*)\}", value, text)


def numbers(text: str) -> Iterator[str]:
    """The numbers of a text that are no part of a word, of code or of a place to be filled in."""
    bare = re.sub(r"`[^`]*`|\{[^{}]*\}", " ", text)
    yield from re.findall(rf"(?<![\w.-])(?:{NUMBER})(?![\w-])", bare)


def settings(experiment: Experiment) -> set[float]:
    """Every number among the settings of the runs."""
    found: set[float] = set()
    for run in experiment.runs.values():
        for field in dataclasses.fields(run.config):
            value = getattr(run.config, field.name)
            text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            found |= {float(number) for number in re.findall(NUMBER, text)}
    return found


def check(experiment: Experiment) -> None:
    """Refuses a number in a text or label that may have been measured and typed."""
    about = experiment.about
    given = {number.replace(",", "") for number in about.get("given", {})}
    known = settings(experiment)
    for text in (about["title"], about["text"], *about.get("labels", {}).values()):
        for number in numbers(text):
            plain = number.replace(",", "")
            if plain not in given and float(plain) not in known:
                raise Refused(
                    f"{experiment.folder / 'about.json'}: {number} is neither a setting of a run nor listed under "
                    '"given": a number that was measured is filled in'
                )


def paragraphs(experiment: Experiment) -> str:
    """The text of an experiment, filled in and wrapped; "N = 8" stays on one line."""
    check(experiment)
    filled = fill(experiment, experiment.about["text"]).replace(" = ", "\0=\0")
    wrapper = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(wrapper.fill, filled.split("\n\n"))).replace("\0", " ")
