"""Small runs of `python -m benchmarks inference`, `babi` and `pai`, for the tests of each backend."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"examples": 16, "slots": 4, "units": 8, "width": 16, "tokens": 4, "steps": 5, "means": 2, "repetitions": 1}
SMALL = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


def check_inference(framework: str, out: Path) -> None:
    """The table is printed, JSON and picture are written, and the rows are those that the logits ask for."""
    command = [sys.executable, "-m", "benchmarks", "inference", *SMALL, "--frameworks", framework, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"{framework}: transformer, 4 slots: overhead at most" in done.stdout
    records = json.loads((out / "inference.json").read_text(encoding="utf-8"))["records"]
    assert {record["network"] for record in records} == {"rnn", "transformer"}
    for record in records:
        assert record["needed"] <= record["rows"] <= 80 and record["seconds"] > 0
        if record["contender"] == "fixed N":
            assert record["rows"] == 80
        if record["contender"] == "predict, 4 slots":
            assert record["rows"] <= record["needed"] + 3 * 5 < 80
    assert (out / "inference.png").read_bytes().startswith(b"\x89PNG")


def check_written(file: Path, medians: dict[str, float], sentence: str) -> None:
    """What was kept is what was printed: the only table, and the sentence."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    (table,) = kept["tables"]
    assert {name: round(row[1], 3) for name, row in table["rows"].items() if name in medians} == medians
    assert all(low <= middle <= high for low, middle, high in table["rows"].values())
    assert kept["sentences"] == [sentence] and f"benchmarks {file.stem} --updates" in kept["command"]
    assert str(file.parent) not in kept["command"] and kept["versions"]["numpy"]


def check_babi(framework: str, out: Path) -> None:
    """A table with a line for each contender."""
    small = ["--preset", "smoke", "--questions", "40", "--updates", "2", "--padded", "8", "--repetitions", "2"]
    command = [sys.executable, "-m", "benchmarks", "babi", *small, "--frameworks", framework, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "preset smoke: batch 32, N = 3" in done.stdout and f"{framework}: time of an example" in done.stdout
    rows = [line.rsplit(maxsplit=3) for line in done.stdout.splitlines() if line]
    medians = {row[0]: float(row[1]) for row in rows if row[0] in ("by length", "padded to 320", "bare products")}
    assert len(medians) == 3 and medians["by length"] == 1 and min(medians.values()) > 0
    sentence = done.stdout.splitlines()[-2]  # then it says what it wrote
    times, share = sentence.split(": ")[1].split(" ")[0], sentence.split("; ")[-1].split(" ")[0]
    assert abs(float(times) - medians["padded to 320"]) < 0.06  # the sentence says what the table says
    assert abs(float(share) - 100 * medians["bare products"]) < 0.6
    check_written(out / "babi.json", medians, sentence)


def check_pai(framework: str, out: Path, *, xl: bool) -> None:
    """A table with a line for each contender, and a sentence that says what it says."""
    small = ["--preset", "smoke", "--updates", "1", "--repetitions", "2", *(["--xl"] if xl else [])]
    command = [sys.executable, "-m", "benchmarks", "pai", *small, "--frameworks", framework, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "preset smoke: batch 16, N = 3" in done.stdout
    *table, sentence, _ = done.stdout.splitlines()
    names = [framework, f"{framework}, bare products", "making the data", f"{framework}, --memory xl"]
    rows = [line.rsplit(maxsplit=3) for line in table if line]
    medians = {row[0]: float(row[1]) for row in rows if row[0] in names}
    assert set(medians) == set(names if xl else names[:3])
    assert medians[framework] == 1 and min(medians.values()) > 0
    pattern = rf"{framework}: ([\d.e+]+) updates per second; (\d+) % of an update is bare products; "
    pattern += r"making its data takes ([\d.]+) % of its time" + (r"; --memory xl takes ([\d.]+) times as long" * xl)
    found = re.fullmatch(pattern, sentence)
    assert found, sentence
    rate, share, data, *longer = map(float, found.groups())
    assert rate > 0 and abs(share - 100 * medians[names[1]]) < 0.6 and abs(data - 100 * medians[names[2]]) < 0.2
    assert all(abs(times - medians[names[3]]) < 0.006 for times in longer)
    check_written(out / "pai.json", medians, sentence)


def check_refused(*options: str, said: str, benchmark: str = "inference") -> None:
    """A wrong option: exit code 2 and one sentence."""
    command = [sys.executable, "-m", "benchmarks", benchmark, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
