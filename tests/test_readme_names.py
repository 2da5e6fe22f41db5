"""Files, modules and names of the project that the pages mention are there."""

import ast
import re
from pathlib import Path

import pytest
from readme import ROOT, pages, read

PACKAGES = {"ponder_torch": ROOT / "backends" / "torch", "ponder_jax": ROOT / "backends" / "jax"}
DOTTED = ("ponder_ref", "ponder_torch", "ponder_jax", "tasks", "benchmarks", "scripts")
FOLDERS = (*DOTTED, "spec", "docs", "tests", "backends")
# The reader's: the task that docs/add-a-task.md writes.
OWN = re.compile(r"tasks[./]count|tests/test_\w+_count\.py|.*\b(NAME|DIR)\b|docs/_build")


def mentioned(page: str) -> list[str]:
    """What stands in backticks and looks like a file or a dotted name of the project, without its arguments."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", read(page)[1])
    found = [re.match(rf"(?:{'|'.join(FOLDERS)})[./][\w./]*(?=$|[\s(:])", span) for span in spans]
    return [match[0].rstrip(".") for match in found if match is not None and not OWN.match(match[0])]


def bound(file: Path) -> set[str]:
    """Every name that a module binds, those of its functions and classes included, read without importing it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def is_there(name: str) -> bool:
    """Whether it is a file or folder of the repository, a module, or a name in one."""
    if "/" in name:
        return (ROOT / name).exists()
    first, *rest = name.split(".")
    place = PACKAGES.get(first, ROOT) / first
    for number, part in enumerate(rest):
        if (place / part).is_dir() or (place / f"{part}.py").is_file():
            place = place / part if (place / part).is_dir() else place / f"{part}.py"
            continue
        module = place if place.suffix else place / "__init__.py"
        return module.is_file() and set(rest[number:]) <= bound(module)
    return place.exists()


@pytest.mark.parametrize("page", pages())
def test_every_name_of_a_page_is_there(page: str):
    assert [name for name in mentioned(page) if not is_there(name)] == []


def test_names_are_found_on_the_pages():
    assert {"ponder_ref/exits.py", "tasks/registry.py", "backends/jax/ponder_jax/exits.py"} <= set(
        mentioned("CONTRIBUTING.md")
    )
    assert {"ponder_ref.runtime.contracts.MakesTrainer", "ponder_torch.load"} <= set(mentioned("docs/tasks.md"))


@pytest.mark.parametrize(
    "name",
    [
        "ponder_ref.interface",
        "ponder_ref.pondering_loss",
        "ponder_torch.run_model",
        "ponder_jax.train.limit_threads",
        "tasks/options.py",
        "tasks.contracts.Tasks",
        "docs/make_results.py",
        "spec/optim.md",
    ],
)
def test_a_name_that_is_gone_is_noticed(name: str):
    assert not is_there(name)
