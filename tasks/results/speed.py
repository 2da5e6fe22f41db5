"""The section of speed: what `python -m benchmarks NAME --out docs/results/speed` measured."""

from pathlib import Path
from typing import Any

from ponder_ref.runtime.errors import Refused
from tasks.results.experiment import table
from tasks.runs import read_json


def ratio_table(measured: dict[str, Any]) -> list[str]:
    rows = [
        [name, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"] for name, (low, middle, high) in measured["rows"].items()
    ]
    return [f"{measured['title']}:", "", *table(["", "median", "quartiles"], rows), ""]


def benchmark(content: dict[str, Any]) -> list[str]:
    """Title, command and circumstances, the tables, and what they come to."""
    said = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    lines = [
        f"### {content['benchmark']}",
        "",
        f"{content['about']}. `{content['command']}`; {said}; {content['machine']}.",
        "",
    ]
    for measured in content["tables"]:
        lines += ratio_table(measured)
    sentences = [f"- {sentence}" for sentence in content["sentences"]]
    return [*lines, *sentences, ""] if sentences else lines


def section(folder: Path, about: dict[str, Any]) -> list[str]:
    """Every benchmark in the folder: first those that about.json lists under "order"."""
    order = about.get("order", [])
    names = {path.stem for path in folder.glob("*.json")} - {"about"}
    lines = []
    for path in (folder / f"{name}.json" for name in [*order, *sorted(names - set(order))]):
        try:
            lines += benchmark(read_json(path))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Refused(f"{path} is not what python -m benchmarks {path.stem} --out writes") from None
    return lines
