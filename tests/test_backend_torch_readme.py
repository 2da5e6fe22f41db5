"""The README's example for torch runs as it stands."""

from readme import run_example


def test_the_example_runs():
    run_example("ponder_torch")
