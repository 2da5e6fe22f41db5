"""What answers alone do not show of a stream (spec I8): their form, that it goes on, and that it forgets."""

import gc
import itertools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.exit_networks import (
    EXAMPLES,
    STEPS,
    Table,
    examples_of,
    model_on,
    step_on,
    summed_table,
)
from ponder_ref.conformance.pondered import on_backend
from ponder_ref.conformance.registry import ALL_DTYPES, ANY_DTYPE, Trial, check

SLOTS = 2
# Answers before the first look at a stream's memory, and until the second.
WARM, FURTHER = 20, 120


@check("I8", "inference", "stream", "predict", level="infer", dtypes=ALL_DTYPES)
def the_form_of_answers(trial: Trial) -> None:
    """An answer has the shape and the dtype of one row of predict's, whether it was chosen or blended."""
    if trial.dtype == "float32" and "float64" in trial.subject.dtypes:
        return  # float64 and half precision say more
    backend, numpy = trial.subject.backend, trial.subject.numpy
    table = summed_table(trial.seeded(STEPS, (EXAMPLES,)), 3)
    given = on_backend(trial, table.inputs()), on_backend(trial, table.start())
    for policy in ("fixed", "expected"):
        want = numpy("predict", backend.predict(step_on(trial), *given, max_steps=STEPS, policy=policy, slots=2).y_hat)
        for answer in backend.stream(model_on(trial), examples_of(trial, table), policy=policy, slots=2):
            y_hat = numpy("stream", answer.y_hat)
            if (y_hat.shape, y_hat.dtype) != (want.shape[1:], want.dtype):
                raise Violation(
                    "I8",
                    f"stream, {policy}[{trial.dtype}]: an answer has shape {y_hat.shape} and dtype {y_hat.dtype},"
                    f" should be {want.shape[1:]} and {want.dtype}, as of predict",
                )
            for name in ("index", "steps"):
                if np.ndim(getattr(answer, name)) or int(getattr(answer, name)) != getattr(answer, name):
                    raise Violation("I8", f"stream: {name} is {getattr(answer, name)!r}, should be an integer")


class Unanswered(Exception):
    """The stream asks and asks, and computes nothing."""


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def nothing_waits(trial: Trial) -> None:
    """After None the examples in the slots go on, however few: they are answered before anything else comes."""
    examples = examples_of(trial, summed_table(trial.seeded(STEPS, (EXAMPLES,))))
    slots, groups = 4, (examples[:1], examples[1:3], examples[3:6], examples[6:])
    for ordered in (False, True):
        answered: list[int] = []

        def source(answered: list[int] = answered) -> Iterator[Any]:
            sent = 0
            for group in groups:
                yield from group
                sent += len(group)
                pauses = 0
                while len(answered) < sent:
                    if pauses > slots * STEPS:  # as if each None let one example take one step
                        raise Unanswered
                    pauses += 1
                    yield None

        try:
            for answer in trial.subject.backend.stream(model_on(trial), source(), slots=slots, ordered=ordered):
                answered.append(int(answer.index))
        except Unanswered:
            raise Violation(
                "I8",
                f"stream: {len(answered)} answers, and then the iterable was asked {slots * STEPS} times, said"
                " None each time, and no example in the slots was answered: they should go on",
            ) from None
        if sorted(answered) != list(range(EXAMPLES)):
            raise Violation("I8", f"stream with pauses: answers to {sorted(answered)}, should be 0 to {EXAMPLES - 1}")


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def a_bad_request_loses_no_other(trial: Trial) -> None:
    """The examples before one that the model cannot take are answered, each once; then its exception is raised."""
    examples = examples_of(trial, summed_table(trial.seeded(STEPS, (EXAMPLES,))))
    for bad, wrong, ordered in itertools.product((3, 6), ("not an example", {"another": "structure"}), (False, True)):
        requests, answered = [*examples[:bad], wrong, *examples[bad:]], []
        try:
            for answer in trial.subject.backend.stream(model_on(trial), requests, slots=4, ordered=ordered):
                answered.append(int(answer.index))
        except Exception:
            lost = set(range(bad)) - set(answered)
        else:
            raise Violation("I8", f"stream: the request {wrong!r} was taken for an example, should be an exception")
        if lost or len(set(answered)) < len(answered):
            raise Violation(
                "I8",
                f"stream with 4 slots, ordered={ordered}: request {bad} is {wrong!r}, and before its exception came"
                f" answers to {answered}; each of 0 to {bad - 1} should be answered once",
            )


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def answers_in_order_are_held_back_within_a_limit(trial: Trial) -> None:
    """Beside one slow example others are answered, but no more than 16·slots are taken until it is answered."""
    most = 16 * SLOTS
    z = np.full((1 + 2 * most, STEPS), 64.0)  # one step each,
    z[0] = -64.0  # and many for the first: from step 9 on its logits are 0, so that half the mass is left each time
    examples, taken = examples_of(trial, Table(z, np.ones((len(z), 2)), np.arange(len(z)))), []

    def source() -> Iterator[Any]:
        for k, example in enumerate(examples):
            taken.append(k)
            yield example

    rule = {"policy": "expected", "epsilon": 1e-20, "max_steps": STEPS + 2 * most}
    first = next(iter(trial.subject.backend.stream(model_on(trial), source(), slots=SLOTS, ordered=True, **rule)))
    if int(first.index) != 0 or len(taken) > most:
        raise Violation(
            "I8",
            f"stream with {SLOTS} slots, ordered=True: {len(taken)} examples were taken before the first answer, to"
            f" example {int(first.index)}; should be at most {most}, and the answer to example 0",
        )


