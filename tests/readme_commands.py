"""The commands of the pages, each parsed by the program that it calls. A helper of the tests, not a test itself.

A command that no rule knows is an error: a new kind of command needs a rule here.
"""

import argparse
import ast
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from readme import COMMANDS_FIRST, NOT_RUN, ROOT, SHELL, python_blocks, read, run

from ponder_ref.runtime.errors import Refused
from tasks import command as task_command
from tasks import registry
from tasks.flags import given, make
from tasks.registry import task_class

PROGRAMS = ("python", "pip", "uv", "nox", "git", "pytest", "ruff", "pyright", "sphinx-build", "printf", ".ci/run")
BUILT_IN = ("cd", ".")  # of the shell
# Words that stand for a value of the reader's. Others (DIR, RUN, FILE) are names of files and parse as they are.
VALUES = {"SEED": "0", "UPDATE": "1", "ARGS": "training"}
TASKS = {f"tasks.{name}": name for name in registry.TASKS}
BEHIND = {"conformance": "ponder_ref.conformance", "bench": "benchmarks", "judge_peers": "benchmarks.peers"}


class Command(NamedTuple):
    """A command and where it was found."""

    page: str
    line: int
    text: str


class NotParsed(AssertionError):
    """A command that is not what its program takes, or that no rule knows."""


def commands(page: str) -> Iterator[Command]:
    """Every line of a shell block, every line of indented code and every span in backticks that calls a program."""
    blocks, prose = read(page)
    for block in blocks:
        if block.language in SHELL:
            text = block.text.replace("\\\n", "  ")
            for number, line in enumerate(text.splitlines(), block.line):
                if shlex.split(line, comments=True):
                    yield Command(page, number, line)
        elif block.language != "python" and block.language not in NOT_RUN and not re.match(r"{\w+}", block.language):
            raise NotParsed(f"{page}, line {block.line}: a block of {block.language!r}, which no rule knows")
    for number, line in enumerate(prose.splitlines(), 1):
        if line.startswith("    ") and first_word(line) in PROGRAMS:
            yield Command(page, number, line)
    for span in re.finditer(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)", prose):  # it may go on in the next line
        if first_word(span[1]) in PROGRAMS:
            yield Command(page, prose.count("\n", 0, span.start()) + 1, " ".join(span[1].split()))


def first_word(text: str) -> str:
    return (text.split() or [""])[0]


def parts(text: str) -> list[list[str]]:
    """The programs of a line with their arguments; what is read from a file or piped is left to the shell."""
    words = shlex.shlex(text, posix=True, punctuation_chars="&|;<>")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("&&", "|", ";"):
            found.append([])
        elif word in ("<", ">"):
            skip = True
        else:
            found[-1].append(VALUES.get(word, word))
    return found


class Parsed(BaseException):
    """Ends a program once it has parsed its arguments; no `except Exception` catches it."""

    def __init__(self, options: argparse.Namespace):
        super().__init__()
        self.options = options


def parse_by(main: Callable[[], Any], arguments: list[str]) -> argparse.Namespace:
    """What the program's own parser makes of the arguments; the program goes no further."""
    parse, depth = argparse.ArgumentParser.parse_known_args, 0

    def hooked(self, *given, **settings):
        nonlocal depth
        depth += 1  # the parser of a sub-command is called by that of the program
        try:
            options, unknown = parse(self, *given, **settings)
        finally:
            depth -= 1
        if depth == 0 and not unknown:
            raise Parsed(options)
        return options, unknown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", hooked)
        patch.setattr(sys, "argv", ["program", *arguments])
        try:
            code = main()
        except Parsed as parsed:
            return parsed.options
        except SystemExit as left:
            code = left.code
    if "--help" in arguments and code == 0:
        return argparse.Namespace()
    raise NotParsed(f"refused with exit code {code}")


def load_script(path: Path) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_python(words: list[str]) -> None:
    """python -m MODULE ..., python FILE ..."""
    if words[:2] == ["-m", "venv"]:
        if len(words) != 3:
            raise NotParsed("python -m venv takes one folder")
        return
    name, arguments = (words[1], words[2:]) if words[0] == "-m" else (words[0], words[1:])
    if words[0] == "-m":
        found = importlib.util.find_spec(name)
        if found is None:
            raise NotParsed(f"there is no module {name}")
        full = f"{name}.__main__" if found.submodule_search_locations else name
        path = Path(importlib.util.find_spec(full).origin)  # type: ignore[union-attr,arg-type]
    else:
        path = ROOT / name
    if not path.is_file() or not path.is_relative_to(ROOT):
        raise NotParsed(f"{name} is not a module or script of this repository")
    # A program without a parser would simply run here.
    if not re.search(r"Parser\(|\bparser\(|from tasks.command import", path.read_text(encoding="utf-8")):
        raise NotParsed(f"{name} does not parse its arguments")
    module = importlib.import_module(full) if words[0] == "-m" else load_script(path)
    options = parse_by(module.main, arguments)
    if name in TASKS and "--help" not in arguments:
        check_settings(task_class(TASKS[name]), options)


