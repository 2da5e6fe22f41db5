"""Answers to examples as they come: a stream through the slots (spec I8)."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ponder_ref import checks
from ponder_ref.interface import Answer, ExitRule
from ponder_ref.streams import Source, in_order, shapes_of, stream_rule
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
      ordered: whether to answer in the order of the stream, and not as examples leave.
    """
    given = {"seed": seed, "draw": draw, "q": q, "epsilon": epsilon, "min_steps": min_steps, "remainder": remainder}
    rule, first_id = stream_rule(model, max_steps, policy, slots, first_id, **given)
    answers = _answers(model, Source(iterable), rule, first_id, slots)
    return in_order(answers) if ordered else answers


def _answers(model: Any, source: Source, rule: ExitRule, first_id: int, slots: int) -> Iterator[Answer]:
    """Answers as examples leave."""
    buckets: dict[str, Slots] = {}
    running = 0
    while True:
        taken = source.take(slots - running)
        running += len(taken)
        shapes = [shapes_of(example) for _, example in taken]
        for shape in dict.fromkeys(shapes):
            chosen = [pair for pair, own in zip(taken, shapes, strict=True) if own == shape]
            places = np.array([index for index, _ in chosen])
            bucket = buckets.setdefault(shape, Slots(model.step, rule))
            bucket.change(_started(model, [example for _, example in chosen]), places + first_id, places)
        for bucket in [bucket for bucket in buckets.values() if len(bucket)]:
            bucket.change()
            left = bucket.advance()
            if left is not None:
                running -= len(left.places)
                for index, y_hat, steps in zip(left.places, left.y_hat, left.steps, strict=True):
                    yield Answer(int(index), y_hat, int(steps))
        if not running and source.finish():
            return


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
