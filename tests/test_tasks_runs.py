"""Runs on the command line, with a trainer in NumPy: resuming is exact whatever the stop; trouble is one sentence."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, contents, inside, parity, records, refused

# Chunks that do not fit the other periods: many lengths of chunks.
OWN = ["--backend", "numpy_trainer"]  # not a name that a run folder may give
START = [
    *TINY,
    *OWN,
    "--chunk",
    "7",
    "--bits",
    "6",
    "--train-ones",
    "1-3",
    "--eval-ones",
    "4-6",
]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    done = parity(*START, "--out", folder, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return folder


def killed(folder: Path, *arguments: object, **extra: str) -> None:
    done = parity(*arguments, "--out", folder, cwd=folder.parent, **extra)
    assert done.returncode == -signal.SIGKILL, done.stderr


def resumed(folder: Path, **extra: str) -> None:
    done = parity("--out", folder, "--resume", *OWN, cwd=folder.parent, **extra)
    assert done.returncode == 0, done.stderr


def test_a_run_has_its_files_and_records(unbroken: Path):
    names = set(contents(unbroken))
    figures = {"figures/learning.png", "figures/difficulty.png", "figures/halting.png"}
    last = {"checkpoints/update-00000080.safetensors", "checkpoints/update-00000120.safetensors"}
    assert names == {"config.json", "metrics.jsonl"} | figures | last
    kept = records(unbroken)
    assert [record["update"] for record in kept if record["kind"] == "train"] == [30, 60, 90, 120]
    for split in ("valid", "valid-beyond"):
        assert [record["update"] for record in kept if record.get("split") == split] == [0, 50, 100, 120]
    assert [record["split"] for record in kept[-2:]] == ["test", "test-beyond"]
    assert kept[-1]["forward_passes"] == 120 * 5
    assert not any("seconds" in record for record in kept)
    (session,) = [json.loads(line) for line in (unbroken / "sessions.jsonl").read_text().splitlines()]
    assert (session["from"], session["to"], session["outcome"]) == (0, 120, "finished")


def test_the_summary_says_what_is_needed(tmp_path: Path):
    done = inside(*START, "--out", "here", cwd=tmp_path)
    for words in ("expected", "sampled", "non-zeros", "1-3", "4-6", "here/figures", "--evaluate here"):
        assert words in done.stdout
    lines = done.stderr.splitlines()
    assert len([line for line in lines if "updates/s" in line]) == 4
    assert len(done.stdout.splitlines()) <= 24


def test_without_a_folder_a_run_takes_the_first_that_is_free(tmp_path: Path):
    (tmp_path / "runs" / "parity-2").mkdir(parents=True)
    for name in ("parity", "parity-3"):
        done = inside(*START, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.startswith(f"the run is in {Path('runs') / name}\n")
        assert records(tmp_path / "runs" / name)[-1]["split"].startswith("test")
    assert not any((tmp_path / "runs" / "parity-2").iterdir())


def test_runs_are_reproducible(unbroken: Path, tmp_path: Path):
    done = inside(*START, "--out", tmp_path / "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == contents(unbroken)


@pytest.mark.parametrize(
    "death",
    [
        {"TEST_SIGNAL_AT": "1:9"},
        {"TEST_SIGNAL_AT": "57:9"},
        {"TEST_SIGNAL_AT": "118:9"},
        {"TEST_KILL_FSYNC": "3"},
        {"TEST_KILL_FSYNC": "11"},
        {"TEST_KILL_REPLACE": "1"},
        {"TEST_KILL_REPLACE": "2"},
        {"TEST_KILL_REPLACE": "3"},
        {"TEST_KILL_REPLACE": "5"},
        {"TEST_KILL_UNLINK": "1"},  # of the oldest checkpoint, when the last one is in its place
    ],
    ids=lambda death: "-".join(map(str, *death.items())),
)
def test_a_killed_run_resumes_to_the_same_bytes(death: dict[str, str], unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    killed(folder, *START, **death)
    if (folder / "config.json").exists():
        resumed(folder)
    else:
        assert parity(*START, "--out", folder, cwd=tmp_path).returncode == 0
    assert contents(folder) == contents(unbroken)


def test_a_run_killed_many_times_resumes_to_the_same_bytes(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    killed(folder, *START, TEST_SIGNAL_AT="45:9")
    for update in (47, 80, 83, 119):
        killed(folder, "--resume", *OWN, TEST_SIGNAL_AT=f"{update}:9")
    resumed(folder)
    assert contents(folder) == contents(unbroken)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_and_say_how_to_go_on(number: int, code: int, unbroken: Path, tmp_path: Path):
    done = parity(*START, "--out", "run", cwd=tmp_path, TEST_SIGNAL_AT=f"58:{int(number)}")
    assert done.returncode == code, done.stderr
    assert "at update 60" in done.stderr.splitlines()[-1]
    assert "python -m tasks.parity --out run --resume" in done.stderr.splitlines()[-1]
    assert (tmp_path / "run" / "checkpoints" / "update-00000060.safetensors").exists()
    resumed(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(unbroken)


def test_a_finished_run_can_be_resumed(unbroken: Path, tmp_path: Path):
    shutil.copytree(unbroken, tmp_path / "run")
    assert inside("--out", "run", "--resume", *OWN, cwd=tmp_path).returncode == 0
    assert contents(tmp_path / "run") == contents(unbroken)


def test_a_diverged_run_keeps_the_last_good_checkpoint(unbroken: Path, tmp_path: Path):
    done = parity(*START, "--out", "run", cwd=tmp_path, TEST_NAN_AT="95")
    assert done.returncode == 1
    assert "diverged at update 95" in done.stderr.splitlines()[-1]
    assert "update-00000080.safetensors" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    last = records(tmp_path / "run")[-1]
    assert (last["kind"], last["update"]) == ("diverged", 95)
    resumed(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(unbroken)


def test_a_full_disk_loses_nothing(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    killed(folder, *START, TEST_SIGNAL_AT="60:9")
    # Of a resumed run the first file that is put in its place is metrics.jsonl, the second a checkpoint.
    done = parity("--out", folder, "--resume", *OWN, cwd=tmp_path, TEST_FULL_REPLACE="2")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no space left" in done.stderr.splitlines()[-1]
    assert "update-00000040.safetensors" in done.stderr.splitlines()[-1]
    resumed(folder)
    assert contents(folder) == contents(unbroken)


def test_a_damaged_checkpoint_is_refused_and_the_one_before_taken(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    last, good = (folder / "checkpoints" / f"update-{n:08d}.safetensors" for n in (120, 80))
    data = bytearray(last.read_bytes())
    data[-3] ^= 4
    last.write_bytes(bytes(data))
    sentence = refused(inside("--out", folder, "--resume", *OWN, cwd=tmp_path))
    assert f"--checkpoint {good}" in sentence
    assert str(good) in refused(inside("--evaluate", folder, *OWN, cwd=tmp_path))
    done = inside("--out", folder, "--resume", *OWN, "--checkpoint", good, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == contents(unbroken)


def test_foreign_checkpoints_are_refused(unbroken: Path, tmp_path: Path):
    done = inside(*START, "--hidden", "3", "--out", "other", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    theirs = tmp_path / "other" / "checkpoints" / "update-00000120.safetensors"
    sentence = refused(inside("--evaluate", unbroken, *OWN, "--checkpoint", theirs, cwd=tmp_path))
    assert "--hidden is 3 there and 32 here" in sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "RUN"], "is not empty: add --resume"),
        (["--out", "RUN", "--resume", "--lambda-p", "0.25"], "--lambda-p is 0.4 there and 0.25 here"),
        (["--out", "RUN", "--resume", "--checkpoint", "nothing"], "there is no checkpoint nothing"),
        (["--out", "missing", "--resume"], "there is no run folder missing"),
        (["--out", "empty", "--resume"], "it has no config.json"),
        (["--out", "file"], "is a file"),
        (["--out", "file/run"], "cannot write file/run"),
        (["--evaluate", "RUN", "--bits", "9"], "--bits does not go with --evaluate"),
        (["--evaluate", "RUN", "--examples", "0"], "--examples must be an integer in 1.."),
        (["--evaluate", "empty"], "it has no config.json"),
        (["--evaluate", "RUN", "--eval-ones", "2-5"], "--eval-ones must be equal to --train-ones 1-3 or apart"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_folders_get_one_sentence(arguments: list[str], words: str, unbroken: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    before = contents(unbroken)
    given = [str(unbroken) if word == "RUN" else word for word in arguments]
    backend = ["--backend", "numpy_trainer"]
    assert words in refused(inside(*given, *backend, cwd=tmp_path))
    assert contents(unbroken) == before


def test_a_config_that_is_not_one_is_refused(tmp_path: Path):
    (tmp_path / "run").mkdir()
    for text, words in (
        ("{", "is not JSON"),
        ("[]", "expected object, got array"),
        ('{"task": "x", "backend": "jax", "config": {}}', "'x'"),
        ('{"task": "parity", "backend": "", "config": {}}', "backend: expected str of length >= 1"),
        ('{"task": "parity", "backend": {}, "config": {}}', "backend: expected str, got object"),
        ('{"task": "parity", "config": {}}', "backend is missing"),
    ):
        (tmp_path / "run" / "config.json").write_text(text)
        assert words in refused(inside("--out", "run", "--resume", *OWN, cwd=tmp_path))


def test_evaluation_takes_more_steps_and_draws(unbroken: Path, tmp_path: Path):
    before = contents(unbroken)
    done = inside("--evaluate", unbroken, *OWN, "--max-steps", "9", "--examples", "700", "--draws", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "700 examples" in done.stdout
    assert "N = 9" in done.stdout
    assert "test-beyond: 4-6 non-zeros" in done.stdout
    assert contents(unbroken) == before


@pytest.mark.parametrize("method", ["act", "repeat", "once"])
def test_other_methods_run(method: str, tmp_path: Path):
    done = inside(*START, "--method", method, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = records(tmp_path / "run")[-1]
    assert last["draws"] == 0
    assert len(last["step_share"]) == (1 if method == "once" else 5)


def test_one_process_at_a_time(unbroken: Path, tmp_path: Path):
    fcntl = pytest.importorskip("fcntl")
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        sentence = refused(parity("--out", folder, "--resume", *OWN, cwd=tmp_path))
        assert "another process is training in" in sentence
    finally:
        os.close(held)


def test_what_a_killed_process_had_begun_is_cleared(unbroken: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    for place in (folder, folder / "checkpoints", folder / "figures"):
        (place / ".pondernet-0123456789abcdef.tmp").write_bytes(b"half")
    resumed(folder)
    assert contents(folder).keys() == contents(unbroken).keys()


def test_fewer_steps_than_training_s_minimum_at_evaluation(tmp_path: Path):
    folder = tmp_path / "run"
    done = parity(*START, "--epsilon", "0.1", "--updates", "20", "--out", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = parity("--evaluate", folder, *OWN, "--max-steps", "1", cwd=tmp_path)
    assert done.returncode == 0 and "N = 1" in done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_test_ends_it(number: int, unbroken: Path, tmp_path: Path):
    # 100 examples are a batch: of 8 evaluations with two ranges, the ninth batch is that of the test.
    done = parity(*START, "--out", "run", cwd=tmp_path, TEST_SIGNAL_AT_UNROLL=f"9:{int(number)}")
    assert done.returncode == 128 + number, done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert "at update 120, everything is saved" in sentence and "--out run --resume" in sentence
    assert [record["split"] for record in records(tmp_path / "run") if "split" in record][-1] == "test"
    (session,) = (tmp_path / "run" / "sessions.jsonl").read_text().splitlines()
    assert json.loads(session)["outcome"] == "interrupted"
    resumed(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(unbroken)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_acts_at_once_and_the_session_is_noted(number: int, unbroken: Path, tmp_path: Path):
    done = parity(*START, "--out", "run", cwd=tmp_path, TEST_SIGNAL_AT=f"58:{int(number)}", TEST_SIGNALS="2")
    assert done.returncode == 128 + number, done.stderr
    assert "at once" in done.stderr.splitlines()[-1] and "--out run --resume" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    (session,) = (tmp_path / "run" / "sessions.jsonl").read_text().splitlines()
    assert (json.loads(session)["to"], json.loads(session)["outcome"]) == (56, "stopped")
    resumed(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(unbroken)


def test_an_evaluation_that_is_interrupted_says_nothing_of_going_on(unbroken: Path, tmp_path: Path):
    done = parity("--evaluate", unbroken, *OWN, cwd=tmp_path, TEST_SIGNAL_AT_UNROLL="1:2")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_a_result_that_cannot_be_kept_says_nothing_of_going_on(unbroken: Path, tmp_path: Path):
    shutil.copytree(unbroken, tmp_path / "run")
    (tmp_path / "run" / "evaluations.jsonl").mkdir()
    sentence = refused(inside("--evaluate", "run", *OWN, "--record", cwd=tmp_path))
    assert "cannot write run/evaluations.jsonl" in sentence and "--resume" not in sentence
