"""What a benchmark of updates finds: printed as it goes, and kept as JSON, from which the page of results is made."""

import argparse
import importlib.metadata
import json
import os
import platform
from typing import Any

from benchmarks.shared import quartiles, ratios
from ponder_ref.runtime.checkpoint import write_whole
from tasks.runs import make_folder

PACKAGES = ("numpy", "torch", "jax", "labml-nn")  # what the times depend on, where it is installed
NOT_SAID = ("run", "command", "out")  # options that change nothing of what is measured


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def command_of(name: str, options: argparse.Namespace) -> str:
    """The command with every option spelt out."""
    words = ["python -m benchmarks", name]
    for option, value in vars(options).items():
        if option in NOT_SAID or value is False:
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{option}" if value is True else f"--{option} {text}")
    return " ".join(words)


class Report:
    """The tables and sentences of one benchmark; `about` says in a few lines what is timed."""

    def __init__(self, name: str, options: argparse.Namespace, *about: str):
        self.name, self.out = name, options.out
        self.content: dict[str, Any] = {
            "benchmark": name,
            "command": command_of(name, options),
            "about": " ".join(about),
            "versions": versions(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "tables": [],
            "sentences": [],
        }
        if self.out is not None:  # before anything is measured
            make_folder(self.out)
        print("\n".join(about) + "\n", flush=True)

    def table(self, title: str, seconds: dict[str, list[float]], base: str) -> None:
        """Prints and keeps the quartiles of each, compared with the base: the same figures."""
        rows = quartiles(seconds, base)
        self.content["tables"].append({"title": title, "base": base, "rows": rows})
        apart = "\n" if self.content["sentences"] else ""
        print(f"{apart}{title}\n\n{ratios(rows)}\n", flush=True)

    def say(self, sentence: str) -> None:
        self.content["sentences"].append(sentence)
        print(sentence, flush=True)

    def write(self) -> None:
        """With --out the JSON is written there, under the benchmark's name."""
        if self.out is None:
            return
        file = self.out / f"{self.name}.json"
        write_whole(file, (json.dumps(self.content, indent=1, ensure_ascii=False) + "\n").encode())
        print(f"wrote {file}")
