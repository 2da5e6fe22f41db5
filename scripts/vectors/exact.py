"""Random numbers, sampled steps and adaptive computation time, in integers and fractions.

These results are discrete or dyadic, so nothing is rounded before the last step, and ties are true ties.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from mpmath import mp

MASK = 0xFFFFFFFF
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """S1, twenty rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x0, x1 = (counter[0] + keys[0]) & MASK, (counter[1] + keys[1]) & MASK
    for group in range(1, 6):
        for turn in ROTATIONS[(group - 1) % 2]:
            x0 = (x0 + x1) & MASK
            x1 = (x1 << turn | x1 >> (32 - turn)) & MASK
            x1 ^= x0
        x0 = (x0 + keys[group % 3]) & MASK
        x1 = (x1 + keys[(group + 1) % 3] + group) & MASK
    return x0, x1


def halting_uniform(seed: int, example_id: int, step: int, draw: int, domain: int) -> Fraction:
    """S2 for one example and step."""
    counter = (example_id % 2**32, domain * 2**28 + draw * 2**16 + step)
    return Fraction(threefry2x32((seed & MASK, seed >> 32), counter)[0] >> 8, 2**24)


def sampled_step(lambdas: Sequence[float], uniforms: Sequence[float], length: int) -> int:
    """S3. Comparing floats with floats is exact, and a NaN is never greater."""
    for n in range(1, length):
        if uniforms[n - 1] < lambdas[n - 1]:
            return n
    return length


def quantile_step(log_p: Sequence[mp.mpf], q: mp.mpf) -> int:
    """S6."""
    total = mp.mpf(0)
    for n, lp in enumerate(log_p, start=1):
        total += mp.exp(lp)
        if total >= q:
            return n
    return max(n for n, lp in enumerate(log_p, start=1) if lp != -mp.inf)


def act_row(lambdas: Sequence[float], epsilon: float) -> tuple[list[Fraction | float], int, Fraction | float]:
    """A1 and A2: weights, steps, remainder. A sum with a NaN in it reaches nothing, and is NaN in the remainder."""
    limit = len(lambdas)
    bound = 1 - Fraction(epsilon)
    total: Fraction | float = Fraction(0)
    steps = limit
    for n, x in enumerate(lambdas, start=1):
        total = add(total, exact(x))
        if total >= bound:
            steps = n
            break
    before = Fraction(0)
    for x in lambdas[: steps - 1]:
        before = add(before, exact(x))
    remainder = math.nan if isinstance(before, float) else 1 - before
    weights = [exact(x) for x in lambdas[: steps - 1]] + [remainder] + [Fraction(0)] * (limit - steps)
    return weights, steps, remainder


def exact(x: float) -> Fraction | float:
    """A finite float as a Fraction, NaN as itself."""
    return math.nan if math.isnan(x) else Fraction(x)


def add(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    """a + b, NaN if either is."""
    return math.nan if isinstance(a, float) or isinstance(b, float) else a + b


def weighted_sum(weights: Sequence[Fraction | float], values: Sequence[float]) -> Fraction | float:
    """A4: Σ w·y, a step of weight 0 being left out whatever its value is."""
    total: Fraction | float = Fraction(0)
    for w, y in zip(weights, values, strict=True):
        if w != 0:
            is_nan = (isinstance(w, float) and math.isnan(w)) or math.isnan(y)
            total = add(total, math.nan if is_nan else Fraction(w) * Fraction(y))
    return total
