"""The pages' Python code: what needs no framework runs here, and no block is left out."""

import os
import re
from pathlib import Path

import pytest
import readme
from readme import ROOT, Block, frameworks, pages, pages_of, python_blocks, run_blocks, split


@pytest.mark.parametrize("page", pages_of("ref"))
def test_the_code_of_a_page_runs_in_order(page: str, tmp_path: Path):
    run_blocks(page, "ref", tmp_path)


def test_every_block_is_run_with_some_framework():
    """Those that import none run after those of each framework of their page."""
    found = {page: python_blocks(page) for page in pages()}
    assert {page for page, blocks in found.items() if blocks} == {page for page in pages() if frameworks(page)}
    assert len(python_blocks("README.md")) >= 3 and frameworks("README.md") == {"torch", "jax"}
    assert frameworks("docs/tutorial.md") == {"ref", "torch", "jax"}


def test_the_framework_of_a_block_is_what_it_imports():
    blocks = {"torch": "import torch\n", "jax": "from ponder_jax import predict\n", "ref": "import ponder_ref as pn\n"}
    for name, text in blocks.items():
        assert Block("page", 1, "python", f"import numpy as np\n{text}x = 1\n").framework == name
    assert Block("page", 1, "python", "import numpy as np\nout = net(x)\n").framework is None


def test_blocks_are_found_where_they_are():
    text = "a\n\n```python\nx = 1\n```\n\n1. b\n\n   ```toml\n   y = 2\n   ```\n\n```{figure} f.png\n`nox`\n```\n"
    blocks, prose = split("page", text)
    assert [(block.line, block.language, block.text) for block in blocks[:2]] == [
        (4, "python", "x = 1\n"),
        (10, "toml", "   y = 2\n"),
    ]
    assert prose.split() == ["a", "1.", "b", "`nox`"]  # the caption of a figure is prose


def test_a_block_that_fails_or_prints_something_else_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = "import ponder_ref as pn\n\nx = [1, 2]\nprint(x)  # [1, 2]: two numbers\n"
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "environment", dict(os.environ, PYTHONPATH=str(ROOT)).copy)
    for text, words in ((page, None), (page.replace("# [1, 2]", "# [1, 3]"), "promises"), (page + "y\n", "NameError")):
        (tmp_path / "page.md").write_text(f"```python\n{text}```\n", encoding="utf-8")
        if words is None:
            assert "[1, 2]" in run_blocks("page.md", "ref", tmp_path)
        else:
            with pytest.raises(AssertionError, match=words):
                run_blocks("page.md", "ref", tmp_path)


def spreads(text: str) -> list[tuple[str, str, bool]]:
    """Every "a ± b" of a text, and whether it is in percent."""
    found = re.findall(r"(\d+\.\d+) ± (\d+\.\d+)( %)?", text)
    return [(mean, spread, bool(percent)) for mean, spread, percent in found]


def test_every_spread_of_the_readme_is_one_of_the_results():
    """± is the standard deviation over seeds, there as here: a single seed has none."""
    results = spreads((ROOT / "docs" / "results.md").read_text(encoding="utf-8"))
    measured = [(float(mean), float(spread)) for mean, spread, _ in results]
    shown = spreads((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 5
    for mean, spread, percent in shown:
        factor, digits = (100 if percent else 1), len(mean.split(".")[1])
        same = [(f"{factor * a:.{digits}f}", f"{factor * b:.{digits}f}") for a, b in measured]
        assert (mean, spread) in same, f"{mean} ± {spread} is in no table of docs/results.md"