def check_settings(task: Any, options: argparse.Namespace) -> None:
    """The values of a task's flags, too: its preset exists and every setting is in its range."""
    try:
        config = make(task.Config, task_command.preset_of(task, options), given(options, task.Config))
        if hasattr(options, "stop_at"):
            task_command.stop_update(options, config)
    except Refused as error:
        raise NotParsed(str(error)) from None


def extras() -> set[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return set(tomllib.load(file)["project"]["optional-dependencies"])


def check_pip(words: list[str]) -> None:
    """pip install, of packages or of this project with extras that it has."""
    if words[:1] != ["install"]:
        raise NotParsed("pip is documented for install alone")
    rest = iter(words[1:])
    for word in rest:
        if word == "-e":
            local = re.fullmatch(r"\.(?:\[([\w,]+)\])?", next(rest, ""))
            if local is None:
                raise NotParsed("-e is followed by .[EXTRAS]")
            if unknown := set((local[1] or "").split(",")) - extras() - {""}:
                raise NotParsed(f"pyproject.toml has no extra {', '.join(sorted(unknown))}")
        elif word not in ("--no-deps", "--torch-backend=cpu"):
            Requirement(word)  # raises for what is none, unknown flags among it


def sessions() -> set[str]:
    """The names of nox's sessions, read without nox."""
    body = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {node.name for node in functions if any("nox.session" in ast.unparse(d) for d in node.decorator_list)}


def check_nox(words: list[str]) -> None:
    """nox, its sessions, and what stands behind -- by the parser of what the session runs."""
    own, behind = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    named = [word for word in own if not word.startswith("-") and word != "NAME"]
    if flags := [word for word in own if word.startswith("-") and word not in ("-s", "-l", "-R")]:
        raise NotParsed(f"nox's {flags[0]} is not known here")
    if named and "-s" not in own:
        raise NotParsed("sessions stand behind -s")
    if unknown := set(named) - sessions():
        raise NotParsed(f"noxfile.py has no session {', '.join(sorted(unknown))}")
    if behind and set(named) <= set(BEHIND):
        for name in named:
            check_python(["-m", BEHIND[name], *behind])
    elif behind and behind[0] != "-k":  # the others hand it to pytest
        raise NotParsed(f"no rule knows {' '.join(behind)} behind --")


def check_git(words: list[str]) -> None:
    if not (words[:1] == ["clone"] and len(words) == 3):
        raise NotParsed("git is documented for clone ADDRESS FOLDER alone")


def check_no_more(words: list[str]) -> None:
    if words:
        raise NotParsed(f"no rule knows the arguments {' '.join(words)}")


def check_ruff(words: list[str]) -> None:
    if words not in (["check"], ["format"]):
        raise NotParsed("ruff is documented for check and format alone")


def check_uv(words: list[str]) -> None:
    if words[:1] != ["pip"]:
        raise NotParsed("uv is documented for uv pip alone")
    check_pip(words[1:])


def check_free(words: list[str]) -> None:
    """The shell's own: any arguments."""


RULES = {
    "python": check_python,
    "pip": check_pip,
    "uv": check_uv,
    "nox": check_nox,
    "git": check_git,
    "pytest": check_no_more,
    ".ci/run": check_no_more,
    "ruff": check_ruff,
    "printf": check_free,
    "cd": check_free,
    ".": check_free,
}


def check(command: Command) -> None:
    """Raises NotParsed for a command that its program would refuse, or that no rule knows."""
    where = f"{command.page}, line {command.line}: {command.text.strip()}"
    for words in parts(command.text):
        if not words or words[0] not in RULES:
            raise NotParsed(f"{where}: no rule knows this program")
        try:
            RULES[words[0]](words[1:])
        except (NotParsed, ValueError) as error:
            raise NotParsed(f"{where}: {error}") from None


def section_lines(page: str, title: str) -> set[int]:
    """The lines in shell blocks of a section of a page; "" is the page."""
    blocks, prose = read(page)
    lines = prose.splitlines()
    heads = [number for number, line in enumerate(lines, 1) if line.startswith("## ")] + [len(lines) + 1]
    first = lines.index(f"## {title}") + 1 if title else 0
    last = min(number for number in heads if number > first) if title else heads[-1]
    shell = [block for block in blocks if block.language in SHELL and first < block.line < last]
    return {block.line + number for block in shell for number in range(block.text.count("\n"))}


def make_what_is_read(page: str, framework: str, folder: Path) -> None:
    """Makes what the Python code of a page reads: the files it shows, and what the shell blocks of its section make.

    Trainings and evaluations are run by this framework; those with a file of another framework are left out.
    """
    if page not in COMMANDS_FIRST:
        return
    (folder / "tasks").symlink_to(ROOT / "tasks")  # for paths as in the clone
    files = {block.file: block for block in python_blocks(page) if block.file}
    for name, block in files.items():
        (folder / name).write_text(block.text, encoding="utf-8")
    lines = section_lines(page, COMMANDS_FIRST[page])
    for words in (words for command in commands(page) if command.line in lines for words in parts(command.text)):
        used = [block.framework for name, block in files.items() if any(w.startswith(f"{name}:") for w in words)]
        if words[:2] == ["python", "-m"] and set(used) <= {framework}:
            run([framework if before == "--backend" else word for before, word in pairwise(words)], folder)
