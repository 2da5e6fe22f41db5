"""Answers to examples as they come: a stream through the slots (spec I8).

The host takes examples and gives answers, the compiled loop runs in between: until a quarter of those in the slots have
left. Chunks and slots have fixed shapes, so that nothing is compiled again for examples of the same shape.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ponder_jax.exits import Fixed, Numbers, fresh_memory, numbers_of, policy_of
from ponder_jax.infer import Slots, advance, as_tree, empty_blend, one_step, select, sums_dtype
from ponder_jax.pondering import settle
from ponder_ref import checks
from ponder_ref.base import Answer, ExitRule
from ponder_ref.exits import stream_rule
from ponder_ref.runtime.stream import Source, answers_of, in_order

SHARE = 4  # examples are admitted and answered by slots / SHARE
RUNNING, IDLE = 0, 1  # places of slots; the host knows which example is where


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

    Answers are NumPy arrays.
    """
    given = {"seed": seed, "draw": draw, "q": q, "epsilon": epsilon, "min_steps": min_steps, "remainder": remainder}
    rule, first_id = stream_rule(model, max_steps, policy, slots, first_id, **given)
    # A module gives its functions as trees, so that its parameters are arguments of what is compiled.
    start, step = model.functions() if hasattr(model, "functions") else (as_tree(model.start), as_tree(model.step))
    source = Source(iterable)
    answers = answers_of(source, slots, lambda: Bucket(start, step, rule, first_id, slots))
    return in_order(answers, source, slots) if ordered else answers


class Bucket:
    """Slots for examples of one shape; `index` says which example is in which, −1 for none."""

    def __init__(self, start: Callable, step: Callable, rule: ExitRule, first_id: int, width: int):
        self.start, self.step, self.first_id = start, step, first_id
        self.numbers, self.policy = numbers_of(rule), policy_of(rule)
        self.index = np.full(width, -1)
        self.slots: Slots | None = None

    def __len__(self) -> int:
        return int((self.index >= 0).sum())

    def admit(self, chosen: list[tuple[int, Any]]) -> None:
        """Numbered examples into idle slots, in chunks of one size."""
        width = len(self.index)
        size = max(1, width // SHARE)
        for begin in range(0, len(chosen), size):
            some = chosen[begin : begin + size]
            at = np.flatnonzero(self.index < 0)[: len(some)]
            self.index[at] = [index for index, _ in some]
            padding = size - len(some)
            ids = np.pad(self.index[at] + self.first_id, (0, padding)).astype(np.uint32)
            examples = [example for _, example in some] + [some[0][1]] * padding
            x = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *examples)
            at = np.pad(at, (0, padding), constant_values=width)  # beyond the slots: dropped
            given = (self.start, self.step, self.slots, x, ids, at.astype(np.int32))
            self.slots = _admitted(*given, policy=self.policy, width=width)

    def run(self) -> list[Answer]:
        """Steps until a quarter of the examples have left, one at least; their answers."""
        want = np.int32(max(1, len(self) // SHARE))
        self.slots, *results = _run(self.step, self.slots, self.numbers, want, policy=self.policy)
        y_hat, steps, left = jax.device_get(results)
        done = np.flatnonzero(left)
        answers = [Answer(int(self.index[k]), y_hat[k], int(steps[k])) for k in done]
        self.index[done] = -1
        return answers


@partial(jax.jit, static_argnames=("policy", "width"))
def _admitted(start, step, slots: Slots | None, x, ids, at, *, policy: Fixed, width: int) -> Slots:
    """The slots with a chunk of examples put at some of them; all idle before if there were none."""
    given, (x, state) = x, start(x)
    named = [("x", leaf) for leaf in jax.tree.leaves((given, x))]
    checks.check_examples([*named, *(("state", leaf) for leaf in jax.tree.leaves(state))], None, None)
    state = settle(lambda h: one_step(step, x, h), jax.tree.map(jnp.asarray, state))
    y_like, _, z_like = jax.eval_shape(one_step, step, x, state)
    checks.check_answer(y_like, z_like, len(ids))
    memory = fresh_memory(policy, ids, sums_dtype(z_like))
    new = Slots(x, state, empty_blend(policy, y_like), memory, jnp.full(len(ids), RUNNING, jnp.int32))
    if slots is None:
        empty = [jnp.zeros((width, *leaf.shape[1:]), leaf.dtype) for leaf in jax.tree.leaves(new)]
        slots = jax.tree.unflatten(jax.tree.structure(new), empty)._replace(place=jnp.full(width, IDLE, jnp.int32))
    return jax.tree.map(lambda old, rows: old.at[at].set(rows, mode="drop"), slots, new)


@partial(jax.jit, static_argnames="policy")
def _run(step, slots: Slots, numbers: Numbers, want, *, policy: Fixed):
    """Steps until `want` examples have left: the slots, answers and steps `[slots, ...]`, and who has left."""

    def body(carry):
        slots, y_out, steps, left = carry
        slots, (_, answer), _, halts = advance(step, policy, numbers, slots)
        leaving = halts & (slots.place == RUNNING)
        y_out, steps = select(leaving, (answer, slots.memory.n), (y_out, steps))
        return slots._replace(place=jnp.where(leaving, IDLE, slots.place)), y_out, steps, left | leaving

    y_like = jax.eval_shape(lambda slots: advance(step, policy, numbers, slots)[1][1], slots)
    nobody = jnp.zeros(slots.place.shape, bool)
    carry = slots, jnp.zeros(y_like.shape, y_like.dtype), jnp.zeros(nobody.shape, jnp.int32), nobody
    return jax.lax.while_loop(lambda carry: carry[3].sum() < want, body, carry)
