"""The pages' Python code for jax runs as it is printed."""

from pathlib import Path

import pytest
from readme import pages_of, run_blocks
from readme_commands import make_what_is_read


@pytest.mark.parametrize("page", pages_of("jax"))
def test_the_code_of_a_page_runs_in_order(page: str, tmp_path: Path):
    make_what_is_read(page, "jax", tmp_path)
    run_blocks(page, "jax", tmp_path)
