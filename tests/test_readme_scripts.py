"""The scripts of docs/ say what they do when asked, and write nothing then."""

import shutil
from pathlib import Path

import pytest
from readme import ROOT, run


@pytest.mark.parametrize("name", ["make_results.py", "make_figures.py", "serving.py"])
def test_help_writes_no_file(name: str, tmp_path: Path):
    docs = tmp_path / "docs"
    (docs / "results").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / name, docs)
    shutil.copytree(ROOT / "docs" / "results_page", docs / "results_page", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "results" / "speed", docs / "results" / "speed")
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert "usage:" in run([str(docs / name), "--help"], tmp_path)
    assert {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} == before
