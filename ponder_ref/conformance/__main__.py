"""python -m ponder_ref.conformance --backend NAME: does a backend conform to the standard?

Exit code 0: it conforms. 1: it does not. 2: the judge could not be run.
"""

import argparse
import sys
from pathlib import Path

from ponder_ref.conformance.endings import Parser, check_target, one_sentence
from ponder_ref.runtime.errors import Refused


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="python -m ponder_ref.conformance",
        description="Judges a PonderNet backend against the standard and ends with one row per requirement.",
        epilog="Exit code 0: the backend conforms. 1: it does not. 2: the judge could not be run.",
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--backend",
        metavar="NAME",
        help="a dotted module, module:attribute, a file mine.py, or an entry point of group pondernet.backends",
    )
    what.add_argument("--new", metavar="FILE.py", help="write the commented skeleton of a new backend and stop")
    p.add_argument(
        "--level",
        choices=("core", "full", "module", "infer"),
        default="core",
        help="full adds compiled code and more examples, module pondering with step networks, infer also leaving early"
        " when serving (default: core)",
    )
    p.add_argument("--examples", type=int, metavar="N", help="Hypothesis examples for each law (default: 15, full: 40)")
    p.add_argument("--seed", type=int, default=0, help="seed of everything drawn (default: 0)")
    p.add_argument(
        "--dtypes",
        metavar="LIST",
        help="judge these dtypes only, separated by commas (default: all the backend offers)",
    )
    p.add_argument("--only", metavar="LIST", help="check these requirements only, separated by commas: L2,H3")
    p.add_argument("--annex", action="store_true", help="also judge the annex: optimisers and networks of experiments")
    p.add_argument("--report", type=Path, metavar="FILE.json", help="also write the verdicts as JSON")
    return p


def words(text: str | None) -> list[str]:
    """The words of a list separated by commas or blanks."""
    return (text or "").replace(",", " ").split()


def run(options: argparse.Namespace) -> int:
    from ponder_ref.conformance.loading import backend_named
    from ponder_ref.conformance.skeleton import write_skeleton
    from ponder_ref.conformance.spec_data import requirements

    if options.new:
        write_skeleton(Path(options.new))
        print(f"wrote {options.new}; judge it with: python -m ponder_ref.conformance --backend {options.new}")
        return 0
    if options.examples is not None and options.examples < 1:
        raise Refused(f"--examples must be at least 1, got {options.examples}")
    if options.seed < 0:
        raise Refused(f"--seed must be at least 0, got {options.seed}")
    if options.report is not None:
        check_target(options.report, "--report")
    only = [name.upper() for name in words(options.only)] or None
    if options.only is not None and not only:
        raise Refused(f"--only {options.only!r} names no requirement")
    if unknown := set(only or ()) - set(requirements()):
        raise Refused(f"--only {options.only}: the standard has no requirement {', '.join(sorted(unknown))}")
    backend = backend_named(options.backend)

    from ponder_ref.conformance.processes import judge_in_processes
    from ponder_ref.conformance.report import counts, table, write_report

    seen = sys.stderr is not None and sys.stderr.isatty()

    def progress(line: str) -> None:
        if seen:
            print(f"\r\033[K{line} ...", end="", file=sys.stderr, flush=True)

    settings = {"level": options.level, "examples": options.examples, "seed": options.seed, "only": only}
    settings["annex"] = options.annex
    wanted = None
    if options.dtypes is not None:
        wanted = tuple(name.lower() for name in words(options.dtypes))
        offered = tuple(getattr(backend, "DTYPES", None) or ())
        if not wanted or not set(wanted) <= set(offered):
            raise Refused(f"--dtypes {options.dtypes!r}: {options.backend} offers {', '.join(map(str, offered))}")
    verdicts = judge_in_processes(backend, options.backend, settings, progress, wanted)
    if seen:
        print("\r\033[K", end="", file=sys.stderr)
    print(table(verdicts, options.backend, only=only))
    if options.report is not None:
        write_report(options.report, verdicts, options.backend, settings)
    return 0 if counts(verdicts)["failed"] == 0 else 1


@one_sentence
def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        import hypothesis  # noqa: F401
    except ModuleNotFoundError as error:
        hint = "pip install -e '.[judge]' in a clone installs it"
        raise Refused(f"the judge needs {error.name!r}, which is not installed: {hint}") from None
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
