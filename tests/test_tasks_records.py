"""Records of a run folder: what is odd is refused with file and line, wherever it is read; old runs are read."""

import json
import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import ROOT, TINY, contents, inside, refused

from ponder_ref.runtime.errors import Refused
from tasks import figures, plots
from tasks.babi.card import training_time
from tasks.parity import Parity, ParityConfig
from tasks.records import MAX_LINE, SCHEMAS, line_of, read_records
from tasks.runs import Run

RUNS = ROOT / "tests" / "tiny_runs"
EVAL = {"kind": "eval", "split": "valid", "update": 0, "examples": 9, "draws": 1, "levels": [[1, 9, 0.5, 2.0]]}
EVAL |= dict.fromkeys(("accuracy", "sampled_accuracy", "expected_steps", "sampled_steps"), 0.5)
EVAL |= {"loss": 0.7, "loss_rec": 0.7, "loss_reg": 0.0, "step_share": [0.5, 0.5], "step_accuracy": [0.5, 0.6]}
MEDIAN = {"median_accuracy": 0.5, "median_steps": 2.0}
OWN = ["--backend", "numpy_trainer"]  # not a name that a run folder may give
SESSION = {"backend": "jax", "from": 0, "to": 9, "seconds": 1.5}
ODD = [
    ("metrics", {"update": 1}, "kind is missing"),
    ("metrics", {"kind": ["eval"], "update": 1}, "kind: expected str"),
    ("metrics", {"kind": "other", "update": 1}, "kind: invalid value 'other'"),
    ("metrics", {"kind": "eval"}, "update is missing"),
    ("metrics", EVAL | {"update": "x"}, "update: expected int, got str"),
    ("metrics", {"kind": "train", "update": 1}, "forward_passes is missing"),
    ("metrics", {"kind": "train", "update": True, "expected_steps": 1, "forward_passes": 1}, "update: expected int"),
    ("metrics", {"kind": "diverged", "update": -1}, "update: expected int >= 0"),
    ("metrics", EVAL | {"split": 3}, "split: expected str, got int"),
    ("metrics", EVAL | {"split": "\x1b[2J"}, "split must be text that can be printed, got '\\x1b[2J'"),
    ("metrics", EVAL | {"split": ""}, "split: expected str of length >= 1"),
    ("metrics", EVAL | {"accuracy": "high"}, "accuracy: expected float | null, got str"),
    ("metrics", EVAL | {"accuracy": 10**400}, "accuracy: number out of range"),
    ("metrics", EVAL | {"other": 10**400}, "int too large"),
    ("metrics", EVAL | {"other": [[[[[[[[[]]]]]]]]]}, "nested too deeply"),
    ("metrics", EVAL | {"examples": 0}, "examples: expected int >= 1"),
    ("metrics", EVAL | {"loss_rec": []}, "loss_rec: expected float | null, got array"),
    ("metrics", EVAL | {"levels": [[1, 9, 0.5, 2.0, 7]]}, "levels[0]: expected array of length 4, got 5"),
    ("metrics", EVAL | {"levels": [[1, 0, 0.5, 2.0]]}, "levels[0][1]: expected int >= 1"),
    ("metrics", EVAL | {"levels": [["1", 9, 0.5, 2.0]]}, "levels[0][0]: expected int, got str"),
    ("metrics", EVAL | {"levels": {}}, "levels: expected array, got object"),
    ("metrics", EVAL | {"levels": []}, "levels: expected array of length >= 1"),
    ("metrics", EVAL | {"step_share": [0.5, "x"]}, "step_share[1]: expected float | null, got str"),
    ("metrics", EVAL | {"step_share": [0.5]}, "step_share and step_accuracy must have the same length"),
    ("metrics", EVAL | {"median_accuracy": "half"}, "median_accuracy: expected float | null"),
    ("metrics", EVAL | {"median_levels": [[1, 0, 0.5, 2.0]]}, "median_levels[0][1]: expected int >= 1"),
    ("metrics", EVAL | {"median_accuracy": 0.5}, "median_steps is missing beside median_accuracy"),
    ("metrics", EVAL | MEDIAN | {"median_levels": [[7, 3, 0.5, 2.0]]}, "median_levels must have the difficulties"),
    ("metrics", EVAL | {"level_shares": [[1, 0.5, 0.5], [2, 1.0]]}, "level_shares must be a list of rows"),
    ("metrics", EVAL | {"level_shares": [[None, 0.5]]}, "level_shares must be a list of rows"),
    ("evaluations", EVAL, "max_steps is missing"),
    ("sessions", {}, "backend is missing"),
    ("sessions", SESSION | {"from": 0.5}, "from: expected int, got float"),
    ("sessions", SESSION | {"seconds": None}, "seconds: expected float, got null"),
    ("sessions", SESSION | {"cpu_seconds": "3"}, "cpu_seconds: expected float, got str"),
]


