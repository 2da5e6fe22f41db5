"""Defects of streams (spec I8) that answers alone do not show: their form, waiting, and memory that grows."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.base import Answer
from ponder_ref.conformance.mutants.base import Mutant, around
from ponder_ref.trees import map_tree


def _changed(change: Callable[[Answer], Answer]) -> Callable:
    """`stream` with each of its answers changed."""

    def stream(model, iterable, **options) -> Iterator[Answer]:
        for answer in ponder_ref.stream(model, iterable, **options):
            yield change(answer)

    return stream


def _waits_for_all(model, iterable, **options) -> Iterator[Answer]:
    """The slots are filled before anything is computed: None is asked past, until an example comes."""
    slots, first = options.get("slots", 64), options.pop("first_id", 0)
    ponder_ref.stream(model, [], first_id=first, **options)  # for its complaints
    examples = (example for example in iterable if example is not None)
    begun, failure, some = 0, None, [None]
    while some and failure is None:
        some = []
        try:
            for example in itertools.islice(examples, slots):
                some.append(example)
        except LookupError as error:
            failure = error
        for answer in ponder_ref.stream(model, some, first_id=first + begun, **options):
            yield answer._replace(index=begun + answer.index)
        begun += len(some)
    if failure is not None:
        raise failure


def _fails_together(model, iterable, **options) -> Iterator[Answer]:
    """What is computed side by side is answered together, or, if one example fails, not at all."""
    slots, first = options.get("slots", 64), options.pop("first_id", 0)
    ponder_ref.stream(model, [], first_id=first, **options)  # for its complaints
    examples, begun, failure, going_on = iter(iterable), 0, None, True
    while going_on:
        some: list[Any] = []
        try:
            while len(some) < slots and (example := next(examples)) is not None:
                some.append(example)
        except StopIteration:
            going_on = False
        except LookupError as error:
            going_on, failure = False, error
        for answer in list(ponder_ref.stream(model, some, first_id=first + begun, **options)):
            yield answer._replace(index=begun + answer.index)
        begun += len(some)
    if failure is not None:
        raise failure


def in_order_by_slots(window: float) -> Callable:
    """`stream` whose slots go on beside a slow example, in order: at most `window`·slots ahead of the last answer."""

    def stream(model, iterable, *, slots=64, ordered=False, first_id=0, **options) -> Iterator[Answer]:
        if not ordered:
            yield from ponder_ref.stream(model, iterable, slots=slots, first_id=first_id, **options)
            return
        ponder_ref.stream(model, [], slots=slots, first_id=first_id, **options)  # for its complaints
        examples, taken, following, failure, going_on = iter(iterable), 0, 0, None, True
        running: dict[int, tuple[int, Answer]] = {}  # steps that are left, and the answer
        held: dict[int, Answer] = {}
        while going_on or running:
            try:
                while going_on and len(running) < slots and taken < following + window * slots:
                    if (example := next(examples)) is None:
                        break
                    (answer,) = ponder_ref.stream(model, [example], first_id=first_id + taken, **options)
                    running[taken] = answer.steps, answer._replace(index=taken)
                    taken += 1
            except StopIteration:
                going_on = False
            except Exception as error:
                going_on, failure = False, error
            running = {index: (left - 1, answer) for index, (left, answer) in running.items()}
            held |= {index: answer for index, (left, answer) in running.items() if left == 0}
            running = {index: rest for index, rest in running.items() if rest[0]}
            while following in held:
                yield held.pop(following)
                following += 1
        if failure is not None:
            raise failure

    return stream


def _keeps(kept_of: Callable[[Any, Answer], Any]) -> Callable:
    """`stream` that keeps something of every example and answer."""

    def stream(model, iterable, **options) -> Iterator[Answer]:
        held, last = [], [None]

        def watched() -> Iterator[Any]:
            for example in iterable:
                last[0] = example if example is not None else last[0]
                yield example

        for answer in ponder_ref.stream(model, watched(), **options):
            held.append(kept_of(last[0], answer))
            yield answer

    return stream


IN_ORDER = Mutant(
    "in-order-by-slots", "slots that go on beside a slow example", "", around("stream", in_order_by_slots(16))
)
MUTANTS = tuple(
    Mutant(name, defect, "I8", around("stream", stream))
    for name, defect, stream in (
        (
            "answers-with-a-batch-axis",
            "an answer has a first axis of length 1",
            _changed(lambda answer: answer._replace(y_hat=answer.y_hat[None])),
        ),
        (
            "answers-in-half",
            "answers come in half precision",
            _changed(lambda answer: answer._replace(y_hat=answer.y_hat.astype(np.float16))),
        ),
        (
            "answers-in-single",
            "answers come in float32, those of predict in float64",
            _changed(lambda answer: answer._replace(y_hat=answer.y_hat.astype(np.float32))),
        ),
        ("blocks-on-none", "None is asked past until the slots are full", _waits_for_all),
        ("holds-back-all", "answers in order are held back without a limit", in_order_by_slots(np.inf)),
        ("holds-back-more", "one slot too many is held back", in_order_by_slots(17)),
        ("fails-together", "one bad request loses those that are computed beside it", _fails_together),
        ("keeps-its-examples", "every example is kept", _keeps(lambda example, answer: example)),
        ("keeps-its-answers", "every answer is kept", _keeps(lambda example, answer: answer)),
        (
            "keeps-copies",
            "a copy of every example is kept",
            _keeps(lambda example, answer: map_tree(np.copy, example)),
        ),
        ("keeps-a-diary", "the number of steps of every example is kept", _keeps(lambda example, answer: answer.steps)),
    )
)
