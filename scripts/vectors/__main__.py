"""Make the golden vectors of the specification.

    python -m scripts.vectors [--out DIR]            write them (default: spec/vectors)
    python -m scripts.vectors [--out DIR] --check    exit 1 if that would change any file

Everything is computed by exact fractions or with 60 digits, from the exact value of the inputs, and never by
``ponder_ref`` or NumPy: the vectors judge those.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from mpmath import mp

from scripts.vectors import (
    cases_act,
    cases_gradients,
    cases_halting,
    cases_logits,
    cases_losses,
    cases_optim,
    cases_priors,
    cases_sampling,
)
from scripts.vectors.evaluate import EVALUATE
from scripts.vectors.format import DIGITS, Array, Case, encode_array, encode_case, encode_file, to_float

# Computing twice shows whether 60 digits were enough for every float64 written: cancellation would change it.
MORE_DIGITS = 300
STATED_TOLERANCE = 1e-6
DEFAULT_OUT = Path(__file__).resolve().parents[2] / "spec" / "vectors"
MODULES = (
    cases_logits,
    cases_halting,
    cases_priors,
    cases_losses,
    cases_sampling,
    cases_act,
    cases_optim,
    cases_gradients,
)


def expected(function: str, case: Case) -> dict[str, Array]:
    """The results of a case, after checking their digits and what a human stated about them."""
    results = EVALUATE[function](case.arrays, case.arguments)
    with mp.workdps(MORE_DIGITS):
        again = EVALUATE[function](case.arrays, case.arguments)
    for name, made in results.items():
        if encode_array(made) != encode_array(again[name]):
            raise ArithmeticError(f"{case.id}: {DIGITS} digits are too few for {name}")
    for name, values in case.stated.items():
        check_stated(case.id, name, results[name], values)
    return results


def check_stated(case_id: str, name: str, made: Array, stated: list[Any]) -> None:
    """Compare a result with numbers worked out by hand, exactly if they are integers of an integer result."""
    if len(stated) != len(made.data):
        raise ValueError(f"{case_id}: {len(stated)} values are stated for {name}, which has {len(made.data)}")
    for x, y in zip(made.data, stated, strict=True):
        x, y = to_float(x), float(y)
        tolerance = STATED_TOLERANCE * max(1.0, abs(y)) if made.dtype.startswith("float") else 0.0
        same = x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= tolerance
        if not same:
            raise ArithmeticError(f"{case_id}: {name} is {x!r}, stated {y!r}")


def make() -> dict[str, str]:
    """The text of every file, by its name."""
    files: dict[str, str] = {}
    seen: set[str] = set()
    for module in MODULES:
        for book in module.books():
            ids = [case.id for case in book.cases]
            if len(set(ids)) != len(ids) or seen & set(ids):
                raise ValueError(f"{book.function}: an id is not unique")
            seen |= set(ids)
            cases = [encode_case(book.function, case, expected(book.function, case)) for case in book.cases]
            files[f"{book.function}.json"] = encode_file(book.function, cases)
    missing = {f"{name}.json" for name in EVALUATE} - set(files)
    if missing:
        raise ValueError(f"no cases for {sorted(missing)}")
    return files


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.vectors", description="Make the golden vectors of the specification."
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the files (default: spec/vectors)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    args = parser.parse_args()
    files = make()
    if args.check:
        there = {path.name: path.read_text(encoding="utf-8") for path in args.out.glob("*.json")}
        changed = sorted(name for name in files.keys() | there.keys() if files.get(name) != there.get(name))
        for name in changed:
            print(f"{args.out / name} is not what python -m scripts.vectors makes", file=sys.stderr)
        return 1 if changed else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (args.out / name).write_text(text, encoding="utf-8")
    print(f"{len(files)} files in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
