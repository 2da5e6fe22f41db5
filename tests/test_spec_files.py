"""The data of `spec/`: golden vectors, their schema and their makers, tolerances, and the table they all cite."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "spec"
FILES = sorted((SPEC / "vectors").glob("*.json"))
# The law of the drawn steps and their equality to S2 and S3 are statements over many draws, not golden numbers.
WITHOUT_VECTORS = {"S4", "S5"}
# Largest rtol and atol a quantity may have. A tolerance may become tighter, never looser. The floors of the gradients
# are for what accelerators flush to 0: they must stay far below any gradient that training could notice.
LIMITS = {
    ("log_p", "float64"): (1e-12, 1e-14),
    ("log_p", "float32"): (1e-5, 1e-5),
    ("loss", "float64"): (1e-12, 1e-14),
    ("loss", "float32"): (1e-5, 1e-5),
    ("gradient", "float64"): (1e-10, 1e-300),
    ("gradient", "float32"): (1e-4, 1e-30),
}
# Counter, key and result of Threefry-2x32-20, as published with Random123 (kat_vectors).
KNOWN_ANSWERS = (
    ("00000000 00000000", "00000000 00000000", "6b200159 99ba4efe"),
    ("ffffffff ffffffff", "ffffffff ffffffff", "1cb996fc bb002be7"),
    ("243f6a88 85a308d3", "13198a2e 03707344", "c4923a9c 483df7a0"),
)


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def cases() -> list[dict]:
    return [case for path in FILES for case in read(path)["cases"]]


def requirements() -> dict[str, str]:
    """Requirement id -> the paper's section, "" where the table has none."""
    text = (SPEC / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \|[^|]+\|([^|]*)\|$", text, flags=re.M)
    assert len(rows) >= 40, "the table of requirements in spec/README.md was not found"
    return {name: paper.strip() for name, paper in rows}


def tolerances() -> dict[str, dict[str, dict]]:
    return tomllib.loads((SPEC / "tolerances.toml").read_text(encoding="utf-8"))


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(read(SPEC / "vectors.schema.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vectors_follow_the_schema(path: Path):
    jsonschema.Draft202012Validator(read(SPEC / "vectors.schema.json")).validate(read(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_are_named_after_their_function(path: Path):
    content = read(path)
    assert content["function"] == path.stem
    assert {case["id"].split("/")[0] for case in content["cases"]} == {path.stem}


def test_every_function_of_the_schema_has_a_file():
    functions = read(SPEC / "vectors.schema.json")["properties"]["function"]["enum"]
    assert {path.stem for path in FILES} == set(functions)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_arrays_have_as_many_entries_as_their_shape_says(path: Path):
    for case in read(path)["cases"]:
        for name, array in {**case["arrays"], **case["expected"]}.items():
            size = 1
            for length in array["shape"]:
                size *= length
            assert isinstance(array["data"], dict) or len(array["data"]) == size, f"{case['id']}: {name}"


def test_there_are_enough_cases():
    assert len(cases()) >= 80


def test_ids_are_unique():
    ids = [case["id"] for case in cases()]
    assert sorted(set(ids)) == sorted(ids)


def test_cited_requirements_exist():
    cited = {name for case in cases() for name in case["spec"]}
    assert cited - requirements().keys() == set()


def test_every_requirement_on_numbers_has_a_case():
    cited = {name for case in cases() for name in case["spec"]}
    wanted = {name for name in requirements() if name[0] in "HPLSAO"} - WITHOUT_VECTORS
    assert wanted - cited == set()


def test_cases_cite_the_paper_where_their_requirements_do():
    table = requirements()
    silent = [case["id"] for case in cases() if any(table[name] for name in case["spec"]) and not case["paper"].strip()]
    assert silent == []


def test_cases_are_beyond_the_paper_only_where_all_their_requirements_are():
    table = requirements()
    for case in cases():
        sections = {table[name] for name in case["spec"] if table[name]}
        assert (case["paper"] == "beyond the paper") == (sections == {"beyond the paper"}), case["id"]


def test_all_files_have_the_version_of_the_prose():
    found = re.search(r"^Version (\d+\.\d+\.\d+)\.", (SPEC / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert found
    assert {read(path)["spec_version"] for path in FILES} == {found[1]}


def test_making_the_vectors_again_changes_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.vectors", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_changed_vector_is_noticed(tmp_path: Path):
    for path in FILES:
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    changed = tmp_path / "expected_steps.json"
    changed.write_text(changed.read_text(encoding="utf-8").replace("1", "2", 1), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.vectors", "--check", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "expected_steps.json" in done.stderr


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_makers_of_vectors_know_neither_the_reference_nor_numpy():
    modules = sorted((ROOT / "scripts" / "vectors").glob("*.py"))
    assert len(modules) > 8
    for path in modules:
        own = {name for name in imports(path) if name.startswith("scripts")}
        assert all(name.startswith("scripts.vectors") for name in own), path.name
        roots = {name.split(".")[0] for name in imports(path)}
        assert roots & {"ponder_ref", "ponder_torch", "ponder_jax", "numpy", "torch", "jax"} == set(), path.name


def test_tolerances_are_complete():
    for quantity, entries in tolerances().items():
        assert {"float64", "float32"} <= entries.keys(), quantity
        for dtype, entry in entries.items():
            where = f"{quantity}.{dtype}"
            assert {"rtol", "atol", "scale", "reason"} <= entry.keys(), where
            assert entry.keys() <= {"rtol", "atol", "scale", "reason", "noise", "growth"}, where
            assert entry["scale"] in ("value", "terms", "largest"), where
            assert all(isinstance(entry[name], float) and entry[name] >= 0 for name in ("rtol", "atol")), where
            assert len(entry["reason"].split()) >= 3, where


@pytest.mark.parametrize(("quantity", "dtype"), LIMITS)
def test_tolerances_are_not_loosened(quantity: str, dtype: str):
    rtol, atol = LIMITS[quantity, dtype]
    entry = tolerances()[quantity][dtype]
    assert entry["rtol"] <= rtol
    assert entry["atol"] <= atol


def test_growth_is_for_running_sums_alone_and_one_rounding_a_step():
    for quantity, entries in tolerances().items():
        for dtype, entry in entries.items():
            assert ("growth" in entry) == (quantity == "log_p"), f"{quantity}.{dtype}"
            unit = {"float64": 2.0**-53, "float32": 2.0**-24}.get(dtype, 0.0)
            assert entry.get("growth", 0.0) <= 1.1 * unit, f"{quantity}.{dtype}"


def test_noise_is_for_gradients_alone_and_below_their_rtol():
    for quantity, entries in tolerances().items():
        for dtype, entry in entries.items():
            if "noise" in entry:
                assert quantity == "gradient", f"{quantity}.{dtype}"
                assert 0 < entry["noise"] <= entry["rtol"], f"{quantity}.{dtype}"


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_published_known_answers_are_among_the_vectors(counter: str, key: str, result: str):
    assert f"| {counter} | {key} | {result} |" in (SPEC / "sampling.md").read_text(encoding="utf-8")
    found = [
        case["expected"]["result"]["data"]
        for case in read(SPEC / "vectors" / "threefry2x32.json")["cases"]
        if [case["arrays"][name]["data"] for name in ("key", "counter")] == [words(key), words(counter)]
    ]
    assert found == [words(result)]
