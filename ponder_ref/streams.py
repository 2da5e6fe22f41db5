"""What the streams of all backends share: taking examples from an iterator, and answers in order (spec I8)."""

from collections.abc import Iterable, Iterator
from typing import Any

from ponder_ref import checks
from ponder_ref.interface import Answer, ExitRule
from ponder_ref.sampling import MASK
from ponder_ref.trees import map_tree

# Of the policy "expected" where neither call nor model has its own; ε is the paper's (§2.3).
DEFAULTS: dict[str, Any] = {"epsilon": 0.05, "min_steps": 1, "remainder": "last"}


def own_exit(model: Any, max_steps: int | None, policy: str | None) -> dict[str, Any]:
    """How the examples of a model leave where a call does not say it: by the model's method and its own numbers."""
    method = getattr(model, "method", "ponder")
    policy = ("sample" if method == "ponder" else "fixed") if policy is None else policy
    checks.check_predictable(method, policy)
    own_steps = 1 if method == "once" else model.max_steps
    steps = own_steps if max_steps is None else max_steps
    checks.check_count("max_steps", steps, 1)
    own = {name: getattr(model, name, None) for name in DEFAULTS}
    numbers = {name: DEFAULTS[name] if value is None else value for name, value in own.items()}
    return {**numbers, "policy": policy, "max_steps": steps, "min_steps": min(numbers["min_steps"], steps)}


def stream_rule(
    model: Any, max_steps: int | None, policy: str | None, slots: Any, first_id: Any, **given: Any
) -> tuple[ExitRule, int]:
    """The checked rule of a stream and the id of its first example mod 2³² (S2); what is None is the model's own."""
    checks.check_stream(slots, first_id)
    own = own_exit(model, max_steps, policy)
    rule = ExitRule(**{**own, **{name: value for name, value in given.items() if value is not None}})
    checks.check_exit(rule)
    return rule, int(first_id) & MASK


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
