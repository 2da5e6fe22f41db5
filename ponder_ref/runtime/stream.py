"""What the streams of all backends share: taking examples, computing them by shape, answers in order (spec I8)."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ponder_ref.base import Answer
from ponder_ref.trees import map_tree

WINDOW = 16  # of an ordered stream: at most WINDOW · slots examples are taken from the oldest unanswered one on
SHAPES = 8  # for so many shapes the slots are kept when they are idle
REST = 0.001  # seconds between two questions to an iterable where nothing waits and nothing runs


def shapes_of(example: Any) -> str:
    """The same text for examples that can be computed in one batch: structure, shapes and dtypes."""
    return repr(map_tree(lambda leaf: (tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", ""))), example))


class Source:
    """Numbered examples of an iterable; an exception is kept until the examples before it have been answered."""

    def __init__(self, iterable: Iterable):
        self.iterator, self.count = iter(iterable), 0
        self.ended, self.failure, self.failed = False, None, math.inf
        self.limit = math.inf  # the number from which on no example is taken yet

    def take(self, limit: int) -> list[tuple[int, Any]]:
        """At most `limit` examples with their numbers; fewer if nothing waits or it has come to its end."""
        taken: list[tuple[int, Any]] = []
        while len(taken) < limit and self.count < self.limit and not self.ended:
            try:
                example = next(self.iterator)
            except StopIteration:
                self.ended = True
            except Exception as error:
                self.fail(self.count, error)
            else:
                if example is None:
                    break
                taken.append((self.count, example))
                self.count += 1
        return taken

    def fail(self, number: int, error: Exception) -> None:
        """Nothing more is taken. Of several exceptions that of the earliest example is kept."""
        self.ended = True
        if number < self.failed:
            self.failure, self.failed = error, number

    def finish(self) -> bool:
        """Whether it has come to its end; raises what ended it, if that was an exception."""
        if self.failure is not None:
            raise self.failure
        return self.ended


class Bucket(Protocol):
    """Slots for examples of one shape; its length is the number of those that are computed."""

    def __len__(self) -> int: ...

    def admit(self, chosen: list[tuple[int, Any]]) -> None:
        """Numbered examples into idle slots."""
        ...

    def run(self) -> list[Answer]:
        """One step or more of every example; the answers of those that leave."""
        ...


def answers_of(source: Source, slots: int, make: Callable[[], Bucket]) -> Iterator[Answer]:
    """Answers as examples leave; `make` gives the slots for a new shape. A bad example is no harm to the others."""
    buckets: dict[str, Bucket] = {}
    running: dict[int, tuple[str, Any]] = {}
    while True:
        new: dict[str, list[tuple[int, Any]]] = {}
        for index, example in source.take(slots - len(running)):
            try:
                shape = shapes_of(example)
            except Exception as error:
                source.fail(index, error)
                break
            running[index] = shape, example
            new.setdefault(shape, []).append((index, example))
        for shape in new:
            buckets[shape] = buckets.pop(shape) if shape in buckets else make()  # the last are those last used
        idle = [shape for shape, bucket in buckets.items() if not len(bucket) and shape not in new]
        for shape in idle[: max(0, len(buckets) - SHAPES)]:
            del buckets[shape]
        for shape, bucket in list(buckets.items()):
            try:
                if shape in new:
                    bucket.admit(new[shape])
                answers = bucket.run() if len(bucket) else []
            except Exception as error:
                del buckets[shape]
                lost = [(index, example) for index, (own, example) in running.items() if own == shape]
                for index, _ in lost:
                    del running[index]
                yield from _one_by_one(lost, make, source, error)
                continue
            for answer in answers:
                del running[answer.index]
            yield from answers
        if not running:
            if source.finish():
                return
            if not new:
                time.sleep(REST)


def _one_by_one(
    chosen: list[tuple[int, Any]], make: Callable[[], Bucket], source: Source, error: Exception
) -> Iterator[Answer]:
    """Examples whose batch has failed, each computed alone and from its beginning, up to the first that fails alone."""
    for index, example in chosen:
        answers, bucket = [], make()
        try:
            bucket.admit([(index, example)])
            while len(bucket):
                answers += bucket.run()
        except Exception as own:
            return source.fail(index, own)
        yield from answers
    source.fail(chosen[-1][0], error)  # the fault of none of them alone


def in_order(answers: Iterator[Answer], source: Source, slots: int) -> Iterator[Answer]:
    """The answers by their index. What was answered before an exception is given before it is passed on."""
    held: dict[int, Answer] = {}
    following, failure = 0, None
    while failure is None:
        source.limit = following + WINDOW * slots
        try:
            answer = next(answers)
        except StopIteration:
            return
        except Exception as error:
            failure = error
        else:
            held[answer.index] = answer
        while following in held:
            yield held.pop(following)
            following += 1
    for index in sorted(held):
        yield held[index]
    raise failure
