"""How the judge counts steps and looks into a stream: what it sees, and what it must not take for a defect."""

from types import SimpleNamespace

import numpy as np
import pytest

import ponder_ref
from ponder_ref.conformance.check_stream_habits import held_by
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.counting import Counter
from ponder_ref.conformance.mutants.base import Mutant, around, backend
from ponder_ref.conformance.registry import Trial
from ponder_ref.conformance.run import judge
from ponder_ref.conformance.subject import Subject


class Placeholder:
    """What a compiler gives a step network: a shape without values."""

    shape = (3,)


def to_numpy(x):
    if isinstance(x, Placeholder):
        raise TypeError("a placeholder has no values")
    return x


def counter(**members) -> Counter:
    subject = Subject(SimpleNamespace(DTYPES=("float64",), to_numpy=to_numpy, **members), "some")
    return Counter(Trial(subject, "float64", 1, 0))


def step(x, h):
    return h, h, x


def failed(subject, **options) -> dict[str, str]:
    verdicts = judge(subject, **{"examples": 3, "shrink": False, **options})
    return {v.requirement: v.failures[0] for v in verdicts.values() if v.status == "failed"}


def test_calls_with_values_are_counted_and_those_with_placeholders_are_not():
    counted = counter()
    run = counted.of(step)
    run(Placeholder(), Placeholder())
    run(np.zeros(3), np.zeros(3))
    run(np.zeros(2), np.zeros(2))
    assert (counted.calls, counted.rows) == (2, 5)
    counted.check("M1", "ponder", 2)
    with pytest.raises(Violation, match="computed 2 times, should be 3"):
        counted.check("M1", "ponder", 3)


def test_where_there_are_only_placeholders_a_witness_is_asked_for():
    counted = counter()
    counted.of(step)(Placeholder(), Placeholder())
    with pytest.raises(Violation, match="offer witness, or list it in NOT_OFFERED"):
        counted.check("M1", "ponder", 1)


def test_a_witness_counts_what_is_computed():
    seen = []
    counted = counter(witness=lambda fn, x: (seen.append(fn), x)[1])
    counted.of(step)(Placeholder(), Placeholder())
    seen[0](np.zeros(4))
    seen[0](np.zeros(4))
    assert (counted.calls, counted.rows) == (2, 8)


def test_a_backend_without_a_witness_may_say_so():
    subject = backend(Mutant("some", "", "", {"NOT_OFFERED": ("compiled", "vmapped", "witness")}))
    assert failed(subject, level="module", only={"B1", "M1", "M2"}) == {}


def test_a_step_that_is_looked_at_first_is_not_counted():
    """As a compiler does: the step is called with placeholders before it is computed."""

    class Hollow(np.ndarray):
        pass

    def read(x):
        if isinstance(x, Hollow):
            raise TypeError("a placeholder has no values")
        return ponder_ref.to_numpy(x)

    def ponder(step, x, state, **options):
        if isinstance(x, np.ndarray) and not np.iscomplexobj(x):
            step(x.view(Hollow), state)
        return ponder_ref.ponder(step, x, state, **options)

    subject = backend(Mutant("traced", "", "", {**around("ponder", ponder), "to_numpy": read}))
    assert failed(subject, level="module", only={"M1", "M2", "M3", "M4"}) == {}


class Remembering:
    """A stream as an object of a class, with a memory of a fixed size."""

    def __init__(self, model, iterable, **options):
        self.answers, self.last = ponder_ref.stream(model, iterable, **options), []

    def __iter__(self):
        return self

    def __next__(self):
        answer = next(self.answers)
        self.last = [*self.last[-7:], answer]
        return answer


class Hoarding(Remembering):
    """The same, with a memory that grows."""

    def __next__(self):
        answer = next(self.answers)
        self.last.append(np.copy(answer.y_hat))
        return answer


@pytest.mark.parametrize(("stream", "requirements"), [(Remembering, set()), (Hoarding, {"I8"})])
def test_a_memory_of_a_fixed_size_is_not_one_that_grows(stream, requirements):
    subject = backend(Mutant("some", "", "", around("stream", lambda *given, **options: stream(*given, **options))))
    assert set(failed(subject, level="infer", only={"I8", "B7"})) == requirements


def test_what_is_held_by_a_generator_is_seen_and_what_is_its_own_is_not():
    def keeping(source):
        kept = []
        for number in source:
            kept.append(np.zeros(number))
            yield number

    source = iter(range(100, 200))
    run = keeping(source)
    sizes = []
    for _ in range(3):
        next(run)
        sizes.append(held_by(run, source))
    (things, size), (more, larger), _ = sizes
    assert more == things + 1 and larger == size + 101 * 8
