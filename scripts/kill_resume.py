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


def kill_and_resume(settings: list[str], folder: Path, kills: int, longest: float, chance: random.Random) -> int:
    """How often the training was killed before it came to its end."""
    for number in range(kills):
        again = (folder / "config.json").exists()
        seconds = chance.uniform(0.0, longest)
        if run(["--resume"] if again else settings, folder, seconds) == 0:
            return number
        print(
            f"kill {number + 1:3d} after {seconds:5.2f} s, newest checkpoint at update {update_of(folder)}", flush=True
        )
    run(["--resume"] if (folder / "config.json").exists() else settings, folder)
    return kills


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
        whole, broken = Path(place) / "unbroken", Path(place) / "killed"
        began = time.monotonic()
        run(settings, whole)
        longest = time.monotonic() - began
        print(f"unbroken: {options.updates} updates in {longest:.1f} s", flush=True)
        done = kill_and_resume(settings, broken, options.kills, longest, random.Random(options.seed))
        if done < options.kills:
            print(f"the training was over after {done} kills: give it more --updates")
        one, other = contents(whole), contents(broken)
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if differing:
        print(f"after {done} kills these files differ: {', '.join(differing)}")
        return 1
    print(f"after {done} kills all {len(one)} files are the same, byte for byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
