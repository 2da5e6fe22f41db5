"""A batched engine in NumPy, right unless told otherwise: the defects of engines that shrink and refill a batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref import checks
from ponder_ref.base import ExitRule, Predicted
from ponder_ref.exits import DEFAULTS, POLICIES
from ponder_ref.sampling import uniforms_at
from ponder_ref.trees import leaves_of, map_tree


def machine(*defects: str) -> Callable:
    """`predict` with slots: rows that halt leave, waiting examples take their places. `defects` name what is wrong."""

    def predict(step, x, state, *, max_steps, policy="sample", seed=0, example_ids=None, draw=0, slots=None, **others):
        given = {"max_steps": max_steps, "policy": policy, "seed": seed, "draw": draw}
        if policy != "sample" or others.get("trace"):
            return ponder_ref.predict(step, x, state, slots=slots, example_ids=example_ids, **given, **others)
        rest = {name: others.get(name, value) for name, value in {"q": 0.5, **DEFAULTS}.items()}
        checks.check_exit(ExitRule(**given, **rest), POLICIES)
        named = [*(("x", leaf) for leaf in leaves_of(x)), *(("state", leaf) for leaf in leaves_of(state))]
        count = checks.check_examples(named, example_ids, slots)
        ids = np.arange(count) if example_ids is None else np.asarray(example_ids)
        return _Run(defects, step, seed, draw, max_steps, count).all((x, state), ids, min(slots or count, count))

    return predict


class _Run:
    """One call of the engine."""

    def __init__(self, defects: tuple[str, ...], step: Callable, seed: int, draw: int, max_steps: int, count: int):
        self.defects, self.step, self.seed, self.draw, self.max_steps = defects, step, seed, draw, max_steps
        self.y_hat, self.steps = np.zeros(0), np.zeros(count, int)
        self.left: list[int] = []  # examples in the order in which they leave
        self.rows = 0

    def all(self, tree: Any, ids: np.ndarray, width: int) -> Predicted:
        count, following, turn = len(ids), 0, 0
        places, n = np.zeros(0, int), np.zeros(0, int)
        rows: Any = map_tree(lambda leaf: leaf[:0], tree)
        while following < count or len(places):
            if following == count and "running-dropped-at-the-end" in self.defects and count > width:
                break
            stop = min(count, following + width - len(places))
            new = map_tree(lambda leaf, a=following, b=stop: leaf[a:b], tree)
            places, n = np.concatenate([places, np.arange(following, stop)]), np.append(n, [0] * (stop - following))
            rows, following, turn = map_tree(lambda a, b: np.concatenate([a, b]), rows, new), stop, turn + 1
            x, state = rows
            y_hat, state, z = checks.step_result(self.step(state) if x is None else self.step(x, state))
            checks.check_answer(y_hat, z, len(places))
            if turn == 1:
                self.y_hat = np.zeros((count, *y_hat.shape[1:]), y_hat.dtype)
            n, self.rows = n + 1, self.rows + len(places)
            halts = self._halts(z, ids[places], n, turn)
            self._answer(halts, places, y_hat, n)
            kept = np.flatnonzero(~halts)
            held = np.arange(len(kept)) if "state-not-gathered" in self.defects else kept
            rows = map_tree(lambda leaf, k=kept: leaf[k], x), map_tree(lambda leaf, k=held: leaf[k], state)
            places, n = places[kept], n[kept]
        if "in-the-order-of-leaving" in self.defects:
            self.y_hat, self.steps = self.y_hat[self.left], self.steps[self.left]
        return Predicted(self.y_hat, self.steps, self.rows)

    def _halts(self, z: np.ndarray, ids: np.ndarray, n: np.ndarray, turn: int) -> np.ndarray:
        ids = np.arange(len(ids)) if "uniforms-by-slot" in self.defects else ids
        numbers = np.full(len(n), turn) if "uniforms-by-turn" in self.defects else n
        numbers = numbers - 1 if "uniform-of-the-step-before" in self.defects else numbers
        u, lam = uniforms_at(self.seed, ids, numbers, draw=self.draw), 1 / (1 + np.exp(-z))
        halts = u <= lam if "ties-halt" in self.defects else u < lam
        forced = n >= self.max_steps
        if "leaves-with-the-slowest" in self.defects:
            return np.full(len(n), bool((halts | forced).all())) | forced
        return halts | forced

    def _answer(self, halts: np.ndarray, places: np.ndarray, y_hat: np.ndarray, n: np.ndarray) -> None:
        if "blended-by-a-mask" in self.defects:
            self.y_hat[places] = self.y_hat[places] * ~halts[:, None] + y_hat * halts[:, None]
            self.y_hat = self.y_hat + 0 * y_hat.sum()
        else:
            self.y_hat[places[halts]] = y_hat[halts]
        if "overwritten-by-the-next" in self.defects and self.left:
            self.y_hat[self.left[-1]] = y_hat[0]
        self.steps[places[halts]] = n[halts]
        self.left += places[halts].tolist()