@pytest.mark.parametrize(("name", "record", "words"), ODD, ids=lambda value: json.dumps(value)[:50])
def test_odd_records_are_named_by_file_and_line(name: str, record: dict, words: str, tmp_path: Path):
    path = tmp_path / f"{name}.jsonl"
    good = {"metrics": EVAL, "sessions": SESSION, "evaluations": EVAL | {"max_steps": 3}}[name]
    path.write_text(json.dumps(good) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(Refused) as refusal:
        read_records(path)
    assert str(refusal.value).startswith(f"{path}, line 2: ") and words in str(refusal.value)


def test_lines_that_are_no_objects_are_refused_and_half_a_line_is_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    path.write_text(json.dumps(EVAL) + "\n" + json.dumps(EVAL)[:-1])
    assert read_records(path) == [EVAL]
    for text in (b"nonsense", b"", b'{"a":' * 10**5, b"\xff", b'{"accuracy": NaN}'):
        path.write_bytes(json.dumps(EVAL).encode() + b"\n" + text + b"\n")
        with pytest.raises(Refused, match="line 2 is not JSON"):
            read_records(path)
    for text in ("[]", "[" * 10**5):
        path.write_text(json.dumps(EVAL) + f"\n{text}\n")
        with pytest.raises(Refused, match="line 2: expected object, got array"):
            read_records(path)
    path.write_bytes(json.dumps(EVAL).encode() + b"\n" + b" " * MAX_LINE)
    with pytest.raises(Refused, match="line 2: longer than"):
        read_records(path)
    with pytest.raises(Refused, match=r"cannot read .*: it is a directory"):
        read_records(tmp_path)


def test_what_is_not_finite_is_null_in_the_file_and_nan_in_memory(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    line = line_of(EVAL | {"accuracy": math.nan, "levels": [[1, 9, math.inf, 2.0]], "loss": 0.1})
    assert '"accuracy": null' in line and "[[1, 9, null, 2.0]]" in line
    path.write_text(line)
    (record,) = read_records(path)
    assert math.isnan(record["accuracy"]) and math.isnan(record["levels"][0][2])
    assert line_of(record) == line


def test_every_run_of_the_repository_is_read_and_written_alike():
    paths = [path for place in (RUNS, ROOT / "docs" / "results") for path in sorted(place.rglob("*.jsonl"))]
    assert len(paths) > 90 and {path.name for path in paths} == set(SCHEMAS)
    for path in paths:
        assert "".join(map(line_of, read_records(path))) == path.read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of a moment."""
    start = [*TINY, "--updates", "40", "--backend", "numpy_trainer"]
    assert inside(*start, "--out", tmp_path / "run", cwd=tmp_path).returncode == 0
    return tmp_path / "run"


def test_odd_records_are_refused_where_a_run_goes_on_and_where_it_is_drawn(run: Path):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "eval"}\n')
    before = contents(run)
    for done in (
        inside("--out", run, "--resume", *OWN, "--checkpoint", sorted((run / "checkpoints").iterdir())[0], cwd=run),
        inside(run, "--out", run / "drawn", cwd=run, main=figures.main),
    ):
        assert "metrics.jsonl, line " in refused(done) and "update is missing" in done.stderr
    assert contents(run) == before


def test_odd_sessions_are_refused_where_hours_are_counted(tmp_path: Path):
    made = Run.create(tmp_path / "run", "parity", ParityConfig(), "jax")
    made.sessions.write_text("{}\n")
    with pytest.raises(Refused, match=r"sessions\.jsonl, line 1: backend is missing"):
        training_time(made, 40)


def test_a_clock_that_is_set_back_makes_no_session_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    day = iter(range(10**9, 0, -3600))
    monkeypatch.setattr("tasks.loop.time", SimpleNamespace(**vars(time) | {"time": lambda: float(next(day))}))
    start = [*TINY, "--updates", "40", "--backend", "numpy_trainer"]
    assert inside(*start, "--out", "run", cwd=tmp_path).returncode == 0
    (session,) = read_records(tmp_path / "run" / "sessions.jsonl")
    assert session["seconds"] >= 0 and session["began"] == 10**9


def test_half_a_line_does_not_spoil_the_next(tmp_path: Path):
    run = Run.create(tmp_path / "run", "parity", ParityConfig(), "jax")
    for left in ("", line_of(SESSION)):
        run.sessions.write_text(left + line_of(SESSION)[:20])
        run.append(run.sessions, [SESSION | {"to": 20}])
        assert run.sessions.read_text() == left + line_of(SESSION | {"to": 20})
        assert read_records(run.sessions)[-1]["to"] == 20


def test_a_run_whose_metrics_are_lost_does_not_go_on_without_them(run: Path):
    (run / "metrics.jsonl").unlink()
    before = contents(run)
    sentence = refused(inside("--out", run, "--resume", *OWN, cwd=run))
    assert "metrics.jsonl is missing" in sentence and "update 40" in sentence
    assert contents(run) == before


def test_whatever_keeps_figures_from_being_drawn_becomes_a_note(tmp_path: Path):
    shutil.copytree(RUNS / "act-0", tmp_path / "run")
    run = Run(tmp_path / "run", "parity", ParityConfig(), "numpy_trainer")
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join(line for line in lines if '"split": "test' not in line))
    drawn, note = plots.draw_run(run, Parity(run.config))
    assert len(drawn) == 3 and note == "", "a run without a test is drawn from its last evaluation"
    run.metrics.write_text("".join(line for line in lines if '"kind": "eval"' not in line))
    assert plots.draw_run(run, Parity(run.config)) == ([], "IndexError: list index out of range")
    run.metrics.write_text("{}\n")
    assert "line 1: kind is missing" in plots.draw_run(run, Parity(run.config))[1]
