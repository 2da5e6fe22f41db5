"""Batched inference with a real exit: rows that halt leave, waiting examples take their slots (spec I1 to I7).

The slots have a fixed shape, in one `lax.while_loop`: nothing is compiled as examples halt. When no example waits any
more and few run, a second loop goes on with a quarter of the slots.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ponder_jax.arrays import as_float, either, expand_right, loop_while
from ponder_jax.exits import Fixed, Memory, Numbers, decide, fresh_memory, numbers_of, policy_of
from ponder_jax.halting import expected_prediction, log_halting
from ponder_jax.pondering import settle
from ponder_ref import checks
from ponder_ref.base import ExitRule, Predicted, Trace
from ponder_ref.exits import POLICIES

AUTO_BYTES = 8 * 2**20
LEAST_SLOTS = 16
NARROW = 4  # the second loop has slots / NARROW of them, where that is at least LEAST_SLOTS / 2


class Slots(NamedTuple):
    """The examples being computed, `[slots, ...]`: input, state, Σ pₙŷₙ (None if the policy does not blend), the
    memory of the policy, and where each belongs; an idle slot's place is the number of examples."""

    x: Any
    state: Any
    blend: Any
    memory: Memory
    place: jax.Array


def as_tree(step: Callable) -> Any:
    """A callable as a tree whose arrays are arguments of compiled code; a plain function has none."""
    return jax.tree_util.Partial(step) if jax.tree_util.all_leaves([step]) else step


