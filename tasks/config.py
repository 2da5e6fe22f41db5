"""Frozen dataclasses as command-line flags and as JSON.

A field made by `option` knows its help text, the paper's own number, its group in `--help` and the values it takes.
From that come the flag, the check with its sentence, and the way to and from JSON. A value comes from the flag,
else from the preset, else from the field's default.
"""

import argparse
import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ponder_ref import checks
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.schemas import check_settings

C = TypeVar("C")


@contextlib.contextmanager
def naming(values: str, all_values: str) -> Iterator[None]:
    """Lets the sentence of a check name all values that a flag takes."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace(values, all_values)) from None


@dataclasses.dataclass(frozen=True)
class Integer:
    """A whole number in low..high; with `off`, also None, written "off" on the command line."""

    low: int
    high: int
    off: bool = False

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{' or off' if self.off else ''}"

    def parse(self, text: str) -> Any:
        if self.off and text == "off":
            return None
        try:
            return int(text)
        except ValueError:
            return text  # not a number: `check` refuses it and shows it as it was written

    def check(self, name: str, value: Any) -> None:
        if not (self.off and value is None):
            with naming(f"{self.low}..{self.high}", str(self)):
                checks.check_count(name, value, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Number:
    """A number in an interval written as in mathematics; with `off`, also None, written "off" on the command line."""

    interval: str
    off: bool = False

    def __str__(self) -> str:
        return f"{self.interval}{' or off' if self.off else ''}"

    def parse(self, text: str) -> Any:
        if self.off and text == "off":
            return None
        try:
            return float(text)
        except ValueError:
            return text

    def check(self, name: str, value: Any) -> None:
        if not (self.off and value is None):
            with naming(self.interval, str(self)):
                checks.check_number(name, value, self.interval)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.words)

    def parse(self, text: str) -> Any:
        return text

    def check(self, name: str, value: Any) -> None:
        if value not in self.words:
            raise ValueError(f"{name} must be one of {self}, got {checks.quoted(value)}")


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
            raise ValueError(f"{name} must be {self}, got {checks.quoted(shown)}")


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
            raise ValueError(f"{name} must be {self}, got {checks.quoted(value)}")


Values = Integer | Number | Choice | Span | Text


def option(default: Any, values: Values, help: str, *, group: str, paper: str | None = None) -> Any:
    """A field of a config. `paper` is the number that the paper's appendix gives, for the help text."""
    return dataclasses.field(default=default, metadata={"values": values, "help": help, "group": group, "paper": paper})


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def show(value: Any) -> str:
    """A value as the command line writes it."""
    if value is None:
        return "off"
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Parser(argparse.ArgumentParser):
    """argparse with one sentence for an error and no abbreviated flags."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The flags that were given; an unknown one is refused, and the nearest known one is named."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            known = [text for action in self._actions for text in action.option_strings]
            near = difflib.get_close_matches(unknown[0].split("=")[0], known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; {self.prog} --help lists the flags"
            raise Refused(f"unknown argument {checks.quoted(unknown[0])}{hint}")
        for action in self._actions:  # argparse has its own idea of "--out=--", and another in every version
            if action.option_strings and getattr(options, action.dest, None) in ([], "--"):
                raise Refused(f"{action.option_strings[0]} needs a value, got '--'")
        return options


def add_flags(parser: argparse.ArgumentParser, config: type, preset: Mapping[str, Any]) -> None:
    """One flag for each field, in the groups that the fields name. Flags that are not given leave no trace.

    The help shows the preset's value as the default.
    """
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        about = field.metadata
        group = groups.get(about["group"]) or groups.setdefault(
            about["group"], parser.add_argument_group(about["group"])
        )
        paper = f"; paper: {about['paper']}" if about["paper"] else ""
        value = preset.get(field.name, field.default)
        default = "auto" if value is None and isinstance(about["values"], Span) else show(value)
        group.add_argument(
            flag(field.name),
            dest=field.name,
            default=argparse.SUPPRESS,
            metavar=field.name.split("_")[-1].upper(),
            help=f"{about['help']} ({about['values']}; default {default}{paper})".replace("%", "%%"),
        )


def given(options: argparse.Namespace, config: type) -> dict[str, Any]:
    """The config's values among the parsed flags, each checked."""
    found = {}
    for field in dataclasses.fields(config):
        if hasattr(options, field.name):
            found[field.name] = field.metadata["values"].parse(getattr(options, field.name))
    check(config, found)
    return found


def check(config: type, values: Mapping[str, Any]) -> None:
    """Refuses a value outside its range, with the name of its flag."""
    for field in dataclasses.fields(config):
        if field.name in values:
            try:
                field.metadata["values"].check(flag(field.name), values[field.name])
            except ValueError as error:
                raise Refused(str(error)) from None


def make(config: type[C], preset: Mapping[str, Any], explicit: Mapping[str, Any]) -> C:
    """Explicit values before the preset's, and those before the defaults."""
    values = {**preset, **explicit}
    check(config, values)
    return config(**values)


def to_json(config: Any) -> dict[str, Any]:
    """Plain values under the fields' names; `from_json` gives back an equal config."""
    return {
        field.name: list(value) if isinstance(value := getattr(config, field.name), tuple) else value
        for field in dataclasses.fields(config)
    }


def from_json(config: type[C], values: dict[str, Any], source: str) -> C:
    """The config that `to_json` wrote; what is unknown or out of range is refused, naming the source.

    A field that is missing was added later and has its default, which is how it was before.
    """
    check_settings(values, source)
    names = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - names):
        raise Refused(f"{source} has the unknown field {checks.quoted(unknown[0])}: it was written by another version")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        check(config, values)
        return config(**values)
    except Refused as error:
        raise Refused(f"{source}: {error}") from None
