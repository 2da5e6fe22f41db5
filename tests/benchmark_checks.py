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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = json.loads((out / "inference.json").read_text(encoding="utf-8"))["records"]
    assert {record["network"] for record in records} == {"rnn", "transformer"}
    for record in records:
        assert record["needed"] <= record["rows"] <= 80 and record["seconds"] > 0
        if record["contender"] == "fixed N":
            assert record["rows"] == 80
        if record["contender"] == "predict, 4 slots":
            assert record["rows"] <= record["needed"] + 3 * 5 < 80
            if record["network"] == "transformer":  # one mean, so this is the largest
                said = f"{framework}: transformer, 4 slots: overhead at most {record['overhead']:.2f} (target"
                assert said in done.stdout
    assert (out / "inference.png").read_bytes().startswith(b"\x89PNG")


def check_written(file: Path, stdout: str, names: list[str]) -> tuple[dict[str, float], str]:
    """What was kept is what was printed, digit by digit: the only table, with these rows, and the only sentence.

    Returns:
        The medians of the table, and the sentence.
    """
    *lines, sentence, _ = stdout.splitlines()  # then it says what it wrote
    printed = [line.rsplit(maxsplit=3) for line in lines]
    rows = {row[0]: [float(word) for word in row[1:]] for row in printed if row and row[0] in names}
    assert list(rows) == names
    kept = json.loads(file.read_text(encoding="utf-8"))
    (table,) = kept["tables"]
    assert {name: [low, middle, high] for name, (middle, low, high) in rows.items()} == table["rows"]
    assert all(0 < low <= middle <= high for low, middle, high in table["rows"].values())
    assert kept["sentences"] == [sentence] and f"benchmarks {file.stem} --updates" in kept["command"]
    assert str(file.parent) not in kept["command"] and kept["versions"]["numpy"]
    return {name: row[0] for name, row in rows.items()}, sentence


def check_babi(framework: str, out: Path) -> None:
    """A table with a line for each contender."""
    small = ["--preset", "smoke", "--questions", "40", "--updates", "2", "--padded", "8", "--repetitions", "2"]
    command = [sys.executable, "-m", "benchmarks", "babi", *small, "--frameworks", framework, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "preset smoke: batch 32, N = 3" in done.stdout and f"{framework}: time of an example" in done.stdout
    names = ["by length", "by length, whole stories", "padded to 320", "bare products"]
    medians, sentence = check_written(out / "babi.json", done.stdout, names)
    assert medians["by length"] == 1
    whole = re.search(r" \(([\d.]+) times with whole stories\)", sentence)  # a comparison that no table has
    assert whole, sentence
    assert sentence.replace(whole[0], "") == (
        f"{framework}: {medians['padded to 320']:.1f} times the examples per second of padding to 320 sentences; "
        f"{100 * medians['bare products']:.0f} % of an update is bare products"
    )


def check_pai(framework: str, out: Path, *, xl: bool) -> None:
    """A table with a line for each contender, and a sentence that says what it says."""
    small = ["--preset", "smoke", "--updates", "1", "--repetitions", "2", *(["--xl"] if xl else [])]
    command = [sys.executable, "-m", "benchmarks", "pai", *small, "--frameworks", framework, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "preset smoke: batch 16, N = 3" in done.stdout
    names = [framework, f"{framework}, bare products", *([f"{framework}, --memory xl"] * xl), "making the data"]
    medians, sentence = check_written(out / "pai.json", done.stdout, names)
    assert medians[framework] == 1
    rate, rest = sentence.removeprefix(f"{framework}: ").split(" updates per second; ")
    assert float(rate) > 0
    assert rest == (
        f"{100 * medians[names[1]]:.0f} % of an update is bare products; "
        f"making its data takes {100 * medians['making the data']:.1f} % of its time"
    ) + (f"; --memory xl takes {medians[names[2]]:.2f} times as long" * xl)


def check_refused(*options: str, said: str, benchmark: str = "inference") -> None:
    """A wrong option: exit code 2 and one sentence."""
    command = [sys.executable, "-m", "benchmarks", benchmark, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
