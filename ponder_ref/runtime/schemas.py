"""Values of files, checked by schemas: JSON and settings, refused in one sentence that names file and field."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.files import MAX_JSON, read_bytes

T = TypeVar("T")

# What schemas are made of. Never a `pattern`: with one, msgspec 0.22 frees what it does not own in a union with a list.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Setting: Any = float | bool | None | list[Whole] | Whole | Name  # in a file


def complaint(error: Exception) -> str:
    """What a schema says of a value, with the field's name before it."""
    said, _, place = str(error).partition(" - at `")
    place = place.rstrip("`").removeprefix("$").removeprefix(".")
    # A name in the file may be anything: it is shortened, and what cannot be printed is escaped.
    said = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in said[:200].replace("`", ""))
    if said.startswith("Object missing required field "):
        return f"{place}{'.' if place else ''}{said.rpartition(' ')[2]} is missing"
    return f"{place}: {said[:1].lower()}{said[1:]}" if place else f"{said[:1].lower()}{said[1:]}"


def checked(value: Any, kind: type[T], name: object) -> T:
    """The value as its schema has it; `Refused` names file and field."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise Refused(f"{name}: {complaint(error)}") from None


def decoded(data: bytes, kind: Any, name: object) -> Any:
    """The value of JSON by its schema; `Refused` names file and field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(f"{name}: {complaint(error)}") from None
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError):
        raise Refused(f"{name} is not JSON") from None


def check_depth(value: Any, most: int = 8) -> None:
    """`ValueError` for lists and objects within each other so often that code that follows them would not end well."""
    if isinstance(value, list | dict):
        if most == 0:
            raise ValueError("lists or objects are nested too deeply")
        for item in value.values() if isinstance(value, dict) else value:
            check_depth(item, most - 1)


def check_text(**texts: Any) -> None:
    """`ValueError` for a text that cannot be printed: what a terminal does with it, a file should not say."""
    for name, text in texts.items():
        if isinstance(text, str) and not text.isprintable():
            raise ValueError(f"{name} must be text that can be printed, got {text[:60]!r}")


def check_settings(values: dict[str, Any], source: str) -> None:
    """Refuses what no setting can be: objects, lists of other things than integers, integers of more than 64 bits."""
    for name, value in values.items():
        shown = f"{source}: {name if name.isidentifier() else 'a field'}"
        checked(value, Setting, shown)
        try:
            check_text(it=value)
        except ValueError as error:
            raise Refused(f"{shown}: {error}") from None


def read_json(path: Path, kind: Any = Any, missing: str | None = None) -> Any:
    """The content of a small JSON file, by its schema."""
    return decoded(read_bytes(path, MAX_JSON, missing), kind, path)
