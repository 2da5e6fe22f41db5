"""Kills a training with SIGKILL at random instants, resumes it, and compares it with an unbroken one, byte for byte.

    python scripts/kill_resume.py --backend jax --kills 30

Exit code 0: the folders are the same. 1: they differ. 2: a training could not be run.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IGNORED = ("sessions.jsonl",)  # wall times


def command(arguments: list[str], folder: Path) -> list[str]:
    return [sys.executable, "-m", "tasks.parity", "--out", str(folder), *arguments]


def run(arguments: list[str], folder: Path, seconds: float | None = None) -> int:
    """The exit code of a training, killed after so many seconds if it is not done by then."""
    process = subprocess.Popen(command(arguments, folder), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        print(errors.decode().strip().splitlines()[-1], file=sys.stderr)
        raise SystemExit(2)
    return process.returncode


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in IGNORED)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def update_of(folder: Path) -> int:
    """The update of the newest checkpoint, 0 without any."""
    names = sorted(path.stem for path in (folder / "checkpoints").glob("update-*.safetensors"))
    return int(names[-1].removeprefix("update-")) if names else 0


def differing(one: Path, other: Path) -> list[str]:
    """The names of the files that two runs do not share byte for byte."""
    first, second = contents(one), contents(other)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def kill_and_resume(settings: list[str], folder: Path, kills: int, longest: float, chance: random.Random) -> int:
    """Trains to the end, killed at most `kills` times on the way; how often it was."""
    for number in range(kills + 1):
        seconds = chance.uniform(0.0, longest) if number < kills else None
        begun = (folder / "config.json").exists()
        resume = ["--resume", *settings[settings.index("--backend") :][:2]]
        if run(resume if begun else settings, folder, seconds) == 0:
            return number
        print(f"killed after {seconds:5.2f} s, newest checkpoint at update {update_of(folder)}", flush=True)
    raise AssertionError("the last training is not killed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="jax", help="as for python -m tasks.parity (default jax)")
    parser.add_argument("--kills", type=int, default=30, help="number of kills (default 30)")
    parser.add_argument("--updates", type=int, default=2000, help="length of the training (default 2000)")
    parser.add_argument("--every", type=int, default=50, help="updates between checkpoints (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the instants (default 0)")
    options = parser.parse_args()
    settings = ["--preset", "smoke", "--backend", options.backend, "--updates", str(options.updates)]
    settings += ["--checkpoint-every", str(options.every), "--eval-every", "130", "--log-every", "70", "--chunk", "20"]
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "unbroken"
        began = time.monotonic()
        run(settings, whole)
        longest = time.monotonic() - began
        print(f"unbroken: {options.updates} updates in {longest:.1f} s", flush=True)
        kills, runs, chance = 0, 0, random.Random(options.seed)
        while kills < options.kills:
            broken = Path(place) / f"killed-{runs}"
            kills += kill_and_resume(settings, broken, options.kills - kills, longest, chance)
            runs += 1
            if wrong := differing(whole, broken):
                print(f"after {kills} kills in {runs} trainings these files differ: {', '.join(wrong)}")
                return 1
    print(f"after {kills} kills in {runs} trainings all files are the same, byte for byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
