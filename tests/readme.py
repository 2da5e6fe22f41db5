"""Reads the pages of the repository: their code blocks and commands. A helper of the tests, not a test itself."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HISTORY = ("CHANGELOG.md",)  # it names what was
FOLDERS = ("docs", "spec", "tasks", "benchmarks", "scripts", "backends", "ponder_ref")
IMPORTS = {  # what a Python block imports decides where it is run
    "torch": ("torch", "ponder_torch"),
    "jax": ("jax", "flax", "optax", "ponder_jax"),
    "ref": ("ponder_ref",),
}
NOT_RUN = ("text", "toml", "json")  # and the directives of Sphinx, such as {figure}
SHELL = ("sh", "shell")
# Python code of these pages reads what commands of the page make: those of this section, "" is the whole page.
COMMANDS_FIRST = {"docs/export.md": "", "README.md": "What is trained is what is used"}


class Block(NamedTuple):
    """A fenced block: its page, the line of its first line of text, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def framework(self) -> str | None:
        """torch, jax or ref (the reference alone); None: it goes with any of its page."""
        return next((name for name, modules in IMPORTS.items() if any(map(self.imports, modules))), None)

    @property
    def file(self) -> str | None:
        """The file that it is, by its first line: # my_net.py."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named and named[1]

    def imports(self, module: str) -> bool:
        return re.search(rf"^\s*(import|from)\b.*\b{module}\b", self.text, flags=re.M) is not None


def pages() -> list[str]:
    """Every page of the repository that describes it as it is now."""
    found = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
    names = sorted(path.relative_to(ROOT).as_posix() for path in found if "_build" not in path.parts)
    return [name for name in names if name not in HISTORY]


def split(page: str, text: str) -> tuple[list[Block], str]:
    """The fenced blocks of a page, and its text without them, with as many lines; a directive's text is prose."""
    blocks, rest = [], []
    fence, first, language, lines = "", 0, "", []
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,})\s*(\S*)", line)
        if fence and mark and mark[1] == fence and not mark[2]:
            blocks.append(Block(page, first, language, "\n".join(lines) + "\n"))
            fence = ""
        elif fence:
            lines.append(line)
        elif mark:
            fence, language, first, lines = mark[1], mark[2], number + 1, []
        inside = mark is not None or bool(fence and not language.startswith("{"))
        rest.append("" if inside else line)
    assert not fence, f"{page}: the block that begins before line {first} has no end"
    return blocks, "\n".join(rest)


def read(page: str) -> tuple[list[Block], str]:
    return split(page, (ROOT / page).read_text(encoding="utf-8"))


def python_blocks(page: str) -> list[Block]:
    return [block for block in read(page)[0] if block.language == "python"]


def frameworks(page: str) -> set[str]:
    """Where a page's Python blocks are run."""
    return {name for block in python_blocks(page) if (name := block.framework) is not None}


def pages_of(framework: str) -> list[str]:
    """The pages that have Python blocks of this framework."""
    return [page for page in pages() if framework in frameworks(page)]


def printed(blocks: list[Block]) -> Iterator[str]:
    """What the comments behind `print` promise: numbers and arrays, up to a colon."""
    for block in blocks:
        yield from (text.strip() for text in re.findall(r"^print\(.*\)  # ([\d\[][^:\n]*)", block.text, flags=re.M))


def environment() -> dict[str, str]:
    """For a process that runs from another folder than the clone."""
    paths = [ROOT, ROOT / "backends" / "torch", ROOT / "backends" / "jax"]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}


def run(arguments: list[str], folder: Path, text: str | None = None) -> str:
    """What a Python process in this folder prints; it must end well."""
    command = [sys.executable, *arguments]
    settings = {"cwd": folder, "env": environment(), "input": text, "capture_output": True, "encoding": "utf-8"}
    done = subprocess.run(command, **settings)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_blocks(page: str, framework: str, folder: Path) -> str:
    """Runs a page's Python blocks, in order, in one namespace of a fresh process, warnings being errors; its output.

    The blocks are those of the framework and those that import none, which go with any.
    """
    blocks = [block for block in python_blocks(page) if block.framework in (framework, None)]
    parts = [f"exec(compile({block.text!r}, {f'{page}, block at line {block.line}'!r}, 'exec'))" for block in blocks]
    output = run(["-W", "error", "-"], folder, "\n".join(parts))
    for promised in printed(blocks):
        assert promised in output, f"{page} promises {promised}; printed was:\n{output}"
    return output
