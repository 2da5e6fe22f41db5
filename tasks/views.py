"""What a task tells the rooms that all tasks share: summary, figures, the page of results. Only GROUP has no default.

A task's class inherits `Views` and replaces what is different. Shared rooms ask for these names and know no task.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tasks.metrics import bands
from tasks.summary import table

if TYPE_CHECKING:
    from tasks.results.experiment import Experiment


class Views(Protocol):
    """A `config` is one of the task's `Config`; `records` are lines of metrics.jsonl; a group is a whole number."""

    NAME: ClassVar[str]
    Config: ClassVar[type]
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]]
    GROUP: ClassVar[str]  # what examples are grouped by in tables and figures: "non-zeros"
    ORDERED: ClassVar[bool] = True  # groups are counts, a larger one is harder: joined in bands and drawn as a line
    SHARES: ClassVar[bool] = False  # evaluations keep the halting distribution of every group
    GUESS: ClassVar[float | None] = None  # the accuracy of guessing, where it is the same for all examples
    FILES: ClassVar[Mapping[str, str]] = {}  # settings that name files of one machine, and their word in a command

    config: Any

    @classmethod
    def asked(cls, config: Any) -> dict[str, Any]:
        """What decides which questions a run is asked: runs that differ in it are not drawn in one picture."""
        return {}

    @classmethod
    def trained_to(cls, config: Any) -> int | None:
        """The largest group of training, if the splits "valid-beyond" and "test-beyond" go further."""
        return None

    @classmethod
    def group_name(cls, group: int, config: Any) -> str:
        """What a group is called in a table."""
        return str(group)

    @classmethod
    def draw(cls, config: Any, records: list[dict[str, Any]], folder: Path) -> list[Path]:
        """Draws the task's own figures of a run; learning, halting and ordered groups are drawn for every task."""
        return []

    @classmethod
    def section(cls, experiment: "Experiment", docs: Path) -> list[str]:
        """The lines of an experiment on the page of results; figures go into docs/figures."""
        from tasks.results.general import section

        return section(experiment, docs)

    def report(self, record: dict[str, Any]) -> list[str]:
        """The lines of an evaluation below its means: a table by group."""
        levels = record["levels"]
        rows = bands(levels) if self.ORDERED else [(self.group_name(row[0], self.config), *row[1:]) for row in levels]
        return table(self.GROUP, rows)
