"""Leaving early when serving, as plainly as it can be said: one example at a time (spec I1 to I8; paper §2.5)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.base import Answer, ExitRule, Predicted, Trace
from ponder_ref.exits import stream_rule
from ponder_ref.halting import as_float, expected_prediction, log_halting, log_sigmoid
from ponder_ref.sampling import MASK, uniforms_at
from ponder_ref.trees import check_alike, leaves_of, map_tree


def _sampled(rule: ExitRule, example_id: int, z: np.ndarray) -> bool:
    return bool(uniforms_at(rule.seed, example_id, len(z), draw=rule.draw) < np.exp(log_sigmoid(z[-1])))  # I1


def _quantile(rule: ExitRule, example_id: int, z: np.ndarray) -> bool:
    return bool(-np.expm1(log_sigmoid(-z).sum()) >= rule.q)  # I2


def _never(rule: ExitRule, example_id: int, z: np.ndarray) -> bool:
    return False  # I3


def _settled(rule: ExitRule, example_id: int, z: np.ndarray) -> bool:
    return len(z) >= rule.min_steps and bool(log_sigmoid(-z).sum() < np.log(rule.epsilon))  # I4


def _last(rule: ExitRule, predictions: np.ndarray, z: np.ndarray) -> np.ndarray:
    return predictions[-1]


def _expected(rule: ExitRule, predictions: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The expected prediction, its p cut at the example's own last step (I4)."""
    return expected_prediction(log_halting(z, remainder=rule.remainder), predictions)


# By policy: whether an example leaves after the steps whose logits are z, `[n]`, n < N; and its answer then.
RULES = {
    "sample": (_sampled, _last),
    "quantile": (_quantile, _last),
    "fixed": (_never, _last),
    "expected": (_settled, _expected),
}


def _leaves(rule: ExitRule, example_id: int, z: np.ndarray) -> bool:
    return len(z) == rule.max_steps or RULES[rule.policy][0](rule, example_id, z)


def _one(step: Callable, x: Any, state: Any, rule: ExitRule, example_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions `[n, ...]` and logits `[n]` of the n steps that one example takes; x and state have a batch of 1."""
    predictions, logits = [], []
    while not logits or not _leaves(rule, example_id, as_float(np.array(logits))):
        y_hat, after, z = checks.step_result(step(state) if x is None else step(x, state))
        checks.check_answer(y_hat, z, 1)
        check_alike(state, after)
        state = after
        predictions.append(y_hat[0])
        logits.append(z[0])
    return np.stack(predictions), as_float(np.stack(logits))


def predict(
    step: Callable,
    x: Any,
    state: Any,
    *,
    max_steps: int,
    policy: str = "sample",
    seed: int = 0,
    example_ids=None,
    draw: int = 0,
    q: float = 0.5,
    epsilon: float = 0.05,
    min_steps: int = 1,
    remainder: str = "last",
    slots: int | None = None,
    trace: bool = False,
) -> Predicted:
    """The answer of each example after as many steps as it needs.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, or `step(h)` if x is None (M1).
      x, state: the input and h₀, trees of arrays whose first axis is the examples'.
      max_steps: N, at which every example leaves.
      policy: "sample" (I1), "quantile" (I2), "fixed" (I3), "expected" (I4).
      seed, example_ids, draw: of the uniforms, for "sample"; ids are 0, 1, 2, … if None.
      q: for "quantile".
      epsilon, min_steps, remainder: for "expected".
      slots: how many examples to compute side by side; of no effect here.
      trace: whether to keep every step (I7).
    """
    rule = ExitRule(policy, max_steps, seed, draw, q, epsilon, min_steps, remainder)
    checks.check_exit(rule, tuple(RULES))
    named = [*(("x", leaf) for leaf in leaves_of(x)), *(("state", leaf) for leaf in leaves_of(state))]
    count = checks.check_examples(named, example_ids, slots)
    ids = np.arange(count) if example_ids is None else np.asarray(example_ids)
    taken = []
    for i in range(count):
        own_x, own_state = map_tree(lambda leaf, i=i: leaf[i : i + 1], (x, state))
        taken.append(_one(step, own_x, own_state, rule, int(ids[i])))
    steps = np.array([len(z) for _, z in taken])
    y_hat = np.stack([RULES[policy][1](rule, *run) for run in taken])
    result = Predicted(y_hat, steps, int(steps.sum()))
    if not trace:
        return result
    traced = Trace(*(np.stack([_padded(run[part], max_steps) for run in taken], axis=1) for part in (0, 1)))
    log_p = log_halting(traced.halt_logits, remainder=remainder, lengths=steps)
    return result._replace(log_p=log_p, expected=expected_prediction(log_p, traced.y_hat), trace=traced)


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """The array with zeros behind it, up to the length."""
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


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
    """Answers to examples as they come (I8).

    Args:
      model: has `step`, `max_steps` and `start(x) -> (x, state)`; it may have `method`, `epsilon`, `min_steps` and
        `remainder`, as a PonderNet has.
      iterable: of trees of arrays without a batch axis, or None where nothing waits.
      max_steps, policy, seed, draw, q, epsilon, min_steps, remainder: as for `predict`; what is None is the model's
        own, or that of `predict`.
      first_id: the example id of the first example.
      slots, ordered: of no effect here; one example is computed at a time, in order.
    """
    given = {"seed": seed, "draw": draw, "q": q, "epsilon": epsilon, "min_steps": min_steps, "remainder": remainder}
    rule, first_id = stream_rule(model, max_steps, policy, slots, first_id, **given)
    return _answers(model, iterable, rule, first_id)


def _answers(model: Any, iterable: Iterable, rule: ExitRule, first_id: int) -> Iterator[Answer]:
    for index, example in enumerate(example for example in iterable if example is not None):
        x, state = model.start(map_tree(lambda leaf: np.asarray(leaf)[None], example))
        out = predict(model.step, x, state, example_ids=np.array([first_id + index]) & MASK, **rule._asdict())
        yield Answer(index, out.y_hat[0], int(out.steps[0]))
