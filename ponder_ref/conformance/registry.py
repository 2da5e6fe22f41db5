"""Checks, and how one is run: which requirement it speaks for, what it needs, and its verdict."""

import functools
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity

from ponder_ref.conformance.cases import SHAPES, Chosen, Seeded, every_option, sources
from ponder_ref.conformance.compare import LOW_PRECISION, Violation
from ponder_ref.conformance.subject import Subject

GROUPS = (
    "names",
    "arrays",
    "signatures",
    "vectors",
    "laws",
    "gradients",
    "saturation",
    "low precision",
    "compiled",
    "sampling",
    "independence",
    "module",
    "inference",
)


@dataclass(frozen=True)
class Trial:
    """One run of one check: the backend, a dtype, and how hard to try."""

    subject: Subject
    dtype: str
    examples: int
    seed: int
    shrink: bool = True
    name: str = ""

    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(self.name.encode()), zlib.crc32(self.dtype.encode())])

    def seeded(self, steps: int, batch: tuple[int, ...], rng: np.random.Generator | None = None) -> Seeded:
        return Seeded(rng or self.rng(), steps, batch, self.subject.not_offered, exact=self.dtype == "float64")

    def every(self, body: Callable, shapes: tuple = SHAPES[-1:]) -> None:
        """body(source) for every set of options at some shapes, with seeded numbers."""
        rng, exact = self.rng(), self.dtype == "float64"
        every_option(lambda fixed: Chosen(rng, fixed, self.subject.not_offered, exact, shapes), body)

    def for_all(self, body: Callable, *, share: float = 1.0, every: bool = True) -> None:
        """body(source) for every set of options with seeded numbers, then for sources drawn by Hypothesis.

        A failure is shrunk to the shortest input that still fails, if Hypothesis comes upon it too.
        """
        failure: Exception | None = None
        if every:
            try:
                self.every(body, SHAPES)
            except Exception as error:
                failure = error
        if failure is None or self.shrink:
            self._draw(body, max(1, round(self.examples * share)))
        if failure is not None:
            raise failure

    def _draw(self, body: Callable, examples: int) -> None:
        phases = (Phase.generate, Phase.shrink) if self.shrink else (Phase.generate,)
        options = hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=False,
            phases=phases,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
        )
        seed = zlib.crc32(f"{self.seed} {self.name} {self.dtype}".encode())
        hypothesis.seed(seed)(
            options(hypothesis.given(sources(self.subject.not_offered))(lambda source: body(source)))
        )()


@dataclass(frozen=True)
class Check:
    """A check speaks for one requirement, needs some functions, and runs for some dtypes."""

    name: str
    requirement: str
    group: str
    needs: tuple[str, ...]
    run: Callable[[Trial], None]
    level: str = "core"
    dtypes: tuple[str, ...] = ("float64", "float32")


CHECKS: list[Check] = []


def check(
    requirement: str,
    group: str,
    *needs: str,
    level: str = "core",
    dtypes: Iterable[str] = ("float64", "float32"),
    name: str | None = None,
    share: float | None = None,
):
    """Registers a function of a Trial as a check; with a share, one of a Trial and a source, run by `for_all`."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        def for_all(trial: Trial) -> None:
            trial.for_all(functools.partial(body, trial), share=1.0 if share is None else share)

        run = body if share is None else for_all
        CHECKS.append(Check(name or body.__name__, requirement, group, needs, run, level, tuple(dtypes)))
        return body

    return register


ANY_DTYPE = ("any",)  # for checks that say the same in every dtype: run once, in the widest dtype offered
ALL_DTYPES = ("float64", "float32", *LOW_PRECISION)


@dataclass
class Verdict:
    """What became of one requirement."""

    requirement: str
    status: str = "not tried"  # at this level; or "not offered", "passed", "failed"
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    settled: bool = False  # failed on a shrunk or seeded input, not only on a golden case
    needs: tuple[str, ...] = ()  # dtypes that are not judged here, of which a check needs one

    def not_offered(self) -> None:
        """A check could not be tried; the requirement may still have others."""
        if self.status == "not tried":
            self.status = "not offered"

    def lacks(self, dtypes: Iterable[str]) -> None:
        """A check could not be tried, for it needs one of these dtypes."""
        self.needs = tuple(dtype for dtype in ALL_DTYPES if dtype in (*self.needs, *dtypes))

    def passed(self) -> None:
        self.checks += 1
        if self.status != "failed":
            self.status = "passed"

    def failed(self, sentence: str, group: str) -> None:
        self.checks += 1
        self.status = "failed"
        self.settled = self.settled or group != "vectors"
        self.failures.append(sentence)


def first_line(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:400] or type(error).__name__


def run_check(item: Check, trial: Trial, verdicts: dict[str, Verdict]) -> None:
    """Runs a check and notes the outcome with the requirement it speaks for, or with the one its violation names."""
    try:
        item.run(trial)
    except Violation as violation:
        named = violation.requirement if violation.requirement in verdicts else item.requirement
        verdicts[named].failed(violation.sentence, item.group)
    except Exception as error:
        sentence = f"{item.name}[{trial.dtype}] raised {type(error).__name__}: {first_line(error)}"
        verdicts[item.requirement].failed(sentence, item.group)
    else:
        verdicts[item.requirement].passed()