def choose_slots(tree: Any, count: int) -> int:
    """How many slots suit examples of this size and number; the answers do not depend on it (I5)."""
    row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / count
    return min(count, max(LEAST_SLOTS, min(int(AUTO_BYTES / max(row, 1)), count // 8)))


def one_step(step: Callable, x: Any, state: Any) -> tuple[Any, Any, Any]:
    return checks.step_result(step(state) if x is None else step(x, state))


def select(mask: jax.Array, new: Any, old: Any) -> Any:
    """Rows of the new tree where the mask says so, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(expand_right(mask, a.ndim), a, b), new, old)


def sums_dtype(like: Any) -> Any:
    """In which dtype sums are kept: float32 at least."""
    return jnp.float64 if like.dtype == jnp.float64 else jnp.float32


def empty_blend(policy: Fixed, y_hat: jax.ShapeDtypeStruct) -> Any:
    return jnp.zeros(y_hat.shape, sums_dtype(y_hat)) if policy.blends else None


def advance(step: Callable, policy: Fixed, numbers: Numbers, slots: Slots) -> tuple[Slots, Any, Any, Any]:
    """One step of every slot: the slots after it, their answers `[slots, ...]`, logits, and which of them leave."""
    y_hat, state, z = one_step(step, slots.x, slots.state)
    checks.check_answer(y_hat, z, len(slots.place))
    memory, halts, blending = decide(policy, numbers, slots.memory, z)
    answer, blend = y_hat, slots.blend
    if blending is not None:
        (wide,) = as_float(y_hat)
        scale, weight, mass = (expand_right(part.astype(wide.dtype), wide.ndim) for part in blending)
        # Select, so that a step of no weight has no influence whatever it predicts.
        blend = scale * blend + jnp.where(weight == 0, 0.0, weight * wide)
        answer = blend / mass
    return slots._replace(state=state, blend=blend, memory=memory), (y_hat, answer), z, halts


def _refilled(slots: Slots, waiting: Any, ids: jax.Array, following: jax.Array, begin: Callable) -> tuple[Slots, Any]:
    """Examples in the idle slots, from number `following` on; and the number of the next."""
    count = len(ids)
    idle = slots.place >= count
    number = following + jnp.cumsum(idle, dtype=jnp.int32) - 1
    fresh = idle & (number < count)

    def fill(slots: Slots) -> Slots:
        at = jnp.where(fresh, number, 0)
        x, state = jax.tree.map(lambda leaf: jnp.take(leaf, at, axis=0), waiting)
        blend = jax.tree.map(jnp.zeros_like, slots.blend)
        return select(fresh, Slots(x, state, blend, begin(ids[at]), number), slots)

    return either(fresh.any(), fill, lambda slots: slots, slots), following + fresh.sum(dtype=jnp.int32)


@partial(jax.jit, static_argnames=("policy", "width", "traced"))
def _predict(step, x, state, ids, numbers: Numbers, *, policy: Fixed, width: int, traced: int):
    count = len(ids)
    first = jnp.minimum(jnp.arange(width, dtype=jnp.int32), count - 1)
    some_x, some_state = jax.tree.map(lambda leaf: jnp.take(leaf, first, axis=0), (x, state))
    some_state = settle(lambda h: one_step(step, some_x, h), some_state)
    state = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), state, some_state)
    y_like, _, z_like = jax.eval_shape(one_step, step, some_x, some_state)
    checks.check_answer(y_like, z_like, width)
    blend = empty_blend(policy, y_like)
    begin = partial(fresh_memory, policy, dtype=sums_dtype(z_like))
    place = jnp.arange(width, dtype=jnp.int32)
    slots = Slots(some_x, some_state, blend, begin(ids[first]), jnp.where(place < count, place, count))
    y_dtype = y_like.dtype if blend is None else blend.dtype
    answers = jnp.zeros((count, *y_like.shape[1:]), y_dtype), jnp.zeros(count, jnp.int32)
    kept = Trace(jnp.zeros((traced, count, *y_like.shape[1:]), y_like.dtype), jnp.zeros((traced, count), z_like.dtype))

    def body(carry, refill: bool):
        slots, following, (y_out, steps), kept, rows = carry
        slots, (y_hat, answer), z, halts = advance(step, policy, numbers, slots)
        leaving = jnp.where(halts, slots.place, count)  # what stands at `count` is dropped
        y_out = y_out.at[leaving].set(answer, mode="drop")
        steps = steps.at[leaving].set(slots.memory.n, mode="drop")
        if traced:
            at = (slots.memory.n - 1, slots.place)
            kept = Trace(*(old.at[at].set(new, mode="drop") for old, new in zip(kept, (y_hat, z), strict=True)))
        slots = slots._replace(place=jnp.where(halts, count, slots.place))
        if refill:
            slots, following = _refilled(slots, (x, state), ids, following, begin)
        return slots, following, (y_out, steps), kept, rows + len(slots.place)

    narrow = width // NARROW if width // NARROW >= LEAST_SLOTS // 2 else 0
    carry = slots, jnp.int32(min(width, count)), answers, kept, jnp.int32(0)
    going_on = lambda carry: (carry[0].place < count).sum() > jnp.where(carry[1] < count, 0, narrow)  # noqa: E731
    carry = loop_while(going_on, lambda carry: body(carry, count > width), carry)
    if narrow:
        running_first = jnp.argsort(carry[0].place)[:narrow]
        slots = jax.tree.map(lambda leaf: jnp.take(leaf, running_first, axis=0), carry[0])
        carry = slots, *carry[1:]
        carry = loop_while(lambda carry: (carry[0].place < count).any(), lambda carry: body(carry, False), carry)
    _, _, answers, kept, rows = carry
    return answers, kept, rows


def predict(
    step: Callable,
    x: Any,
    state: Any,
    *,
    max_steps: int,
    policy: str = "sample",
    seed: int = 0,
    example_ids: jax.Array | None = None,
    draw: int = 0,
    q: float = 0.5,
    epsilon: float = 0.05,
    min_steps: int = 1,
    remainder: str = "last",
    slots: int | None = None,
    trace: bool = False,
) -> Predicted:
    """The answer of each example after as many steps as it needs; cost follows the sum of the steps.

    Compiled once for each step function, set of shapes, policy, remainder and number of slots. A step that closes over
    arrays is compiled with them; give `jax.tree_util.Partial(step, params)` to have parameters as arguments.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, or `step(h)` if x is None (M1).
      x, state: the input and h₀, trees of arrays whose first axis is the examples'.
      max_steps: N, at which every example leaves.
      policy: "sample" (I1), "quantile" (I2), "fixed" (I3), "expected" (I4).
      seed, example_ids, draw: of the uniforms, for "sample"; ids are 0, 1, 2, … if None.
      q: for "quantile".
      epsilon, min_steps, remainder: for "expected".
      slots: how many examples to compute side by side; by their size and number if None.
      trace: whether to keep every step (I7).

    Returns:
      Predicted, in the order of the examples. `rows` counts idle slots, too.
    """
    rule = ExitRule(policy, max_steps, seed, draw, q, epsilon, min_steps, remainder)
    checks.check_exit(rule, POLICIES)
    x, state = jax.tree.map(jnp.asarray, (x, state))
    named = [*(("x", leaf) for leaf in jax.tree.leaves(x)), *(("state", leaf) for leaf in jax.tree.leaves(state))]
    count = checks.check_examples(named, example_ids, slots)
    ids = jnp.arange(count, dtype=jnp.uint32) if example_ids is None else jnp.asarray(example_ids)
    width = choose_slots((x, state), count) if slots is None else min(slots, count)
    options = {"policy": policy_of(rule), "width": width, "traced": max_steps if trace else 0}
    (y_hat, steps), kept, rows = _predict(as_tree(step), x, state, ids, numbers_of(rule), **options)
    result = Predicted(y_hat, steps, rows)
    if not trace:
        return result
    log_p = log_halting(kept.halt_logits, remainder=remainder, lengths=steps)
    return result._replace(log_p=log_p, expected=expected_prediction(log_p, kept.y_hat), trace=kept)
