"""Who imports whom: the contracts of pyproject.toml hold, and each of them can fail."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("importlinter")

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"ponder_torch": "backends/torch", "ponder_jax": "backends/jax"}  # of packages that are not at the top
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
RUN = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
# A line that breaks a contract, for every rule that is stated in one.
BAD = (
    ("backends/torch/ponder_torch/act.py", "ponder_jax", "backends import neither"),
    ("backends/jax/ponder_jax/act.py", "ponder_torch.act", "backends import neither"),
    ("backends/jax/ponder_jax/act.py", "tasks.registry", "backends import neither"),
    ("ponder_ref/halting.py", "tasks.registry", "backends import neither"),
    ("ponder_ref/halting.py", "ponder_ref.conformance.cases", "rooms of the reference"),
    ("ponder_ref/trees.py", "ponder_ref.runtime.files", "rooms of the reference"),
    ("ponder_ref/base.py", "ponder_ref.models.rnn", "rooms of the reference"),
    ("ponder_ref/models/rnn.py", "ponder_ref.runtime.files", "rooms of the reference"),
    ("ponder_ref/runtime/files.py", "ponder_ref.conformance.cases", "rooms of the reference"),
    ("ponder_ref/new_room.py", "math", "rooms of the reference"),
    ("tasks/loop.py", "torch", "tasks import no framework"),
    ("tasks/babi/encode.py", "jax.numpy", "tasks import no framework"),
    ("tasks/loop.py", "ponder_torch", "tasks import no framework"),
    ("tasks/loop.py", "ponder_ref.conformance.run", "nothing is built on the judge"),
    ("backends/jax/ponder_jax/act.py", "ponder_ref.conformance.cases", "nothing is built on the judge"),
    ("ponder_ref/halting.py", "safetensors", "the reference needs NumPy alone"),
    ("ponder_ref/models/rnn.py", "torch", "the reference needs NumPy alone"),
)
THIRD_PARTY = {"runtime": {"numpy", "msgspec", "safetensors"}, "conformance": {"numpy", "hypothesis"}}


def copy_packages(place: Path) -> None:
    """The packages that the contracts speak of, and pyproject.toml."""
    for name in CONTRACTS["root_packages"]:
        folder = f"{PLACES[name]}/{name}" if name in PLACES else name
        shutil.copytree(ROOT / folder, place / folder, ignore=lambda _, names: [n for n in names if not wanted(n)])
    shutil.copy(ROOT / "pyproject.toml", place)


def wanted(name: str) -> bool:
    return name.endswith(".py") or ("." not in name and name not in ("__pycache__", "_spec"))


def check(place: Path) -> tuple[int, set[str], str]:
    """Exit code, the names of the broken contracts, and all that was said."""
    path = os.pathsep.join(str(place / folder) for folder in ("", *PLACES.values()))
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "300", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", RUN, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    broken = {name for name in names() if re.search(rf"^{re.escape(name)}\s*BROKEN", done.stdout, flags=re.M)}
    return done.returncode, broken, done.stdout + done.stderr


def names() -> list[str]:
    return [contract["name"] for contract in CONTRACTS["contracts"]]


def test_the_contracts_hold():
    code, broken, said = check(ROOT)
    assert (code, broken) == (0, set()), said
    assert f"{len(names())} kept, 0 broken" in said


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clone")
    copy_packages(place)
    return place


@pytest.mark.parametrize(("file", "imported", "contract"), BAD, ids=lambda value: str(value).replace("/", "."))
def test_a_contract_fails_where_it_is_broken(clone: Path, file: str, imported: str, contract: str):
    path = clone / file
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n\ndef bad():\n    import {imported}\n", encoding="utf-8")
    try:
        code, broken, said = check(clone)
    finally:
        path.unlink() if before is None else path.write_text(before, encoding="utf-8")
    assert code == 1, said
    assert any(name.startswith(contract) for name in broken), said


def test_every_contract_is_tried():
    tried = {contract for _, _, contract in BAD}
    assert len(tried) == len(names()) and all(any(name.startswith(one) for one in tried) for name in names())


def test_every_module_of_the_reference_has_a_room():
    (rooms,) = [one for one in CONTRACTS["contracts"] if one.get("containers") == ["ponder_ref"]]
    assert rooms["exhaustive"] and "exhaustive_ignores" not in rooms
    listed = {name.strip("() ") for layer in rooms["layers"] for name in layer.split(":")}
    there = {path.stem for path in (ROOT / "ponder_ref").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert there - {"__init__", "__pycache__", "_spec"} <= listed
    assert rooms["layers"].index("runtime") < rooms["layers"].index("models") < len(rooms["layers"]) - 1


def test_the_reference_imports_numpy_and_the_standard_library_alone():
    """import-linter has lists of what is forbidden; this is the list of what is allowed."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "ponder_ref").rglob("*.py"):
        room = path.relative_to(ROOT / "ponder_ref").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found.setdefault(room, set()).update(name.split(".")[0] for name in modules)
    own = {*sys.stdlib_module_names, "ponder_ref"}
    for room, modules in found.items():
        assert modules - own <= THIRD_PARTY.get(room, {"numpy"}), room
    assert "safetensors" in found["runtime"] and "numpy" in found["halting.py"]
