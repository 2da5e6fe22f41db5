"""Settings (`ponder_ref.runtime.values`) as command-line flags and as JSON.

A field's declaration gives its flag, its check with an error message, and its form in JSON. A value comes
from the flag, else from the preset, else from the field's default.
"""

import argparse
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ponder_ref.checks import SettingError, quoted
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.schemas import check_settings
from ponder_ref.runtime.values import Span, Values

C = TypeVar("C")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def by_flag(error: SettingError) -> Refused:
    """The sentence of a refused setting, with the name of its flag."""
    return Refused(f"{flag(error.name)} {error.said}")


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
            raise Refused(f"unknown argument {quoted(unknown[0])}{hint}")
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
                field.metadata["values"].check(field.name, values[field.name])
            except SettingError as error:
                raise by_flag(error) from None


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
        raise Refused(f"{source} has the unknown field {quoted(unknown[0])}: it was written by another version")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        check(config, values)
        return config(**values)
    except Refused as error:
        raise Refused(f"{source}: {error}") from None


def flag_value(options: argparse.Namespace, name: str, values: Values, default: Any = "") -> Any:
    """The checked value of a flag that belongs to the command and not to a config; `default` if it was not given."""
    value = values.parse(getattr(options, name, str(default)))
    try:
        values.check(name, value)
    except SettingError as error:
        raise by_flag(error) from None
    return value


def refuse(options: argparse.Namespace, names: Sequence[str], where: str) -> None:
    for name in names:
        if hasattr(options, name):
            raise Refused(f"{flag(name)} {where}")
