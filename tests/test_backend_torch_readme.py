"""The pages' Python code for torch runs as it is printed."""

from pathlib import Path

import pytest
from readme import ROOT, pages_of, run, run_blocks
from readme_commands import make_what_is_read


@pytest.mark.parametrize("page", pages_of("torch"))
def test_the_code_of_a_page_runs_in_order(page: str, tmp_path: Path):
    make_what_is_read(page, "torch", tmp_path)
    run_blocks(page, "torch", tmp_path)


def test_the_picture_of_the_servers_says_its_loads(tmp_path: Path):
    printed = run([str(ROOT / "docs" / "serving.py"), "--requests", "128", "--out", "servers.png"], tmp_path)
    assert (tmp_path / "servers.png").read_bytes().startswith(b"\x89PNG")
    assert printed.count("all answered after") == 4
    assert [line.split(",")[0] for line in printed.splitlines()[:-1]] == ["load 0.8"] * 2 + ["load 1.5"] * 2
