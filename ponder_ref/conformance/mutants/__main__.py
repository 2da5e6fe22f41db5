"""What the judge says of backends with one defect each, and of backends that are right but different."""

import argparse
import sys

from ponder_ref.conformance.endings import Parser, one_sentence
from ponder_ref.conformance.interface import INFER_FUNCTIONS, MODULE_FUNCTIONS, NETWORKS
from ponder_ref.conformance.mutants import (
    calls,
    corners,
    costs,
    halting,
    inference,
    interface,
    losses,
    modules,
    offsets,
    optimisers,
    options,
    roundings,
    sampling,
    streams,
    transformers,
)
from ponder_ref.conformance.mutants.base import Mutant, backend
from ponder_ref.conformance.mutants.equivalents import EQUIVALENTS
from ponder_ref.conformance.run import judge
from ponder_ref.runtime.errors import Refused

DEFECTS: tuple[Mutant, ...] = (
    *halting.MUTANTS,
    *losses.MUTANTS,
    *sampling.MUTANTS,
    *optimisers.MUTANTS,
    *interface.MUTANTS,
    *corners.MUTANTS,
    *offsets.MUTANTS,
    *options.MUTANTS,
    *roundings.MUTANTS,
    *modules.MUTANTS,
    *transformers.MUTANTS,
    *inference.MUTANTS,
    *calls.MUTANTS,
    *costs.MUTANTS,
    *streams.MUTANTS,
)
EXAMPLES = 25


def level_of(mutant: Mutant) -> str:
    """The lowest level whose functions or transforms the mutant replaces."""
    if not mutant.replaced.keys().isdisjoint(INFER_FUNCTIONS):
        return "infer"
    if mutant.requirement.startswith("M") or not mutant.replaced.keys().isdisjoint({**MODULE_FUNCTIONS, **NETWORKS}):
        return "module"
    return "full" if "compiled" in mutant.replaced else "core"


def rejected_by(mutant: Mutant, *, whole: bool = False, seed: int = 0) -> dict[str, str]:
    """Failed requirements and their first sentence, by the checks of the one that names the defect, or by all."""
    level = level_of(mutant)
    shrink = not whole and level != "infer"  # serving is long to compute
    chosen = {"only": None if whole else {mutant.requirement}, "shrink": shrink, "level": level}
    verdicts = judge(backend(mutant), label=mutant.name, examples=EXAMPLES, seed=seed, annex=True, **chosen)
    return {v.requirement: v.failures[0] for v in verdicts.values() if v.status == "failed"}


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="python -m ponder_ref.conformance.mutants", description=__doc__)
    p.add_argument("names", nargs="*", help="mutants to try (default: all)")
    p.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="judge each with the seeds 0 to N - 1 (default: 1)"
    )
    return p


@one_sentence
def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    names, seeds = options.names, range(options.seeds)
    if options.seeds < 1:
        raise Refused(f"--seeds must be at least 1, got {options.seeds}")
    unknown = set(names) - {mutant.name for mutant in (*DEFECTS, *EQUIVALENTS)}
    if unknown:
        raise Refused(f"no mutant is called {', '.join(sorted(unknown))}")
    wrong = 0
    for mutant in DEFECTS:
        if not names or mutant.name in names:
            found = {seed: rejected_by(mutant, seed=seed) for seed in seeds}
            missed = [str(seed) for seed, failed in found.items() if mutant.requirement not in failed]
            failed, caught = found[0], not missed
            wrong += not caught
            verdict = "rejected" if caught else "NOT REJECTED"
            where = f" (seeds {', '.join(missed)})" if missed and len(seeds) > 1 else ""
            print(f"{verdict:<13} {mutant.requirement:<4} {mutant.name:<28} {mutant.defect}{where}")
            if mutant.name in names and caught:
                print(f"              {failed[mutant.requirement]}")
    for mutant in EQUIVALENTS:
        if not names or mutant.name in names:
            failed: dict[str, str] = {}
            for seed in seeds:
                failed = {**rejected_by(mutant, whole=True, seed=seed), **failed}
            wrong += bool(failed)
            print(f"{'accepted' if not failed else 'REJECTED':<13} {'':<4} {mutant.name:<28} {mutant.defect}")
            for requirement, sentence in failed.items():
                print(f"              {requirement}: {sentence}")
    print(f"{wrong} of the judge's verdicts are wrong" if wrong else "every verdict is right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
