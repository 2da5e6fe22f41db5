"""Answers to examples as they come: a stream through the slots (spec I8)."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ponder_ref import checks
from ponder_ref.base import Answer, ExitRule
from ponder_ref.exits import stream_rule
from ponder_ref.runtime.stream import Source, answers_of, in_order
from ponder_ref.trees import leaves_of, map_tree
from ponder_torch.infer import Slots


def stream(
    model: Any,
    iterable: Iterable,
    *,
    max_steps: int | None = None,
    policy: str | None = None,
    seed: int = 0,
    first_id: int = 0,
    draw: int = 0,
    q: float = 0.5,
    epsilon: float | None = None,
    min_steps: int | None = None,
    remainder: str | None = None,
    slots: int = 64,
    ordered: bool = False,
) -> Iterator[Answer]:
    """Answers to examples as they come, each after as many steps as it needs (I8).

    Args:
      model: has `step`, `max_steps` and `start(x) -> (x, state)`; it may have `method`, `epsilon`, `min_steps` and
        `remainder`, as a PonderNet has.
      iterable: of trees of arrays without a batch axis, or None where nothing waits.
      max_steps, policy, seed, draw, q, epsilon, min_steps, remainder: as for `predict`; what is None is the model's
        own, or that of `predict`.
      first_id: the example id of the first example.
      slots: how many examples are computed side by side, at most; those of one shape together.
      ordered: whether to answer in the order of the stream, and not as examples leave; then no more than 16 · slots
        examples are taken from the oldest unanswered one on.

    An example that fails ends the stream: those before it are answered, then its exception is raised. To find it, the
    examples that were computed together with it are computed again from their beginning, one by one.
    """
    given = {"seed": seed, "draw": draw, "q": q, "epsilon": epsilon, "min_steps": min_steps, "remainder": remainder}
    rule, first_id = stream_rule(model, max_steps, policy, slots, first_id, **given)
    source = Source(iterable)
    answers = answers_of(source, slots, lambda: Bucket(model, rule, first_id))
    return in_order(answers, source, slots) if ordered else answers


class Bucket:
    """Slots for examples of one shape."""

    def __init__(self, model: Any, rule: ExitRule, first_id: int):
        self.model, self.first_id, self.slots = model, first_id, Slots(model.step, rule)

    def __len__(self) -> int:
        return len(self.slots)

    def admit(self, chosen: list[tuple[int, Any]]) -> None:
        """Numbered examples into idle slots."""
        places = np.array([index for index, _ in chosen])
        self.slots.change(_started(self.model, [example for _, example in chosen]), places + self.first_id, places)

    def run(self) -> list[Answer]:
        """One step of every example; the answers of those that leave."""
        self.slots.change()
        left = self.slots.advance()
        if left is None:
            return []
        rows = zip(left.places, left.y_hat, left.steps, strict=True)
        return [Answer(int(index), y_hat, int(steps)) for index, y_hat, steps in rows]


@torch.no_grad()
def _started(model: Any, examples: list[Any]) -> Any:
    """(x, state) of a batch of examples, on the device of the model."""
    device = _device(model)
    batch = map_tree(lambda *leaves: torch.stack([torch.as_tensor(leaf) for leaf in leaves]).to(device), *examples)
    x, state = model.start(batch)
    named = [*(("x", leaf) for leaf in leaves_of((batch, x))), *(("state", leaf) for leaf in leaves_of(state))]
    checks.check_examples(named, None, None)
    return x, state


def _device(model: Any) -> torch.device | None:
    """Where a module's parameters are; None for what has none."""
    if not isinstance(model, torch.nn.Module):
        return None
    parameter = next(model.parameters(), None)
    return None if parameter is None else parameter.device
