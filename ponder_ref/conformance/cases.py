"""Where arguments come from: Hypothesis (small, shrinking) or a seeded generator (many at once).

Each maker is written once against a `Source`; a source says how numbers are drawn, a maker what the arguments mean.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ponder_ref
from ponder_ref.conformance.oracle import expected

CORNERS = (0.0, -0.0, 17.0, -17.0, 20.0, -20.0, 40.0, -40.0, 89.0, -89.0, 1e4, -1e4)
# Few shapes, because compilers start anew for each: steps and batch.
SHAPES = ((1, (3,)), (3, (2, 2)), (6, (3,)))


class Drawn:
    """Numbers from Hypothesis."""

    def __init__(self, draw, without: tuple[str, ...] = ()):
        self.draw, self.without = draw, without

    def round(self, x: np.ndarray) -> np.ndarray:
        """What is derived from drawn numbers is rounded as they are, so that float32 holds it."""
        return x.astype(np.float32).astype(np.float64)

    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.draw(st.sampled_from(SHAPES))

    def _array(self, shape, elements) -> np.ndarray:
        return self.draw(hnp.arrays(np.float32, shape, elements=elements, fill=st.nothing())).astype(np.float64)

    def floats(self, low: float, high: float):
        return st.floats(low, high, width=32, allow_subnormal=False)

    def logits(self, shape) -> np.ndarray:
        return self._array(shape, st.one_of(self.floats(-8, 8), self.floats(-32, 32), st.sampled_from(CORNERS)))

    def values(self, shape) -> np.ndarray:
        return self._array(shape, st.one_of(self.floats(-8, 8), st.sampled_from((0.0, 1.0, 512.0, -512.0))))

    def lambdas(self, shape) -> np.ndarray:
        return self._array(shape, st.one_of(self.floats(0, 1), st.sampled_from((0.0, 1.0, 0.5))))

    def inside(self, shape) -> np.ndarray:
        return self._array(shape, self.floats(0.015625, 0.984375))

    def integers(self, low: int, high: int, shape) -> np.ndarray:
        return self.draw(hnp.arrays(np.int64, shape, elements=st.integers(low, high), fill=st.nothing()))

    def choose(self, *options) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: float, high: float) -> float:
        return self.draw(st.floats(low, high, allow_subnormal=False))

    def count(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


class Seeded:
    """Numbers from a seeded generator, in a shape of one's choice: corners of the logits mixed into normal ones."""

    def __init__(
        self,
        rng: np.random.Generator,
        steps: int,
        batch: tuple[int, ...],
        without: tuple[str, ...] = (),
        exact: bool = False,
    ):
        self.rng, self.steps, self.batch, self.without, self.exact = rng, steps, batch, without, exact

    def round(self, x: np.ndarray) -> np.ndarray:
        """To float32, unless float64 is on trial: then all its digits are used, and a narrower backend shows."""
        return x if self.exact else x.astype(np.float32).astype(np.float64)

    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.steps, self.batch

    def logits(self, shape) -> np.ndarray:
        scale = self.rng.choice([0.5, 2.0, 6.0], size=(1, *shape[1:])) if len(shape) > 1 else 2.0
        shift = self.rng.choice([-6.0, -2.0, 0.0], size=(1, *shape[1:])) if len(shape) > 1 else -2.0
        z = self.rng.normal(size=shape) * scale + shift
        corner = self.rng.random(shape) < self.rng.choice([0.0, 0.0, 0.2])
        return self.round(np.where(corner, self.rng.choice(CORNERS, size=shape), z))

    def values(self, shape) -> np.ndarray:
        return self.round(self.rng.normal(size=shape) * 3)

    def lambdas(self, shape) -> np.ndarray:
        lam = self.rng.random(shape) ** self.rng.choice([1, 3])
        return self.round(np.where(self.rng.random(shape) < 0.05, self.rng.integers(0, 2, shape), lam))

    def inside(self, shape) -> np.ndarray:
        return self.round(self.rng.uniform(0.01, 0.99, shape))

    def integers(self, low: int, high: int, shape) -> np.ndarray:
        return self.rng.integers(low, high, shape, endpoint=True)

    def choose(self, *options) -> Any:
        return options[self.rng.integers(len(options))]

    def number(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def count(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, min(high, 2**62), endpoint=True))


def sources(without: tuple[str, ...]):
    """A strategy of sources; `without` are the requirements a backend does not offer, whose options are not drawn."""
    return st.composite(lambda draw: Drawn(draw, without))()


def some_remainder(source) -> str:
    """A remainder rule that the backend offers."""
    rules = [rule for rule, requirement in (("last", "H2"), ("normalize", "H3")) if requirement not in source.without]
    return source.choose(*(rules or ["last"]))


def maybe(source, requirement: str) -> bool:
    """Whether to use an option: sometimes, and never if the backend does not offer its requirement."""
    return requirement not in source.without and source.choose(True, False)


def beyond(array: np.ndarray, lengths: np.ndarray, value: float) -> np.ndarray:
    """The array with `value` after each example's own length: what must have no influence."""
    n = np.arange(1, len(array) + 1).reshape(-1, *[1] * lengths.ndim)
    mask = (n > lengths).reshape(*array.shape[: 1 + lengths.ndim], *[1] * (array.ndim - 1 - lengths.ndim))
    return np.where(mask, value, array)


def halting_arguments(source, name: str, array: np.ndarray) -> tuple[dict, dict]:
    arrays = {name: array}
    if maybe(source, "H4"):
        lengths = source.integers(1, len(array), array.shape[1:])
        arrays = {name: beyond(array, lengths, source.choose(np.nan, np.inf, 1.0)), "lengths": lengths}
    return arrays, {"remainder": some_remainder(source)}


def log_distribution(source, steps: int, batch: tuple[int, ...]) -> np.ndarray:
    """Some log p, cut or not, as a backend would be given it."""
    arrays, arguments = halting_arguments(source, "halt_logits", source.logits((steps, *batch)))
    return source.round(expected("log_halting", arrays, arguments)["result"])


def log_prior(source, steps: int, batch: tuple[int, ...]) -> np.ndarray:
    kind = source.choose("geometric", "last", "uniform", "poisson", "own", "own", "certain")
    if kind == "own":
        raw = source.values((steps, *batch)) * source.choose(1.0, 300.0)
        raw = raw - raw.max(axis=0)
        return source.round(raw - np.log(np.exp(raw).sum(axis=0)))
    if kind == "uniform":
        return source.round(ponder_ref.uniform_log_prior(steps, dtype="float64"))
    if kind == "poisson":
        return source.round(ponder_ref.poisson_log_prior(source.number(0.1, 9.0), steps, dtype="float64"))
    lambda_p = 1.0 if kind == "certain" else source.number(0.01, 0.95)
    remainder = "last" if kind == "last" else "normalize"
    return source.round(ponder_ref.geometric_log_prior(lambda_p, steps, remainder=remainder, dtype="float64"))


def batch_weights(source, batch: tuple[int, ...]) -> np.ndarray | None:
    """None, a mask, or weights; at least one is positive."""
    if not maybe(source, "L3"):
        return None
    weights = source.integers(0, 2, batch)
    weights.flat[source.count(0, max(weights.size - 1, 0))] = 1
    return weights > 0 if source.choose(True, False) else source.round(weights * source.choose(0.1, 2**-12, 24.0))
