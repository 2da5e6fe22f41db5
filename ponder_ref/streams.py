"""What the streams of all backends share: taking examples from an iterator, and answers in order (spec I8)."""

from collections.abc import Iterable, Iterator
from typing import Any

from ponder_ref.interface import Answer
from ponder_ref.trees import map_tree


def shapes_of(example: Any) -> str:
    """The same text for examples that can be computed in one batch: structure, shapes and dtypes."""
    return repr(map_tree(lambda leaf: (tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", ""))), example))


class Source:
    """Numbered examples of an iterable; its exception is kept until the examples before it have been answered."""

    def __init__(self, iterable: Iterable):
        self.iterator, self.count = iter(iterable), 0
        self.ended, self.failure = False, None

    def take(self, limit: int) -> list[tuple[int, Any]]:
        """At most `limit` examples with their numbers; fewer if nothing waits or it has come to its end."""
        taken: list[tuple[int, Any]] = []
        while len(taken) < limit and not self.ended:
            try:
                example = next(self.iterator)
            except StopIteration:
                self.ended = True
            except Exception as error:
                self.ended, self.failure = True, error
            else:
                if example is None:
                    break
                taken.append((self.count, example))
                self.count += 1
        return taken

    def finish(self) -> bool:
        """Whether it has come to its end; raises what ended it, if that was an exception."""
        if self.failure is not None:
            raise self.failure
        return self.ended


def in_order(answers: Iterator[Answer]) -> Iterator[Answer]:
    """The answers by their index. What was answered before an exception is given before it is passed on."""
    held: dict[int, Answer] = {}
    following, failure = 0, None
    while failure is None:
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
