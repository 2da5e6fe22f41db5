"""The pages' Python code for jax runs as it is printed."""

from pathlib import Path

import pytest
from readme import COMMANDS_FIRST, pages_of, run_blocks
from readme_commands import run_commands


@pytest.mark.parametrize("page", pages_of("jax"))
def test_the_code_of_a_page_runs_in_order(page: str, tmp_path: Path):
    if page in COMMANDS_FIRST:
        run_commands(page, tmp_path)
    run_blocks(page, "jax", tmp_path)
