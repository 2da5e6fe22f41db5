"""Timing side by side, and contenders that may be missing."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

Run = Callable[[], float]  # one piece of work, waited for; gives a number to look at


NO_FRAMEWORK = "neither torch nor jax is installed: pip install -e '.[torch,jax]' in a clone installs them"


class Skipped(Exception):
    """A contender that cannot run here; one sentence says why."""


def import_or_skip(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise Skipped(f"{error.name!r} is not installed ({package})") from None


def limit_threads(threads: int) -> None:
    """How many threads the frameworks may use; to be called before either computes anything."""
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    with contextlib.suppress(Skipped):
        import_or_skip("torch", "").set_num_threads(threads)


def made(makers: dict[str, Callable[[], Run]]) -> dict[str, Run]:
    """The runs that can be made here; of the others it is said why not."""
    runs = {}
    for name, make in makers.items():
        try:
            runs[name] = make()
        except Skipped as reason:
            print(f"{name} is left out: {reason}.")
    return runs


def interleaved(runs: dict[str, Run], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each run; all run in turn, repetition by repetition, so that the machine's load meets them all."""
    for run in runs.values():
        for _ in range(3):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def figure(value: float) -> float:
    """A figure as it is printed and kept, to four significant digits: it is rounded here and nowhere else."""
    return float(f"{value:.4g}")


def shown(value: float) -> str:
    """All digits of a figure."""
    return f"{value:#.4g}"


def compared(times: list[float], base: list[float]) -> list[float]:
    """Time over that of the base in the same repetition: lower quartile, median and upper quartile, as figures."""
    found = statistics.quantiles([t / b for t, b in zip(times, base, strict=True)], n=4, method="inclusive")
    return [figure(value) for value in found]


def quartiles(seconds: dict[str, list[float]], base: str) -> dict[str, list[float]]:
    """The quartiles of each, compared with the base."""
    return {name: compared(times, seconds[base]) for name, times in seconds.items()}


def ratios(rows: dict[str, list[float]]) -> str:
    """A table of quartiles, the median first."""
    lines = [f"{'':<26} {'median':>9} {'quartiles':>19}"]
    for name, (low, middle, high) in rows.items():
        lines.append(f"{name:<26} {shown(middle):>9} {shown(low):>9} {shown(high):>9}")
    return "\n".join(lines)
