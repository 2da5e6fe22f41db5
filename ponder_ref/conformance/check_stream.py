"""Streams of examples through slots (spec I8), at level `infer`."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.exit_networks import (
    EXAMPLES,
    Table,
    examples_of,
    model_on,
    predict_both,
    sampled_table,
    summed_table,
)
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check

SLOTS = 4


def assert_answers(trial: Trial, what: str, answers: list[Any], want: Any, indices: range | None = None) -> None:
    """Each example answered once, with its own answer and steps."""
    expected = list(range(len(want.steps)) if indices is None else indices)
    found = [int(answer.index) for answer in answers]
    if sorted(found) != expected:
        raise Violation("I8", f"{what}: answers to examples {sorted(found)}, should be {expected}")
    for answer in answers:
        y_hat = trial.subject.numpy("stream", answer.y_hat)
        right = want.y_hat[answer.index]
        if int(answer.steps) != want.steps[answer.index] or not np.allclose(y_hat, right, rtol=1e-5, atol=1e-5):
            raise Violation(
                "I8",
                f"{what}: example {answer.index} got {np.asarray(y_hat).tolist()} after {int(answer.steps)} steps,"
                f" should be {right.tolist()} after {want.steps[answer.index]}",
            )


def fixed_table(trial: Trial, source: Any, seed: int) -> Table:
    """Ids as a stream gives them: 0, 1, 2, …"""
    table = sampled_table(source, seed=seed)
    z = np.round(trial.rng().normal(size=table.z.shape) * 16 - 8) / 8
    return Table(z, table.a, np.arange(EXAMPLES))


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE, share=0.5)
def answered_once(trial: Trial, source: Any) -> None:
    """Each example once, with the answer that predict gives it; in order if asked for; ids count from first_id."""
    seed = source.count(0, 2**64 - 1)
    first, count = source.choose(0, 0, 100), source.choose(EXAMPLES, 1, SLOTS, SLOTS + 1)
    ordered = source.option("ordered", False, True)
    table = fixed_table(trial, source, seed).rows(slice(count))
    _, want = predict_both(trial, table._replace(ids=table.ids + first), seed=seed)
    options = {"seed": seed, "first_id": first, "slots": SLOTS, "ordered": ordered}
    answers = list(trial.subject.backend.stream(model_on(trial), iter(examples_of(trial, table)), **options))
    assert_answers(trial, f"stream with {options}", answers, want)
    found = [int(answer.index) for answer in answers]
    if ordered and found != sorted(found):
        raise Violation("I8", f"stream with ordered=True: answers in the order {found}")


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def expected_answers(trial: Trial) -> None:
    """A policy that remembers sums."""
    table = summed_table(trial.seeded(8, (EXAMPLES,)))
    _, want = predict_both(trial, table, policy="expected", epsilon=0.05)
    examples = examples_of(trial, table)
    answers = list(trial.subject.backend.stream(model_on(trial), examples, policy="expected", slots=SLOTS))
    assert_answers(trial, "stream, expected", answers, want)


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def back_pressure(trial: Trial) -> None:
    """Nothing is taken before an answer is asked for, and never more than the slots hold beside what was answered."""
    table = fixed_table(trial, trial.seeded(8, (EXAMPLES,)), 3)
    _, want = predict_both(trial, table, seed=3)
    examples, taken, answers = examples_of(trial, table), [], []

    def source() -> Iterator[Any]:
        for k, example in enumerate(examples):
            taken.append(k)
            if k in (2, 7):
                yield None  # nothing waits at the moment
            yield example

    stream = trial.subject.backend.stream(model_on(trial), source(), seed=3, slots=SLOTS)
    if taken:
        raise Violation("I8", f"stream: {len(taken)} examples were taken before an answer was asked for")
    for answer in stream:
        if len(taken) - len(answers) > SLOTS:
            raise Violation("I8", f"stream: {len(taken)} examples taken and {len(answers)} answered, {SLOTS} slots")
        answers.append(answer)
    assert_answers(trial, "stream with pauses", answers, want)


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def exceptions(trial: Trial) -> None:
    """What the iterable raises is passed on after the examples before it were answered, once each."""
    table = fixed_table(trial, trial.seeded(8, (EXAMPLES,)), 4)
    _, want = predict_both(trial, table, seed=4)
    examples, count = examples_of(trial, table), EXAMPLES - 2

    def source() -> Iterator[Any]:
        yield from examples[:count]
        raise LookupError("the wire is cut")

    for ordered in (False, True):
        answers: list[Any] = []
        try:
            for answer in trial.subject.backend.stream(model_on(trial), source(), seed=4, slots=SLOTS, ordered=ordered):
                answers.append(answer)
        except LookupError:
            pass
        else:
            raise Violation("I8", "stream: the exception of the iterable was not passed on")
        assert_answers(trial, "stream whose iterable raises", answers, want, range(count))


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def own_exits(trial: Trial) -> None:
    """What a call leaves open is the model's own: its method, ε and least number of steps."""
    table = summed_table(trial.seeded(9, (EXAMPLES,)))
    own: tuple[tuple[dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
        ({"epsilon": 0.8, "min_steps": 4}, {"policy": "expected"}, {"policy": "expected"}),
        ({"method": "repeat"}, {}, {"policy": "fixed"}),
        ({"method": "once"}, {}, {"policy": "fixed", "max_steps": 1}),
    )
    for members, options, same in own:
        model = SimpleNamespace(**vars(model_on(trial)), **members)
        numbers = {name: value for name, value in members.items() if name != "method"}
        _, want = predict_both(trial, table, **same, **numbers)
        answers = list(trial.subject.backend.stream(model, examples_of(trial, table), slots=SLOTS, **options))
        assert_answers(trial, f"stream of a model with {members}, {options}", answers, want)


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def stream_complaints(trial: Trial) -> None:
    """Arguments of no meaning."""
    for name, options in (("slots", {"slots": 0}), ("policy", {"policy": "guess"}), ("first_id", {"first_id": -1})):
        try:
            list(trial.subject.backend.stream(model_on(trial), [], **options))
        except ValueError as error:
            if name not in str(error):
                raise Violation("I8", f"stream with {options}: the sentence {error} does not name {name}") from None
        else:
            raise Violation("I8", f"stream with {options}: no ValueError that names {name}")
