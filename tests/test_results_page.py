"""The page of results: made from run folders, with the numbers that are in them, and up to date."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from results_runs import (
    DOCS,
    SESSION,
    cells,
    evaluation,
    every_task,
    fixture_unsaved,  # noqa: F401
    logged,
    page_of,
    rows_of,
    write_about,
    write_run,
)

from ponder_ref.runtime.errors import Refused
from tasks.babi.settings import BabiConfig
from tasks.pai.results import hardness
from tasks.pai.settings import PaiConfig
from tasks.parity import ParityConfig
from tasks.results.__main__ import make

RELEASED = "20 tasks, files of en-valid-10k"


def babi_runs(results: Path, seeds: tuple[int, ...] = (0, 1)) -> None:
    """Two seeds of ponder that solve all tasks at the third validation, and ut-act, which does not."""
    for seed in seeds:
        config = BabiConfig(seed=seed, batch_size=8, updates=40, learning_rate=1e-3)
        metrics = [evaluation("valid", 0, 0, every_task(0.1, 2.0)), logged(10, 2.0), logged(20, 3.0)]
        metrics += [evaluation("valid", 20, 120, every_task(0.99, 2.5, worst=0.9)), logged(30, 4.0), logged(40, 5.0)]
        metrics += [evaluation("valid", 40, 240, every_task(0.99, 2.5)), evaluation("test", 40, 240, every_task(1, 3))]
        kept = evaluation("valid", 40, 240, every_task(0.99 - 0.02 * seed, 2.0 + seed), data=RELEASED, max_steps=10)
        write_run(results / "made" / f"ponder-{seed}", "babi", config, metrics, [kept | {"accuracy": 0.5}, kept])
    config = BabiConfig(method="ut-act", batch_size=8, updates=40, learning_rate=1e-3)
    metrics = [logged(40, 5.0), evaluation("valid", 40, 400, every_task(0.99, 5.0, worst=0.5), draws=0)]
    kept = evaluation("valid", 40, 400, every_task(0.96, 7.5, 0.5), 0, data=RELEASED, max_steps=10)
    write_run(results / "made" / "ut-act-0", "babi", config, metrics, [kept])
    write_about(results / "made", task="babi")


def test_the_numbers_of_babi_are_those_of_the_runs(tmp_path: Path):
    babi_runs(tmp_path / "results")
    assert make(tmp_path / "results", tmp_path) == ["made"]
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    released = (RELEASED, "valid")
    own = cells(page, "ponder", "the run's own data", "test")
    assert own == ["2", "40", "200", "20 of 20", "0.00 ± 0.00", "3.00 ± 0.00", "600 ± 0"]
    mine = cells(page, "ponder", *released)
    assert mine == ["2", "40", "200", "20 of 20", "2.00 ± 1.41", "2.50 ± 0.71", "500 ± 141"]
    act = cells(page, "ut-act", *released)
    assert act == ["1", "40", "200", "19 of 20", "6.30", "7.50", "1500"]
    assert cells(page, "ut-act", "the run's own data", "valid")[3] == "19 of 20"  # it has not come to its test
    assert cells(page, "19 path-finding") == ["2.00 ± 1.41 (2.50 ± 0.71)", "50.00 (7.50)"]
    # Batches of 8: 240 forward passes; 10 updates each of 2, 3, 4 and 5 steps until halting.
    effort = cells(page, "ponder", "2 of 2")
    assert effort == ["40 ± 0", "1920 ± 0", "1120 ± 0", "1.00", "1.00", "1.00"]
    assert cells(page, "ut-act", "0 of 1") == [*["not reached"] * 3, "", "", "3.00"]
    assert "6.1 times as many" in page
    made = "--batch-size 8 --chunk 50 --learning-rate 0.001 --updates 40 --seed SEED --backend jax --out ponder-SEED`"
    assert f"{made}, seeds 0, 1; 40 updates" in page
    assert "40 updates, 320 examples; 3.0 hours of one core each (4.0 hours by the clock)" in page
    links = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert len(links) == 5 and all((tmp_path / link).read_bytes().startswith(b"\x89PNG") for link in links)


def test_effort_is_counted_through_the_runs_that_a_run_began_with(unsaved, tmp_path: Path):
    """A first run that does not solve all tasks, a second that begins with it and does, a third whose first is lost."""
    folder = tmp_path / "results" / "made"
    batch = {"batch_size": 8, "updates": 40}
    unsolved = [logged(20, 3.0, passes=10), evaluation("valid", 20, 200, every_task(0.99, 2.5, worst=0.9))]
    write_run(folder / "first-0", "babi", BabiConfig(**batch), [*unsolved, logged(40, 2.0, passes=10)])
    solves = [logged(10, 4.0), evaluation("valid", 10, 60, every_task(0.99, 2.5)), logged(40, 5.0)]
    write_run(folder / "second-0", "babi", BabiConfig(**batch, start="elsewhere/first-0"), solves)
    write_run(folder / "third-0", "babi", BabiConfig(**batch, start="second-0"), solves)
    write_run(folder / "lost-0", "babi", BabiConfig(**batch, start="gone-0"), solves)
    labels = {name: name.removesuffix("-0") for name in ("first-0", "second-0", "third-0", "lost-0")}
    write_about(folder, task="babi", labels=labels)
    make(tmp_path / "results", tmp_path)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert cells(page, "first", "0 of 1")[:3] == ["not reached"] * 3
    assert "--start elsewhere/first-SEED --updates 40" in page
    # 40 updates of 8 with 10 passes, then 10 with 6; 20 updates each of 3 and 2 steps until halting, then 10 of 4.
    assert cells(page, "second", "1 of 1")[:5] == ["50", "3680", "1120", "1.00", "1.00"]
    assert cells(page, "third", "1 of 1")[:3] == ["50", "3680", "1120"]  # solved before it began
    assert "| lost | 1 of 1" not in page and "left out are runs that began with one that is not here" in page


def test_the_page_depends_on_the_runs_alone(unsaved, tmp_path: Path):
    """The order in which folders were made says nothing."""
    pages = []
    for name, seeds in (("first", (0, 1)), ("again", (1, 0))):
        babi_runs(tmp_path / name / "results", seeds)
        make(tmp_path / name / "results", tmp_path / name)
        pages.append((tmp_path / name / "results.md").read_bytes())
    assert pages[0] == pages[1]


def test_other_tasks_have_a_column_for_every_group(unsaved, tmp_path: Path):
    folder = tmp_path / "results" / "made"
    for seed, right in enumerate((0.5, 0.7)):
        levels = [[1, 10, 1.0, 2.0], [2, 30, right, 3.0]] + ([] if seed else [[3, 10, 0.25, 4.0]])
        records = [evaluation("valid", 40, 240, levels), evaluation("test", 40, 240, levels)]
        kept = evaluation("test", 40, 240, [[1, 10, right, 9.0]], data="1-1 non-zeros of 3, shuffled", max_steps=30)
        write_run(folder / f"ponder-{seed}", "parity", ParityConfig(seed=seed, bits=3), records, [kept])
    write_about(folder, task="parity")
    make(tmp_path / "results", tmp_path)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "Accuracy by non-zeros:" in page and "| run | split | 1 | 2 | 3 |" in page
    beyond = rows_of(page, "ponder", "test: 1-1 non-zeros of 3, shuffled, N = 30")
    assert beyond[0] == ["2", "40", "10", *["0.6000 ± 0.1414"] * 2, "", *["9.00 ± 0.00"] * 2, ""]
    assert beyond[1] == ["0.600 ± 0.141 (9.0 ± 0.0 steps)", "", ""]
    assert "at the median |" in page and not rows_of(page, "ponder", "test, at the median")
    wanted = ["1.000 ± 0.000 (2.0 ± 0.0 steps)", "0.600 ± 0.141 (3.0 ± 0.0 steps)", "0.250 (4.0 steps)"]
    assert rows_of(page, "ponder", "test")[1] == wanted


def test_the_page_has_the_median_step_where_it_was_noted(unsaved, tmp_path: Path):
    folder = tmp_path / "results" / "made"
    median = {"median_accuracy": 0.75, "median_steps": 1.5, "median_levels": [[1, 10, 0.75, 1.5]]}
    for name, draws in (("ponder", 1), ("act", 0)):  # the one has a distribution, the other one answer
        record = evaluation("test", 40, 240, [[1, 10, 0.5, 2.0]], draws, **median)
        write_run(folder / f"{name}-0", "parity", ParityConfig(method=name, bits=3), [record])
    for seed in (0, 1):  # one of them from before it was noted
        record = evaluation("test", 40, 240, [[1, 10, 0.5, 2.0]], **(median if seed else {}))
        write_run(folder / f"other-{seed}", "parity", ParityConfig(seed=seed, beta=0.5, bits=3), [record])
    labels = {"ponder-0": "ponder", "act-0": "act", "other-0": "other", "other-1": "other"}
    page = page_of(tmp_path, "parity", labels=labels)
    wanted = ["1", "40", "10", "0.5000", "0.5000", "0.7500", "2.00", "2.00", "1.50"]
    assert rows_of(page, "ponder", "test") == [wanted, ["0.500 (2.0 steps)"]]
    assert rows_of(page, "ponder", "test, at the median") == [["0.750 (1.5 steps)"]]
    assert rows_of(page, "act", "test")[0] == ["1", "40", "10", "0.5000", "", "", "2.00", "", ""]
    assert not rows_of(page, "act", "test, at the median") and not rows_of(page, "other", "test, at the median")
    assert rows_of(page, "other", "test")[0][3:] == ["0.5000 ± 0.0000"] * 2 + [""] + ["2.00 ± 0.00"] * 2 + [""]


def test_the_reach_of_the_median_step_is_its_own(unsaved, tmp_path: Path):
    levels, better = ([[level, 10, float(level <= last), 2.0] for level in range(1, 10)] for last in (3, 5))
    median = {"median_accuracy": 5 / 9, "median_steps": 2.0, "median_levels": better}
    record = evaluation("test", 40, 240, levels, **median)
    write_run(tmp_path / "results" / "made" / "ponder-0", "parity", ParityConfig(bits=9), [record])
    page = page_of(tmp_path, "parity")
    assert [rows_of(page, "ponder", split)[-1][-1] for split in ("test", "test, at the median")] == ["3", "5"]


def test_an_evaluation_with_another_n_is_marked_and_replaces_nothing(unsaved, tmp_path: Path):
    babi_runs(tmp_path / "results")
    for folder in sorted((tmp_path / "results" / "made").glob("*-?")):
        more = evaluation("valid", 40, 240, every_task(0.2, 1.5), data=RELEASED, max_steps=20)
        with (folder / "evaluations.jsonl").open("a") as file:
            file.write(json.dumps(more) + "\n")
    page = page_of(tmp_path, "babi")
    assert cells(page, "ponder", RELEASED, "valid")[4] == "2.00 ± 1.41"
    assert cells(page, "ponder", RELEASED, "valid, N = 20")[4] == "80.00 ± 0.00"
    assert cells(page, "19 path-finding") == ["2.00 ± 1.41 (2.50 ± 0.71)", "50.00 (7.50)"]
    assert cells(page, "ut-act", "0 of 1")[-1] == "3.00"


def test_a_run_of_some_tasks_has_rows_of_these(unsaved, tmp_path: Path):
    records = [evaluation("valid", 40, 240, every_task(0.5, 2.0)[:2])]
    config = BabiConfig(tasks="1-2", updates=40)
    write_run(tmp_path / "results" / "made" / "ponder-0", "babi", config, records)
    page = page_of(tmp_path, "babi")
    assert cells(page, "2 two-supporting-facts") == ["50.00 (2.00)"] and "path-finding" not in page


def test_pai_has_all_its_splits_and_the_names_of_its_queries(unsaved, tmp_path: Path):
    """A run that was ended, one of a control, and one that has not come to its test."""
    levels = [[kind, 10, 0.5 + 0.05 * kind, 2.0 + kind] for kind in range(10)]
    names = {"none": ["test", "test-600", "test-no-memory"], "no-memory": ["test-no-memory"], "shuffled-memory": []}
    for control, splits in names.items():
        records = [evaluation("valid" if control == "none" else f"valid-{control}", 40, 240, levels)]
        records += [evaluation(split, 40, 240, levels) for split in splits]
        config = PaiConfig(length=5, control=control, updates=40, seed=7)
        write_run(tmp_path / "results" / "made" / control, "pai", config, records)
    assert "How hard the data are" not in page_of(tmp_path, "pai")
    measured = (DOCS / "results" / "pai" / "difficulty-0.json").read_text()
    for seed in (7, 8):
        other = measured.replace('"seed": 0', f'"seed": {seed}')
        (tmp_path / "results" / "made" / f"difficulty-{seed}.json").write_text(other)
    page = page_of(tmp_path, "pai")
    assert "images of seed 8" not in page  # no run has it
    assert "```text\nimages of seed 7: 1000 classes in 108 groups; train 1000000" in page
    assert "| run | split | A-B | B-C | A-C | C-D | B-D | A-D | D-E | C-E | B-E | A-E |\n" in page
    shown = [line.split(" | ")[1] for line in page.split("Accuracy by query:")[1].splitlines() if "steps)" in line]
    assert shown == ["test-no-memory", "test", "test-600", "test-no-memory", "valid-shuffled-memory"]  # by label
    assert page.count("![queries of") == 3


@pytest.mark.parametrize(("name", "value"), [("linear_probe", "x"), ("lookups", []), ("seed", None)])
def test_a_measurement_of_difficulty_that_is_none_is_refused(tmp_path: Path, name: str, value: object):
    content = json.loads((DOCS / "results" / "pai" / "difficulty-0.json").read_text())
    assert name in content
    content.pop(name) if value is None else content.update({name: value})
    (tmp_path / "difficulty-0.json").write_text(json.dumps(content))
    with pytest.raises(Refused, match="is not what python -m tasks"):
        hardness(tmp_path, {0})


def test_speed_is_what_the_benchmarks_wrote(tmp_path: Path):
    folder = tmp_path / "results" / "speed"
    folder.mkdir(parents=True)
    write_about(folder, task="speed")
    tables = [{"title": "time over that of a", "base": "a", "rows": {"a": [1, 1, 1], "b, twice": [1.5, 2, 2.25]}}]
    written = {"benchmark": "babi", "command": "python -m benchmarks babi", "about": "updates", "tables": tables}
    written |= {"versions": {"numpy": "2.4"}, "machine": "2 cores", "sentences": ["b takes twice as long"]}
    (folder / "babi.json").write_text(json.dumps(written))
    assert make(tmp_path / "results", tmp_path) == ["speed"]
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert cells(page, "b, twice") == ["2.00", "1.50 to 2.25"]
    assert "- b takes twice as long\n" in page and "`python -m benchmarks babi`; numpy 2.4; 2 cores." in page
    (folder / "pai.json").write_text(json.dumps(written | {"tables": [{"title": "t", "rows": {"a": [1]}}]}))
    with pytest.raises(Refused, match=r"pai\.json is not what python -m benchmarks pai --out writes"):
        make(tmp_path / "results", tmp_path)


def test_time_that_was_not_noted_is_not_zero(unsaved, tmp_path: Path):
    records = [evaluation("valid", 50, 240, [[1, 10, 1.0, 2.0]])]
    for name, bits, sessions in (("known", 3, [SESSION]), ("unknown", 4, [])):
        config = ParityConfig(bits=bits)
        write_run(tmp_path / "results" / "made" / name, "parity", config, records, sessions=sessions)
    page = page_of(tmp_path, "parity")
    assert "stopped after 50 updates, 6400 examples; " in page
    assert "(4.0 hours by the clock), without 10 updates whose time was not noted\n" in page
    assert "examples; time not noted\n" in page and "0.0 minutes" not in page


def test_seeds_of_two_backends_are_told_apart(unsaved, tmp_path: Path):
    folder = tmp_path / "results" / "made"
    for seed, backend in enumerate(("torch", "jax")):
        write_run(folder / f"p-{seed}", "parity", ParityConfig(seed=seed), [evaluation("test", 9, 9, [[1, 10, 1, 2]])])
        file = folder / f"p-{seed}" / "config.json"
        file.write_text(file.read_text().replace('"backend": "jax"', f'"backend": "{backend}"'))
    page = page_of(tmp_path, "parity")
    assert "--backend torch --stop-at 40 --out p-SEED`, seeds 0 (torch), 1 (jax); stopped after 40 updates" in page


def test_an_experiment_names_its_task(tmp_path: Path):
    with pytest.raises(Refused, match="there is no experiment"):
        make(tmp_path, tmp_path)
    babi_runs(tmp_path)
    write_about(tmp_path / "made", task="chess")
    with pytest.raises(Refused, match="the task must be one of parity, babi"):
        make(tmp_path, tmp_path)
    write_about(tmp_path / "made", task="parity")
    with pytest.raises(Refused, match="is a run of the task 'babi', not of 'parity'"):
        make(tmp_path, tmp_path)


def test_the_page_of_the_repository_is_up_to_date(unsaved, tmp_path: Path):
    make(DOCS / "results", tmp_path)
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == (DOCS / "results.md").read_text(encoding="utf-8")
