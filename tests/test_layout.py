"""The shape of the repository: who imports what, what is exported, and that prose and code name the same things."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ponder_ref
from ponder_ref.conformance import interface

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = {
    "ponder_torch": ROOT / "backends" / "torch" / "ponder_torch",
    "ponder_jax": ROOT / "backends" / "jax" / "ponder_jax",
}
FRAMEWORKS = ("torch", "jax", "flax", "optax")
SOURCES = ("ponder_ref", "backends", "tasks", "benchmarks", "scripts", "tests", "docs", "noxfile.py")
MAX_LINES = 400


def imported_by(module: str, folder: Path) -> set[str]:
    """The frameworks that a fresh interpreter has loaded after importing the module."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "backends" / "torch", ROOT / "backends" / "jax")))
    code = f"import sys, {module}; print(*(name for name in {FRAMEWORKS} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def python_files() -> list[Path]:
    found = []
    for source in SOURCES:
        path = ROOT / source
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


def table_of_functions() -> dict[str, str]:
    """Function name -> signature as written, from the table of spec/backend.md whose second column has requirements."""
    text = (ROOT / "spec" / "backend.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(\(.*\))` \| [A-Z]\d+(?:(?:, | to )[A-Z]\d+)* \|$", text, flags=re.M)
    assert len(rows) >= 25, "the table of functions in spec/backend.md was not found"
    return dict(rows)


def exports(init: Path) -> tuple[set[str], set[str]]:
    """The names in `__all__` and the names bound at the top of a module, read without importing it."""
    listed: set[str] = set()
    bound: set[str] = set()
    body = ast.parse(init.read_text(encoding="utf-8")).body
    # What stands under `if TYPE_CHECKING` is imported by `__getattr__` when it is asked for.
    for node in [*body, *(inner for outer in body if isinstance(outer, ast.If) for inner in outer.body)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            bound |= names
            if "__all__" in names:
                listed = set(ast.literal_eval(node.value))
    return listed, bound


@pytest.mark.parametrize(
    "module",
    [
        "ponder_ref",
        "ponder_ref.conformance",
        "tasks",
        "tasks.babi.sampling",
        "tasks.export.__main__",
        "tasks.figures",
        "tasks.pai.difficulty",
        "tasks.parity",
        "tasks.results.__main__",
        "scripts.vectors.__main__",
    ],
)
def test_imports_no_framework(module: str, tmp_path: Path):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there")
    assert imported_by(module, tmp_path) == set()


@pytest.mark.parametrize(
    ("module", "framework", "other"), [("ponder_torch", "torch", "jax"), ("ponder_jax", "jax", "torch")]
)
def test_backend_imports_its_framework_alone(module: str, framework: str, other: str, tmp_path: Path):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    loaded = imported_by(module, tmp_path)
    assert framework in loaded
    assert other not in loaded


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_framework_is_not_shadowed(framework: str):
    spec = importlib.util.find_spec(framework)
    if spec is None:
        pytest.skip(f"{framework} is not installed")
    assert spec.origin is not None, (
        f"`import {framework}` finds a folder without __init__.py: {spec.submodule_search_locations}"
    )
    origin = Path(spec.origin).resolve()
    # An environment may lie inside the repository (.nox, .venv); the repository's own files are what must not be found.
    assert origin.is_relative_to(Path(sys.prefix).resolve()) or not origin.is_relative_to(ROOT)


def test_backends_have_the_same_files():
    torch_files, jax_files = (
        {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} for folder in BACKENDS.values()
    )
    assert torch_files
    assert torch_files == jax_files


def test_no_file_shadows_the_standard_library():
    assert [
        path for folder in BACKENDS.values() for path in folder.glob("*.py") if path.stem in sys.stdlib_module_names
    ] == []


def test_the_reference_exports_the_functions_of_the_spec():
    names = set(table_of_functions())
    assert names == set(interface.FUNCTIONS)
    assert names <= set(ponder_ref.__all__)
    assert all(callable(getattr(ponder_ref, name)) for name in names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_export_the_functions_of_the_spec(backend: str):
    listed, bound = exports(BACKENDS[backend] / "__init__.py")
    names = {"NAME", "DTYPES", "from_numpy", "to_numpy", "PonderNet", *interface.TRANSFORMS}
    names |= {*table_of_functions(), *interface.MODULE_FUNCTIONS, *interface.INFER_FUNCTIONS}
    assert names - listed == set()
    assert listed - bound == set()


@pytest.mark.parametrize("name", table_of_functions())
def test_signatures_are_those_of_the_spec(name: str):
    scope: dict = {}
    exec(f"def written{table_of_functions()[name]}: ...", scope)
    written = inspect.signature(scope["written"]).parameters.values()
    actual = inspect.signature(getattr(ponder_ref, name)).parameters.values()
    assert [(p.name, p.kind, p.default) for p in actual] == [(p.name, p.kind, p.default) for p in written]


def test_requirements_of_functions_exist():
    functions = {**interface.FUNCTIONS, **interface.MODULE_FUNCTIONS, **interface.INFER_FUNCTIONS}
    cited = {requirement for group in functions.values() for requirement in group}
    assert cited - requirement_ids() == set()


def requirement_ids() -> set[str]:
    text = (ROOT / "spec" / "README.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| ([A-Z]\d+) \|", text, flags=re.M))


@pytest.mark.parametrize("folder", ["ponder_ref", "backends"])
def test_docstrings_cite_requirements_that_exist(folder: str):
    known = requirement_ids()
    pattern = re.compile(rf"\b[{''.join(sorted({name[0] for name in known}))}]\d+\b")
    unknown, cited = [], set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found = set(pattern.findall(ast.get_docstring(node) or ""))
                cited |= found
                unknown += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(found - known)]
    assert cited, "no docstring cites a requirement"
    assert unknown == []


def test_no_module_is_too_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_test_folder_is_called_like_a_framework():
    assert [path for path in (ROOT / "tests").rglob("*") if path.is_dir() and path.name in FRAMEWORKS] == []
    assert not (ROOT / "backends" / "conftest.py").exists()
