"""The page of results: commands that make each run again, and texts without a typed measurement."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from results_runs import SESSION, evaluation, every_task, fixture_unsaved, logged, page_of, write_run  # noqa: F401

from ponder_ref.runtime.errors import Refused
from tasks.babi.settings import BabiConfig
from tasks.parity import ParityConfig


def test_the_command_of_a_run_that_was_stopped_stops_there(unsaved, tmp_path: Path):
    """Seeds of one group that were stopped at different updates, or not at all, have commands of their own."""
    folder = tmp_path / "results" / "made"
    for seed, last in enumerate((40, 30, 40)):
        record = evaluation("valid", last, 240, [[1, 10, 1.0, 2.0]])
        sessions = [SESSION | {"to": last}]
        write_run(folder / f"p-{seed}", "parity", ParityConfig(seed=seed, updates=40), [record], sessions=sessions)
    page = page_of(tmp_path, "parity", labels={f"p-{seed}": "ponder" for seed in range(3)})
    whole, stopped = [line for line in page.splitlines() if line.startswith("- ponder: `")]
    assert "--stop-at" not in whole and "--out p-SEED`, seeds 0, 2; 40 updates" in whole
    assert "--stop-at 30 --out p-SEED`, seeds 1; stopped after 30 updates" in stopped


def test_the_run_that_a_run_began_with_is_named(unsaved, tmp_path: Path):
    folder = tmp_path / "results" / "made"
    records = [logged(40, 2.0), evaluation("valid", 40, 240, every_task(0.99, 2.5))]
    for seed in (0, 1):
        write_run(folder / f"first-{seed}", "babi", BabiConfig(seed=seed, updates=80 - 40 * seed), records)
        config = BabiConfig(seed=seed, updates=40, start=f"elsewhere/first-{seed}")
        write_run(folder / f"second-{seed}", "babi", config, records)
    write_run(folder / "third-0", "babi", BabiConfig(updates=40, start="gone"), records)
    labels = {"first-0": "solve, stopped", "first-1": "solve", "third-0": "third"}
    page = page_of(tmp_path, "babi", labels=labels | dict.fromkeys(("second-0", "second-1"), "finish"))
    assert "seeds 0, 1; begun with `first-0` (solve, stopped), `first-1` (solve); 40 updates" in page
    assert "begun with `gone` (not here); 40 updates" in page
    assert "--stop-at 40 --out first-SEED`, seeds 0; stopped after" in page


def write_parity(folder: Path) -> None:
    """A run that answers the first three of four numbers of non-zeros."""
    levels = [[1, 10, 1.0, 2.0], [2, 10, 0.995, 2.0], [3, 10, 0.99, 2.0], [4, 10, 0.75, 2.0]]
    config = ParityConfig(bits=4, hidden=2, train_ones=(1, 4), updates=40)
    write_run(folder / "p-0", "parity", config, [evaluation("test", 40, 240, levels)])


def test_what_was_measured_is_filled_into_the_text(unsaved, tmp_path: Path):
    write_parity(tmp_path / "results" / "made")
    text = "After {updates:p-0} updates {parameters:p-0} numbers reach {sure} up to {reach:p-0}, at least {lowest:p-0}."
    # Two units: 2 · 4 weights of the input, 2 · 2 of the state, 2 biases; 2 weights and a bias each of answer and halt.
    text += "\n\nThe paper has 97.5 % of 4 bits, N = 20 and 1 to 4 non-zeros; see `--bits 77` and test-600."
    page = page_of(tmp_path, "parity", text=text, given={"97.5": "of the paper"})
    assert (
        "\n\nAfter 40 updates 20 numbers reach 0.99 up to 3, at least 0.750.\n\nThe paper has 97.5 % of 4 bits" in page
    )


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"text": "It answers 99.5 % of all."}, "99.5 is neither a setting of a run nor listed"),
        ({"text": "Stopped at 19,780 updates."}, "19,780 is neither"),
        ({"text": "A text.", "labels": {"p-0": "after 123 updates"}}, "123 is neither"),
        ({"text": "Stopped at {updates:p-7}."}, "{updates:p-7} is not known, or names no run"),
        ({"text": "Of colour {colour:p-0}."}, "{colour:p-0} is not known"),
    ],
)
def test_a_number_that_was_typed_is_refused(tmp_path: Path, about: dict, words: str):
    write_parity(tmp_path / "results" / "made")
    with pytest.raises(Refused, match=re.escape(words)):
        page_of(tmp_path, "parity", **about)
