"""The scripts of docs/ say what they do when asked, and write nothing then."""

import shutil
from pathlib import Path

import pytest
from readme import ROOT, run


@pytest.mark.parametrize("name", ["make_figures.py", "serving.py"])
def test_help_writes_no_file(name: str, tmp_path: Path):
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(ROOT / "docs" / name, docs)
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert "usage:" in run([str(docs / name), "--help"], tmp_path)
    assert {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} == before
