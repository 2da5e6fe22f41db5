"""Streams under bad requests, slow examples, many shapes and silence: what both backends' tests share (I8)."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ponder_ref.runtime import stream as streams

WIDTH, SLOTS, BAD = 3, 8, 20
WRONG: dict[str, Any] = {
    "a string": "three numbers",
    "a wrong width": np.ones(WIDTH + 2, np.float32),
    "a wrong dtype": np.ones(WIDTH, np.complex64),
    "another structure": {"x": np.ones(WIDTH, np.float32)},
    "an object": object(),
    "a list of lists of unequal lengths": [[1.0], [1.0, 2.0]],
    "an object with a strange shape": SimpleNamespace(shape=5),
    "a list that holds itself": [],
}
WRONG["a list that holds itself"].append(WRONG["a list that holds itself"])


def requests() -> list[np.ndarray]:
    """Examples that halt after one to nine steps."""
    x = np.random.default_rng(1).normal(size=(2 * BAD, WIDTH))
    return list(x.astype(np.float32))


def collected(answers: Iterator[Any]) -> tuple[list[Any], Exception | None]:
    """The answers of a stream, and what it raised after them."""
    found = []
    try:
        for answer in answers:
            found.append(answer)
    except Exception as error:
        return found, error
    return found, None


def check_bad_request(stream, model: Any, wrong: Any) -> None:
    """The examples before a bad request are answered, each once and as ever; then what it caused is raised."""
    good = requests()
    want = {answer.index: answer for answer in stream(model, good, policy="quantile", slots=SLOTS)}
    for ordered in (False, True):
        examples = [*good[:BAD], wrong, *good[BAD:]]
        answers, raised = collected(stream(model, examples, policy="quantile", slots=SLOTS, ordered=ordered))
        assert raised is not None
        found = [answer.index for answer in answers]
        assert set(range(BAD)) <= set(found) and len(set(found)) == len(found) and BAD not in found
        assert not ordered or found == sorted(found)
        for answer in answers:
            right = want[answer.index - (answer.index > BAD)]
            assert answer.steps == right.steps
            np.testing.assert_allclose(np.asarray(answer.y_hat), np.asarray(right.y_hat), rtol=1e-5, atol=1e-6)


def check_first_of_two(stream, model: Any) -> None:
    """Of two bad requests the first one's exception is raised, though the other's may come up sooner."""
    bad = [*requests()[:2], "one", *requests()[:2], np.ones(WIDTH + 2, np.float32)]
    raised = []
    for examples in (bad, bad[:5], [*bad[:2], *bad[5:]]):
        error = collected(stream(model, examples, policy="quantile", slots=SLOTS))[1]
        raised.append((type(error), str(error)))
    assert raised[0] == raised[1] != raised[2]


def check_bad_value(stream, model: Any) -> None:
    """A value that the step cannot bear, of the same shape as those that are computed beside it."""
    examples = [np.float32(value) for value in (-9.0, 5.0, -9.0, 5.0, 1e9, 5.0)]
    answers, error = collected(stream(model, examples, slots=5, policy="quantile"))
    assert isinstance(error, FloatingPointError)
    assert sorted(answer.index for answer in answers) == [0, 1, 2, 3]


def slow_first(steps: int) -> Iterator[np.float32]:
    yield np.float32(-30.0)
    for _ in range(steps):
        yield np.float32(30.0)


def check_reorder_buffer(stream, model: Any) -> None:
    """Behind a slow example no more is taken than the bound says, and all is answered in order."""
    taken = []

    def source() -> Iterator[np.float32]:
        for example in slow_first(500):
            taken.append(example)
            yield example

    answers = stream(model, source(), slots=2, ordered=True, policy="quantile", max_steps=400)
    assert next(answers).index == 0
    assert 2 < len(taken) <= streams.WINDOW * 2 + 2
    assert [answer.index for answer in answers] == list(range(1, 501))


def check_few_buckets(stream, model: Any, kind: type) -> None:
    """What is kept for one shape is let go of when many others have come since."""
    gc.collect()
    before = sum(type(held) is kind for held in gc.get_objects())
    answers = stream(model, (np.ones(1 + length, np.float32) for length in range(40)), slots=2, policy="quantile")
    for _ in range(39):
        next(answers)
    gc.collect()
    assert sum(type(held) is kind for held in gc.get_objects()) - before <= streams.SHAPES
    assert next(answers).index == 39 and not list(answers)


def check_silence(stream, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing waits and nothing runs, the thread rests between two questions; it does not while examples run."""
    rests: list[float] = []
    monkeypatch.setattr(streams, "time", SimpleNamespace(sleep=rests.append))
    example = np.float32(-1.0)
    answers = list(stream(model, iter([None, None, example, None, None, example]), slots=2, policy="fixed"))
    assert len(answers) == 2 and len(rests) >= 2  # before the first example came
    rests.clear()
    assert len(list(stream(model, iter([example, None]), slots=2, policy="fixed"))) == 1
    assert not rests
