"""Settings as fields of frozen dataclasses: each is declared once, with its values, its help and the paper's number.

A field made by `option` knows which values it takes; command lines and JSON are checked by that. A class that inherits
it changes what differs by `again`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ponder_ref import checks
from ponder_ref.checks import SettingError


def _parsed(kind: Callable[[str], Any], text: str, off: bool) -> Any:
    """A number as its text says it; what is none stays text: `check` refuses it and shows it as it was written."""
    try:
        return None if off and text == "off" else kind(text)
    except ValueError:
        return text


@dataclasses.dataclass(frozen=True)
class Integer:
    """A whole number in low..high; with `off`, also None, written "off" on the command line."""

    low: int
    high: int
    off: bool = False

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{' or off' if self.off else ''}"

    def parse(self, text: str) -> Any:
        return _parsed(int, text, self.off)

    def check(self, name: str, value: Any) -> None:
        if not (self.off and value is None) and not checks.is_count(value, self.low, self.high):
            raise SettingError(name, f"must be an integer in {self}, got {checks.quoted(value)}")


@dataclasses.dataclass(frozen=True)
class Number:
    """A number in an interval written as in mathematics; with `off`, also None, written "off" on the command line."""

    interval: str
    off: bool = False

    def __str__(self) -> str:
        return f"{self.interval}{' or off' if self.off else ''}"

    def parse(self, text: str) -> Any:
        return _parsed(float, text, self.off)

    def check(self, name: str, value: Any) -> None:
        if not (self.off and value is None) and not checks.is_number(value, self.interval):
            raise SettingError(name, f"must be a number in {self}, got {checks.quoted(value)}")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.words)

    def parse(self, text: str) -> Any:
        return text

    def check(self, name: str, value: Any) -> None:
        checks.check_choice(name, value, self.words)


@dataclasses.dataclass(frozen=True)
class Span:
    """A range first..last within low..high, written "first-last"; a single number stands for both, "auto" for None."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"FIRST-LAST within {self.low}..{self.high}, or auto"

    def parse(self, text: str) -> Any:
        if text == "auto":
            return None
        try:
            ends = tuple(int(part) for part in text.split("-"))
        except ValueError:
            return text
        return ends * 2 if len(ends) == 1 else ends

    def check(self, name: str, value: Any) -> None:
        if value is None:
            return
        whole = isinstance(value, tuple) and len(value) == 2 and all(type(end) is int for end in value)
        if not (whole and self.low <= value[0] <= value[1] <= self.high):
            shown = "-".join(map(str, value)) if isinstance(value, tuple) else value
            raise SettingError(name, f"must be {self}, got {checks.quoted(shown)}")


@dataclasses.dataclass(frozen=True)
class Text:
    """Any words but none; with `off`, also None, written "off" on the command line."""

    off: bool = False

    def __str__(self) -> str:
        return "text or off" if self.off else "text"

    def parse(self, text: str) -> Any:
        return None if self.off and text == "off" else text

    def check(self, name: str, value: Any) -> None:
        if not (isinstance(value, str) and value) and not (self.off and value is None):
            raise SettingError(name, f"must be {self}, got {checks.quoted(value)}")


Values = Integer | Number | Choice | Span | Text


def option(default: Any, values: Values, help: str, *, group: str, paper: str | None = None) -> Any:
    """A setting. `paper` is the number that the paper's appendix gives, for the help text."""
    return dataclasses.field(default=default, metadata={"values": values, "help": help, "group": group, "paper": paper})


def again(base: Any, name: str, **changes: Any) -> Any:
    """A setting of the class `base` with another default, range, help or number of the paper, for one that inherits."""
    (field,) = (field for field in dataclasses.fields(base) if field.name == name)
    default = changes.pop("default", field.default)
    return dataclasses.field(default=default, metadata={**field.metadata, **changes})


def part_of(settings: Any, part: type) -> dict[str, Any]:
    """The values of those settings that are fields of `part`."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(part)}
