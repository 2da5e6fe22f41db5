"""Figures from small committed runs, and what is said where they cannot be drawn."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from ponder_ref.runtime.errors import Refused
from tasks import figures, history, plots
from tasks.babi import report as babi_report
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi
from tasks.flags import from_json, to_json
from tasks.pai import report as pai_report
from tasks.pai.task import Pai
from tasks.parity import Parity, ParityConfig
from tasks.progress import Lines, duration, progress
from tasks.records import line_of
from tasks.runs import Run

TINY = Path(__file__).resolve().parent / "tiny_runs"


def is_picture(path: Path) -> bool:
    """A PNG that is not blank."""
    from matplotlib.image import imread

    return path.suffix == ".png" and imread(path)[..., :3].std() > 0.02


def test_figures_of_the_paper_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert figures.main([str(TINY), "--out", str(tmp_path / "new")]) == 0
    names = ["figure-1a.png", "figure-1b.png", "figure-1c.png", "difficulty.png"]
    assert capsys.readouterr().out.split() == [str(tmp_path / "new" / name) for name in names]
    assert all(is_picture(tmp_path / "new" / name) for name in names)


def test_without_a_second_range_there_is_no_figure_1b(tmp_path: Path):
    shutil.copytree(TINY / "act-0", tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(line for line in lines if "beyond" not in line))
    drawn = figures.draw([str(tmp_path / "run")], tmp_path)
    assert [path.name for path in drawn] == ["figure-1a.png", "figure-1c.png", "difficulty.png"]


def test_levels_of_the_tests_are_joined_and_averaged():
    both = [history.load(TINY / f"ponder-{seed}") for seed in (0, 1)]
    tests = [{r["split"]: r["levels"] for r in run.evaluations if r["split"].startswith("test")} for run in both]
    ranges = [[row for split in ("test", "test-beyond") for row in one[split]] for one in tests]
    found = figures.final_levels(both)
    assert list(found[:, 0]) == sorted({row[0] for row in ranges[0]})
    assert found[-1, 1] == pytest.approx((ranges[0][-1][2] + ranges[1][-1][2]) / 2)
    assert found[-1, 2] == pytest.approx((ranges[0][-1][3] + ranges[1][-1][3]) / 2)
    assert figures.final_levels([replace(both[0], records=[])]).shape == (0, 3)
    last = {"kind": "eval", "split": "test", "levels": [[1, 10, 0.25, 3.0]]}
    assert list(figures.final_levels([replace(both[0], records=[*both[0].records, last])])[0]) == [1, 0.25, 3.0]


def test_a_setting_that_was_added_later_does_not_split_a_group(tmp_path: Path):
    for seed in (0, 1):
        shutil.copytree(TINY / f"ponder-{seed}", tmp_path / f"ponder-{seed}")
    path = tmp_path / "ponder-0" / "config.json"
    content = json.loads(path.read_text())
    for name, value in to_json(ParityConfig()).items():
        if content["config"].get(name, value) == value:
            content["config"].pop(name, None)
    path.write_text(json.dumps(content))
    runs = [history.load(folder) for folder in history.find_runs([str(tmp_path)])]
    assert set(history.label_groups(runs)) == {"ponder"}


@pytest.mark.parametrize(
    ("trained", "beyond", "end"),
    [((1, 3), (4, 8), 3), ((5, 8), (1, 4), None), (None, (1, 8), None), ((1, 8), None, None)],
)
def test_where_training_ends_is_marked_only_where_something_is_beyond(
    trained, beyond, end, monkeypatch, tmp_path: Path
):
    config = ParityConfig(bits=8, train_ones=trained, eval_ones=beyond)
    run = replace(history.load(TINY / "ponder-0"), config=config)
    drawn = []

    def look(figure, path: Path) -> Path:
        drawn.extend(line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_linestyle() == "--")
        plots.pyplot().close(figure)
        return path

    monkeypatch.setattr(figures, "save", look)
    figures.draw_difficulty({"ponder": [run]}, "non-zeros", tmp_path / "x.png")
    assert drawn == ([] if end is None else [end])


def test_every_one_of_many_groups_has_a_look_of_its_own():
    looks = [tuple(look.values()) for _, _, look in figures.styled({str(i): [] for i in range(24)})]
    assert len(set(looks)) == 24


def test_seeds_are_joined_and_settings_told_apart():
    runs = [history.load(folder) for folder in history.find_runs([str(TINY)])]
    assert {label: len(group) for label, group in history.label_groups(runs).items()} == {"ponder": 2, "act": 1}
    other = replace(runs[-1], values=runs[-1].values | {"lambda_p": 0.1})
    assert set(history.label_groups([*runs, other])) == {"act", "ponder, lambda_p 0.1", "ponder, lambda_p 0.4"}
    # ACT does not read λ_p, so that a difference there does not split its group.
    act = next(run for run in runs if run.values["method"] == "act")
    unread = replace(act, values=act.values | {"lambda_p": 0.1}, seed=act.seed + 1)
    assert set(history.label_groups([act, unread])) == {"act"}
    # A copy is not another seed.
    with pytest.raises(Refused, match="same run with the same seed"):
        history.label_groups([act, replace(act, folder=Path("copy"))])


def test_curves_are_means_and_deviations_over_seeds():
    group = [history.load(TINY / f"ponder-{seed}") for seed in (0, 1)]
    x, mean, spread = figures.curves(group, "valid", "update", "accuracy")
    values = np.array([[r["accuracy"] for r in run.evaluations if r["split"] == "valid"] for run in group])
    assert x.tolist() == [0, 20, 40, 60]
    assert mean == pytest.approx(values.mean(axis=0))
    assert spread == pytest.approx(np.abs(values[0] - values[1]) / 2**0.5)
    assert figures.curves(group, "nothing", "update", "accuracy")[0].size == 0


def test_runs_of_different_length_meet_where_both_have_been(tmp_path: Path):
    runs = [history.load(TINY / f"ponder-{seed}") for seed in (0, 1)]
    shorter = replace(runs[1], records=[r for r in runs[1].records if r["update"] <= 20])
    assert figures.curves([runs[0], shorter], "valid", "update", "accuracy")[0].tolist() == [0, 20]


def test_of_an_update_that_was_evaluated_twice_the_last_counts():
    runs = [history.load(TINY / f"ponder-{seed}") for seed in (0, 1)]
    again = next(r for r in runs[1].evaluations if r["split"] == "valid" and r["update"] == 20) | {"accuracy": 0.125}
    twice = replace(runs[1], records=[*runs[1].records, again])
    x, mean, _ = figures.curves([runs[0], twice], "valid", "update", "accuracy")
    first = figures.curves([runs[0]], "valid", "update", "accuracy")[1]
    assert x.tolist() == [0, 20, 40, 60] and mean[1] == pytest.approx((first[1] + 0.125) / 2)


def test_the_figures_of_a_run_are_drawn(tmp_path: Path):
    for name in ("ponder-0", "act-0"):
        shutil.copytree(TINY / name, tmp_path / name)
        values = json.loads((TINY / name / "config.json").read_text())["config"]
        run = Run(tmp_path / name, "parity", from_json(ParityConfig, values, name), "numpy_trainer")
        drawn, note = plots.draw_run(run, Parity(run.config))
        assert [path.name for path in drawn] == ["learning.png", "halting.png", "difficulty.png"]
        assert note == ""
        assert all(is_picture(path) for path in drawn)


@pytest.mark.parametrize(
    ("task", "drawn"),
    # learning, halting, and a task's own: by difficulty; by query, in percent, its course; by task, 5 % being solved
    [(Parity, [0.5, 0.5, 0.5]), (Pai, [0.5, 0.5, 50, 0.5]), (Babi, [None, None, 5.0, None])],
)
def test_the_accuracy_of_guessing_is_marked_where_there_is_one(task, drawn, tmp_path, monkeypatch):
    """One of two answers, or of the two images shown; on bAbI it differs from task to task."""
    seen = []

    def look(figure, path: Path) -> Path:
        lines = [line for axes in figure.axes for line in axes.get_lines() if line.get_linestyle() == ":"]
        assert len(lines) < 2
        seen.append(lines[0].get_ydata()[0] if lines else None)
        plots.pyplot().close(figure)
        return path

    for module in (plots, pai_report, babi_report):
        monkeypatch.setattr(module, "save", look)
    levels, shares = [[1, 9, 1.0, 2.0]], {"step_share": [0.5, 0.5], "step_accuracy": [1.0, 1.0]}
    record = {"kind": "eval", "split": "valid", "update": 20, "examples": 9, "draws": 1, "levels": levels, **shares}
    record |= dict.fromkeys(("accuracy", "sampled_accuracy", "expected_steps", "sampled_steps"), 1.0)
    record["level_shares"] = [[1, 0.5, 0.5]]
    run = Run(tmp_path / "run", task.NAME, task.Config(), "numpy_trainer")
    run.folder.mkdir()
    run.metrics.write_text(line_of(record), encoding="utf-8")
    assert plots.draw_run(run, task(run.config))[1] == ""
    assert seen == drawn


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--out", "x"], "nowhere is not a folder"),
        (["EMPTY", "--out", "x"], "there is no run in"),
        (["EMPTY"], "--out"),
        (["--out", "x"], "RUN"),
        ([str(TINY), "--out", "x", "--colour", "red"], "--colour"),
        ([str(TINY), "--out", "FILE/x"], "cannot write"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_arguments_get_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    places = {"EMPTY": str(tmp_path / "empty"), "FILE/x": str(tmp_path / "file" / "x"), "x": str(tmp_path / "x")}
    assert figures.main([places.get(word, word) for word in arguments]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert words in sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [({"train_ones": 3}, "--train-ones must be FIRST-LAST"), ({"colour": "red"}, "has the unknown field 'colour'")],
)
def test_settings_that_a_known_task_cannot_have_get_one_sentence(
    change: dict, words: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    shutil.copytree(TINY / "act-0", tmp_path / "run")
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    content["config"] |= change
    (tmp_path / "run" / "config.json").write_text(json.dumps(content))
    assert figures.main([str(tmp_path / "run"), "--out", str(tmp_path / "x")]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert words in sentence


def test_a_task_that_is_not_known_is_drawn_as_it_is(tmp_path: Path):
    shutil.copytree(TINY / "act-0", tmp_path / "run")
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    content["task"] = "chess"
    content["config"] |= {"colour": ["red", "white"]}
    (tmp_path / "run" / "config.json").write_text(json.dumps(content))
    assert history.load(tmp_path / "run").values["colour"] == ("red", "white")


def test_runs_of_a_task_that_is_not_known_are_told_apart_by_whatever_their_configs_hold(tmp_path: Path):
    for seed, sizes in enumerate(({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 3})):
        shutil.copytree(TINY / "act-0", tmp_path / f"act-{seed}")
        path = tmp_path / f"act-{seed}" / "config.json"
        content = json.loads(path.read_text())
        content["task"], content["config"] = "chess", {"method": "act", "seed": seed, "sizes": sizes}
        path.write_text(json.dumps(content))
    groups = history.label_groups([history.load(folder) for folder in history.find_runs([str(tmp_path)])])
    assert {label: len(runs) for label, runs in groups.items()} == {
        'act, sizes {"a": 1, "b": [2]}': 2,
        'act, sizes {"a": 3}': 1,
    }


def test_a_broken_line_is_named(tmp_path: Path):
    shutil.copytree(TINY / "act-0", tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(Refused, match=r"metrics\.jsonl, line 1"):
        figures.draw([str(tmp_path)], tmp_path)


def test_missing_matplotlib_is_said_and_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert figures.main([str(TINY), "--out", str(tmp_path)]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert "matplotlib" in sentence and "pip install -e" in sentence
    run = Run(TINY / "act-0", "parity", ParityConfig(), "numpy_trainer")
    assert plots.draw_run(run, Parity(run.config)) == ([], sentence)


class Terminal:
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def test_a_terminal_gets_a_bar_and_a_file_gets_lines():
    pytest.importorskip("tqdm")
    record = {"update": 50, "loss": 0.5, "accuracy": 0.75, "expected_steps": 3.0, "split": "valid"}
    terminal = Terminal()
    bar = progress(100, 0, terminal)
    bar.advance(50)
    bar.logged(record)
    bar.evaluated(record)
    bar.close()
    for words in ("50/100", "updates/s", "loss=0.5000", "accuracy=0.750", "steps=3.00", "valid: loss 0.5000"):
        assert words in terminal.text
    terminal.isatty = lambda: False
    terminal.text = ""
    lines = progress(100, 0, terminal)
    assert type(lines) is Lines
    lines.advance(50)
    assert terminal.text == ""
    lines.logged(record)
    assert "50/100 loss 0.5000 accuracy 0.750 steps 3.00" in terminal.text and "left" in terminal.text
    assert duration(3725) == "1:02:05"


def copy_run(source: str, folder: Path, task: str | None = None, **changes) -> Path:
    """A tiny run with another task or other settings; of another task with nothing but them."""
    shutil.copytree(TINY / source, folder)
    content = json.loads((folder / "config.json").read_text())
    content["config"] = {**(content["config"] if task is None else {"method": "ponder", "seed": 0}), **changes}
    content["task"] = task or content["task"]
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_runs_that_cannot_be_compared_are_drawn_apart(tmp_path: Path, capsys: pytest.CaptureFixture):
    runs = tmp_path / "runs"
    for source in ("ponder-0", "ponder-1", "act-0"):
        copy_run(source, runs / source)
    bits = json.loads((TINY / "act-0" / "config.json").read_text())["config"]["bits"]
    copy_run("ponder-0", runs / "wide", bits=2 * bits)
    copy_run("ponder-0", runs / "pairs", "pai", target="class")
    copy_run("ponder-1", runs / "sides", "pai")
    copy_run("ponder-0", runs / "games", "../chess")
    assert figures.main([str(runs), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    drawn = [Path(line).relative_to(tmp_path / "out") for line in said.out.splitlines()]
    names = [f"parity-bits-{bits}", f"parity-bits-{2 * bits}", "pai-target-class", "pai-target-side", "chess"]
    assert sorted({path.parent.as_posix() for path in drawn}) == sorted(names)
    assert all((tmp_path / "out" / path).is_file() for path in drawn)
    assert all(f"{name} (" in said.err for name in names) and f"parity-bits-{bits} (3 runs)" in said.err
    (sentence,) = said.err.strip().splitlines()
    assert "cannot be compared" in sentence


def test_names_of_what_cannot_be_compared_do_not_meet():
    run = history.load(TINY / "act-0")

    def kinds(task, configs: list) -> dict[str, int]:
        runs = [replace(run, task=task, config=config, values={"task": task.NAME}) for config in configs]
        return {name: len(group) for name, group in history.comparable(runs).items()}

    some = [BabiConfig(tasks=tasks) for tasks in ("1-2", "1,2", "1-2")]
    assert kinds(Babi, some) == {"babi-tasks-1-2": 2, "babi-tasks-1-2-2": 1}
    # Where the files lie is another place on every machine; the whole range is the default one.
    places = [BabiConfig(data_dir=place) for place in ("a", "b", None)]
    assert kinds(Babi, places) == {"babi-data-dir-released": 2, "babi-data-dir-generated": 1}
    assert kinds(Parity, [ParityConfig(bits=4, train_ones=span) for span in (None, (1, 4))]) == {"parity": 2}


def test_a_run_that_is_given_twice_is_refused_before_anything_is_drawn(tmp_path: Path):
    copy_run("act-0", tmp_path / "runs" / "a")
    copy_run("act-0", tmp_path / "runs" / "b")
    copy_run("ponder-0", tmp_path / "runs" / "pairs", "pai")
    with pytest.raises(Refused, match="same run with the same seed"):
        figures.draw([str(tmp_path / "runs")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_of_ones_own_is_another_line(tmp_path: Path):
    for name, network in (("task", None), ("mine", "aa"), ("again", "bb")):
        path = copy_run("ponder-0", tmp_path / name) / "config.json"
        content = json.loads(path.read_text())
        content["network"] = network and {"model": {"kind": "own", "name": "net.py:build", "sha256": network}}
        path.write_text(json.dumps(content))
    load = [history.load(tmp_path / name) for name in ("task", "mine", "again")]
    assert list(history.label_groups(load[:1])) == ["ponder"] and [run.model for run in load[:2]] == [
        None,
        "net.py:build",
    ]
    labels = history.label_groups(load)
    assert len(labels) == 3 and all(
        ("net.py:build" in label) == (run[0] is not load[0]) for label, run in labels.items()
    )
