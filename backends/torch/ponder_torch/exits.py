"""When an example leaves: exit policies for examples that are at different steps (spec I1 to I4).

Which rows go on has to be known on the host, to cut them out. So the host decides: what a policy remembers of an
example is kept in NumPy, and a step costs one transfer of a number per example. A policy is a class in POLICIES.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from ponder_ref.base import ExitRule
from ponder_ref.sampling import uniforms_at
from ponder_torch.arrays import as_float

BLOCK = 32  # steps whose uniforms are made together
ROWS = 4096  # examples whose uniforms are made together


class Blending(NamedTuple):
    """How a step enters the expected answer, `[rows]`: blend ← scale·blend + weight·ŷ; the answer is blend / mass."""

    scale: np.ndarray
    weight: np.ndarray
    mass: np.ndarray


class Fixed:
    """All examples take max_steps (I3). Also the contract of the others: what they remember is by row."""

    def __init__(self, rule: ExitRule):
        self.rule = rule

    @staticmethod
    def prepare(rule: ExitRule, ids: np.ndarray) -> np.ndarray | None:
        """What can be made for many examples at once, before they start, `[ids, ...]`."""
        return None

    def start(self, kept: np.ndarray, ids: np.ndarray, prepared: np.ndarray | None) -> None:
        """Keeps some rows and adds examples behind them; `prepared` is their part of what `prepare` made, or None."""

    def decide(self, n: np.ndarray, ids: np.ndarray, z: torch.Tensor) -> np.ndarray | bool:
        """Which rows have had enough after their steps n with logits z, `[rows]`."""
        return False

    def blend(self, halts: np.ndarray) -> Blending | None:
        """How that step is blended where `halts` leave; None if the answer is the last prediction."""
        return None


class Sample(Fixed):
    """An example halts if uₙ < λₙ (I1)."""

    def __init__(self, rule: ExitRule):
        super().__init__(rule)
        self.uniforms = np.zeros((0, min(BLOCK, rule.max_steps)), np.float32)

    @staticmethod
    def prepare(rule: ExitRule, ids: np.ndarray, first: np.ndarray | int = 1) -> np.ndarray:
        """The uniforms of BLOCK steps from `first` on, or of all max_steps if they are fewer, `[ids, BLOCK]` (S2)."""
        steps = np.asarray(first).reshape(-1, 1) + np.arange(min(BLOCK, rule.max_steps))
        parts = []
        for start in range(0, len(ids), ROWS):
            some = steps if len(steps) == 1 else steps[start : start + ROWS]
            parts.append(uniforms_at(rule.seed, ids[start : start + ROWS, None], some, draw=rule.draw))
        return np.concatenate(parts)

    def start(self, kept: np.ndarray, ids: np.ndarray, prepared: np.ndarray | None) -> None:
        if len(ids) and prepared is None:
            prepared = self.prepare(self.rule, ids)
        held = self.uniforms[kept]
        self.uniforms = held if prepared is None else np.concatenate([held, prepared])

    def decide(self, n: np.ndarray, ids: np.ndarray, z: torch.Tensor) -> np.ndarray:
        column = (n - 1) % BLOCK
        used_up = np.flatnonzero((column == 0) & (n > 1))
        if len(used_up):
            self.uniforms[used_up] = self.prepare(self.rule, ids[used_up], n[used_up])
        (z,) = as_float(z)
        # A NaN is not greater.
        return self.uniforms[np.arange(len(column)), column] < torch.sigmoid(z).cpu().numpy()


class Quantile(Fixed):
    """An example halts at the first n by which it has halted with probability q (I2)."""

    def __init__(self, rule: ExitRule):
        super().__init__(rule)
        self.left = np.zeros(0)  # Σ log(1 − λ) so far
        self.before, self.log_p = np.zeros(0), np.zeros(0)  # that before the last step, and log pₙ of it

    def start(self, kept: np.ndarray, ids: np.ndarray, prepared: np.ndarray | None) -> None:
        self.left = np.concatenate([self.left[kept], np.zeros(len(ids))])

    def decide(self, n: np.ndarray, ids: np.ndarray, z: torch.Tensor) -> np.ndarray:
        (z,) = as_float(z)
        halt, stay = torch.stack([logsigmoid(z), logsigmoid(-z)]).cpu().numpy()
        # Sums in the dtype of the logits, and thresholds rounded to it, as everywhere (H6).
        self.before, self.left = self.left.astype(stay.dtype), self.left.astype(stay.dtype) + stay
        self.log_p = self.before + halt
        return self.enough(n)

    def enough(self, n: np.ndarray) -> np.ndarray:
        return -np.expm1(self.left) >= self.left.dtype.type(self.rule.q)


class Expected(Quantile):
    """An example halts when all but ε of it has, and answers Σ pₙŷₙ (I4)."""

    def __init__(self, rule: ExitRule):
        super().__init__(rule)
        self.top, self.mass = np.zeros(0), np.zeros(0)  # largest log p, and Σ p relative to it, for "normalize"

    def start(self, kept: np.ndarray, ids: np.ndarray, prepared: np.ndarray | None) -> None:
        super().start(kept, ids, prepared)
        lowest = np.full(len(ids), -math.inf if self.rule.remainder == "normalize" else 0.0)
        self.top = np.concatenate([self.top[kept], lowest])
        self.mass = np.concatenate([self.mass[kept], np.zeros(len(ids))])

    def enough(self, n: np.ndarray) -> np.ndarray:
        return (self.left < self.left.dtype.type(math.log(self.rule.epsilon))) & (n >= self.rule.min_steps)

    def blend(self, halts: np.ndarray) -> Blending:
        """Weights of this step: pₙ, with the mass left at the last one (H2), or relative to the largest (H3)."""
        if self.rule.remainder == "last":
            weight = np.exp(np.where(halts, self.before, self.log_p))
            return Blending(np.ones_like(weight), weight, np.ones_like(weight))
        top = np.maximum(self.top, self.log_p)
        scale, weight = np.exp(self.top - top), np.exp(self.log_p - top)
        self.top, self.mass = top, self.mass * scale + weight
        return Blending(scale, weight, self.mass)


POLICIES: dict[str, type[Fixed]] = {"sample": Sample, "quantile": Quantile, "fixed": Fixed, "expected": Expected}


class Exits:
    """The examples in the slots, row by row: their ids and steps, and the decisions of the policy."""

    def __init__(self, rule: ExitRule):
        self.rule, self.policy = rule, POLICIES[rule.policy](rule)
        self.ids, self.n = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def change(self, kept: np.ndarray, ids: np.ndarray, prepared: np.ndarray | None) -> None:
        """Keeps some rows and adds examples behind them."""
        self.ids = np.concatenate([self.ids[kept], ids])
        self.n = np.concatenate([self.n[kept], np.zeros(len(ids), np.int64)])
        self.policy.start(kept, ids, prepared)

    def decide(self, z: torch.Tensor) -> tuple[np.ndarray, Blending | None]:
        """Which rows leave after a step with logits z, `[rows]`; and how it is blended, for "expected"."""
        self.n += 1
        halts = self.policy.decide(self.n, self.ids, z) | (self.n >= self.rule.max_steps)
        return halts, self.policy.blend(halts)
