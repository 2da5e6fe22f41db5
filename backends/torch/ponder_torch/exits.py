"""When an example leaves: exit policies for examples that are at different steps (spec I1 to I4).

Which rows go on has to be known on the host, to cut them out. So the host decides: what a policy remembers of an
example is kept in NumPy, and a step costs one transfer of a number an example.
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


def uniform_block(rule: ExitRule, ids: np.ndarray, first: np.ndarray | int = 1) -> np.ndarray:
    """The uniforms of BLOCK steps from `first` on, or of all max_steps if they are fewer, `[ids, BLOCK]` (S2)."""
    steps = np.asarray(first).reshape(-1, 1) + np.arange(min(BLOCK, rule.max_steps))
    parts = []
    for start in range(0, len(ids), ROWS):
        some = steps if len(steps) == 1 else steps[start : start + ROWS]
        parts.append(uniforms_at(rule.seed, ids[start : start + ROWS, None], some, draw=rule.draw))
    return np.concatenate(parts)


class Exits:
    """What a policy remembers of the examples in the slots, row by row, and its decision after each step."""

    def __init__(self, rule: ExitRule):
        self.rule = rule
        self.ids, self.n = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.left = np.zeros(0)  # Σ log(1 − λ) so far
        self.top, self.mass = np.zeros(0), np.zeros(0)  # largest log p, and Σ p relative to it, for "normalize"
        self.uniforms = np.zeros((0, min(BLOCK, rule.max_steps)), np.float32)

    def change(self, kept: np.ndarray, ids: np.ndarray, uniforms: np.ndarray | None) -> None:
        """Keeps some rows and adds examples behind them; `uniforms` are those of their first steps, if made already."""
        start = np.zeros(len(ids), np.int64)
        self.ids, self.n = np.concatenate([self.ids[kept], ids]), np.concatenate([self.n[kept], start])
        if self.rule.policy == "sample":
            if len(ids) and uniforms is None:
                uniforms = uniform_block(self.rule, ids)
            held = self.uniforms[kept]
            self.uniforms = held if uniforms is None else np.concatenate([held, uniforms])
        elif self.rule.policy != "fixed":
            lowest = np.full(len(ids), -math.inf if self.rule.remainder == "normalize" else 0.0)
            self.left, self.mass = (np.concatenate([part[kept], start]) for part in (self.left, self.mass))
            self.top = np.concatenate([self.top[kept], lowest])

    def decide(self, z: torch.Tensor) -> tuple[np.ndarray, Blending | None]:
        """Which rows leave after a step with logits z, `[rows]`; and how it is blended, for "expected"."""
        self.n += 1
        forced = self.n >= self.rule.max_steps
        if self.rule.policy == "fixed":
            return forced, None
        (z,) = as_float(z)
        if self.rule.policy == "sample":
            return (self._uniforms() < torch.sigmoid(z).cpu().numpy()) | forced, None  # a NaN is not greater
        halt, stay = torch.stack([logsigmoid(z), logsigmoid(-z)]).cpu().numpy()
        # Sums in the dtype of the logits, and thresholds rounded to it, as everywhere (H6).
        before, self.left = self.left.astype(stay.dtype), self.left.astype(stay.dtype) + stay
        if self.rule.policy == "quantile":
            return (-np.expm1(self.left) >= stay.dtype.type(self.rule.q)) | forced, None
        enough = self.left < stay.dtype.type(math.log(self.rule.epsilon))
        halts = (enough & (self.n >= self.rule.min_steps)) | forced
        return halts, self._blending(before, before + halt, halts)

    def _uniforms(self) -> np.ndarray:
        """uₙ of each row at its own n."""
        column = (self.n - 1) % BLOCK
        used_up = np.flatnonzero((column == 0) & (self.n > 1))
        if len(used_up):
            self.uniforms[used_up] = uniform_block(self.rule, self.ids[used_up], self.n[used_up])
        return self.uniforms[np.arange(len(column)), column]

    def _blending(self, reached: np.ndarray, log_p: np.ndarray, halts: np.ndarray) -> Blending:
        """Weights of this step: pₙ, with the mass left at the last one (H2), or relative to the largest (H3)."""
        if self.rule.remainder == "last":
            weight = np.exp(np.where(halts, reached, log_p))
            return Blending(np.ones_like(weight), weight, np.ones_like(weight))
        top = np.maximum(self.top, log_p)
        scale, weight = np.exp(self.top - top), np.exp(log_p - top)
        self.top, self.mass = top, self.mass * scale + weight
        return Blending(scale, weight, self.mass)