def held_by(root: Any, *others: Any) -> tuple[int, int]:
    """How many things can be reached from an object, and the bytes of the arrays among them; `others` do not count.

    Containers, generators and plain objects are looked into; functions, classes, modules and arrays are not.
    """
    seen, things, size = {id(other) for other in others}, 0, 0
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        things += 1
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, types.FunctionType, str, bytes, int, float)):
            continue
        seen.add(id(thing))
        if hasattr(thing, "shape") and hasattr(thing, "dtype"):
            size += int(getattr(thing, "nbytes", 0))
        elif isinstance(thing, (dict, list, tuple, set, frozenset, types.GeneratorType)):
            waiting += gc.get_referents(thing)
        elif hasattr(thing, "__dict__"):
            waiting += vars(thing).values()
        else:
            waiting += [part for part in gc.get_referents(thing) if not isinstance(part, type)]
    return things, size


@check("I8", "inference", "stream", level="infer", dtypes=ANY_DTYPE)
def a_stream_forgets(trial: Trial) -> None:
    """What was answered is let go: neither examples nor answers nor numbers of them are kept."""
    z = np.where(np.arange(STEPS) < np.arange(3)[:, None], -64.0, 64.0)  # exits at the steps 1, 2, 3
    table = Table(z, np.ones((3, 2)), np.arange(3))
    for ordered in (False, True):
        alive: list[weakref.ref] = []

        def watch(thing: Any, alive: list[weakref.ref] = alive) -> Any:
            """The arrays of an example or answer, watched as far as they can be."""
            for leaf in thing.values() if isinstance(thing, dict) else (thing,):
                try:
                    alive.append(weakref.ref(leaf))
                except TypeError:  # an array that cannot be watched is found, if it is kept, by `held_by`
                    continue
            return thing

        def source(watch: Any = watch) -> Iterator[Any]:
            for k in range(WARM + FURTHER + SLOTS):
                yield watch(examples_of(trial, table.rows(slice(k % 3, k % 3 + 1)))[0])

        examples = source()
        answers = iter(trial.subject.backend.stream(model_on(trial), examples, slots=SLOTS, ordered=ordered))
        before = [_after(answers, count, watch, alive, (examples, alive)) for count in (WARM, FURTHER)]
        (live, things, size), (live_later, things_later, size_later) = before
        what = f"stream with {SLOTS} slots, ordered={ordered}: between the answers {WARM} and {WARM + FURTHER}"
        if live_later - live >= FURTHER // 2:
            raise Violation("I8", f"{what} the arrays of examples and answers alive grew from {live} to {live_later}")
        if things_later - things >= FURTHER // 2:
            raise Violation("I8", f"{what} what it holds grew from {things} to {things_later} objects")
        if size_later - size >= FURTHER // 2 * 16:
            raise Violation("I8", f"{what} what it holds grew from {size} to {size_later} bytes")


def _after(answers: Any, count: int, watch: Any, alive: list, own: tuple) -> tuple[int, int, int]:
    """That many answers later: arrays of the judge that live, things that the stream holds, bytes of its arrays."""
    for _ in range(count):
        watch(next(answers).y_hat)
    gc.collect()
    return sum(ref() is not None for ref in alive), *held_by(answers, *own)
