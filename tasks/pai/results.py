"""The section of paired associative inference: how hard its generated data are, and then as of other tasks."""

from pathlib import Path

from ponder_ref.runtime.errors import Refused
from tasks.pai import difficulty
from tasks.results import general
from tasks.results.experiment import Experiment
from tasks.runs import read_json


def hardness(folder: Path, seeds: set[int]) -> list[str]:
    """What `python -m tasks.pai.difficulty --seed SEED --json` said of the images of these seeds."""
    lines = []
    for path in (folder / f"difficulty-{seed}.json" for seed in sorted(seeds)):
        if not path.exists():
            continue
        try:
            said = difficulty.report(read_json(path))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Refused(f"{path} is not what python -m tasks.pai.difficulty --json prints") from None
        lines += ["", "```text", *(line.rstrip() for line in said.splitlines()), "```"]
    if not lines:
        return []
    return ["How hard the data are, measured without a model (`python -m tasks.pai.difficulty`):", *lines, ""]


def section(experiment: Experiment, docs: Path) -> list[str]:
    seeds = {run.seed for run in experiment.runs.values()}
    return [*hardness(experiment.folder, seeds), *general.section(experiment, docs)]
