"""Where arguments come from: Hypothesis (small, shrinking) or a seeded generator (many at once).

Each maker is written once against a `Source`; a source says how numbers are drawn, a maker what the arguments mean.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import ponder_ref
from ponder_ref.conformance.oracle import expected

CORNERS = (0.0, -0.0, 17.0, -17.0, 20.0, -20.0, 40.0, -40.0, 89.0, -89.0, 1e4, -1e4)
BIT = st.booleans()
# Few shapes, because compilers start anew for each: steps and batch.
SHAPES = ((1, (3,)), (3, (2, 2)), (6, (3,)))


class Seeded:
    """Numbers from a seeded generator, in a shape of one's choice: corners of the logits mixed into normal ones.

    An *option* is a choice that decides which code runs: the shape, the remainder rule, lengths, weights, the kind of
    prior.
    """

    corner_shares = (0.0, 0.0, 0.2)

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
        corner = self.rng.random(shape) < self.rng.choice(self.corner_shares)
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

    def option(self, name: str, *options) -> Any:
        """One of the values of an option."""
        return self.choose(*options)

    def shares(self, batch: tuple[int, ...]) -> np.ndarray:
        """Weights 0, 1 and 2 of a batch, at least one of them positive."""
        weights = self.integers(0, 2, batch)
        weights.flat[self.count(0, max(weights.size - 1, 0))] = 1
        return weights

    def number(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def count(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, min(high, 2**62), endpoint=True))


class Chosen(Seeded):
    """A seeded source for one set of options, the shape among them: those of `fixed`, else the first of each.

    Whatever is drawn, a batch has an example that is cut and one that is not, and weights that differ: an option that
    is used has an effect.
    """

    def __init__(
        self,
        rng,
        fixed: dict[str, Any],
        without: tuple[str, ...] = (),
        exact: bool = False,
        shapes: tuple[tuple[int, tuple[int, ...]], ...] = SHAPES,
    ):
        super().__init__(rng, *shapes[-1], without, exact)
        self.fixed, self.shapes = fixed, shapes
        self.chosen: dict[str, tuple[Any, tuple]] = {}  # in the order asked: the value, and the values after it

    def option(self, name: str, *options) -> Any:
        index = options.index(self.fixed[name]) if self.fixed.get(name, None) in options else 0
        self.chosen.setdefault(name, (options[index], options[index + 1 :]))
        return options[index]

    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.option("shape", *self.shapes)

    def integers(self, low: int, high: int, shape) -> np.ndarray:
        drawn = super().integers(low, high, shape)
        if low == 1 and np.size(drawn) > 1:  # lengths and steps
            drawn.flat[0], drawn.flat[-1] = (1 + high) // 2, high
        return drawn

    def shares(self, batch: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(batch))
        some = np.roll(np.resize([1, 0, 2], max(size, 2))[:size], self.rng.integers(max(size, 1)))
        return some.reshape(batch)


def every_option(make: Callable[[dict[str, Any]], Chosen], body: Callable[[Any], None]) -> None:
    """body(source) once for each set of options that it asks for, the last asked changing first."""
    fixed: dict[str, Any] | None = {}
    while fixed is not None:
        source = make(fixed)
        body(source)
        path = list(source.chosen.items())
        while path and not path[-1][1][1]:
            path.pop()
        fixed = {name: value for name, (value, _) in path[:-1]} | {path[-1][0]: path[-1][1][1][0]} if path else None


class Enumerated(Seeded):
    """As Seeded, but choices are counted through: among the numbers 0 to 3 is every pair of options."""

    def __init__(self, trial: Any, steps: int, batch: tuple[int, ...], which: int, rng=None):
        rng = rng or trial.rng()
        super().__init__(rng, steps, batch, trial.subject.not_offered, exact=trial.dtype == "float64")
        self.which, self.asked = which, 0

    def choose(self, *options):
        if options != (True, False):
            return options[5 * self.which % len(options)]  # 5: odd, so that both of two come up
        self.asked += 1
        return self.which < 2 if self.asked % 2 else self.which % 2 == 1


class Drawn(Seeded):
    """Numbers from Hypothesis, which draws bits alone: the seed of a generator, and which entries are kept.

    An entry that is not kept is a plain number. Hypothesis shrinks bits to 0, so that what is left of a failing input
    is what it takes to fail. It mixes constants of the modules that happen to be loaded into the integers and floats
    it draws, but not into booleans: the same seed gives the same inputs in every program.
    """

    corner_shares = (0.0, 0.3, 0.6)

    def __init__(self, draw: Callable[[Any], Any], without: tuple[str, ...] = ()):
        self.draw = draw
        super().__init__(np.random.default_rng(self.bits(16)), 0, (), without)
        self.grid = 2.0 ** self.choose(0, 2, 6, 23)  # coarse numbers are short to read

    def bits(self, count: int) -> int:
        number = 0
        for _ in range(count):
            number = 2 * number + self.draw(BIT)
        return number

    def choose(self, *options) -> Any:
        options = (False, True) if options == (True, False) else options  # the plain one first: shrinking ends there
        return options[self.bits((len(options) - 1).bit_length()) % len(options)]

    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.option("shape", *SHAPES)

    def _thin(self, array: np.ndarray, plain: float) -> np.ndarray:
        """Three entries of four, the others plain."""
        kept = np.array([self.bits(2) > 0 for _ in range(array.size)], bool).reshape(array.shape)
        return np.where(kept, array, plain)

    def _coarse(self, array: np.ndarray) -> np.ndarray:
        return np.round(array * self.grid) / self.grid

    def logits(self, shape) -> np.ndarray:
        return self._thin(self.round(self._coarse(super().logits(shape))), 0.0)

    def values(self, shape) -> np.ndarray:
        extreme = self.rng.random(shape) < 0.2
        values = np.where(extreme, self.rng.choice([0.0, 1.0, 512.0, -512.0], size=shape), super().values(shape))
        return self._thin(self.round(self._coarse(values)), 1.0)

    def lambdas(self, shape) -> np.ndarray:
        return self._thin(self.round(self._coarse(super().lambdas(shape) * 4) / 4), 0.5)

    def inside(self, shape) -> np.ndarray:
        cells = 4 * self.grid  # the middle of a cell is never 0 or 1
        return self._thin(self.round((np.floor(super().inside(shape) * cells) + 0.5) / cells), 0.5)

    def integers(self, low: int, high: int, shape) -> np.ndarray:
        return self._thin(super().integers(low, high, shape), 0 if low < 0 else high)

    def count(self, low: int, high: int) -> int:
        if high - low < 64:
            return low + self.bits((high - low).bit_length()) % (high - low + 1)
        return self.choose(low, high, super().count(low, high), super().count(low, high))

    def number(self, low: float, high: float) -> float:
        return self.choose(high, (low + high) / 2, super().number(low, high), super().number(low, high))


def sources(without: tuple[str, ...]):
    """A strategy of sources; `without` are the requirements a backend does not offer, whose options are not drawn."""
    return st.composite(lambda draw: Drawn(draw, without))()


def some_remainder(source) -> str:
    """A remainder rule that the backend offers."""
    rules = [rule for rule, requirement in (("last", "H2"), ("normalize", "H3")) if requirement not in source.without]
    return source.option("remainder", *(rules or ["last"]))


def prior_remainder(source) -> str:
    """A remainder rule of the geometric prior that the backend offers."""
    return source.option("prior remainder", *(("normalize",) if "P2" in source.without else ("normalize", "last")))


def maybe(source, requirement: str) -> bool:
    """Whether to use an option: sometimes, and never if the backend does not offer its requirement."""
    return requirement not in source.without and source.option(requirement, True, False)


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
    """Some log p, cut or not: -inf may be given also to a backend that does not cut by itself."""
    arrays = {"halt_logits": source.logits((steps, *batch))}
    if source.option("H4", True, False):
        arrays["lengths"] = source.integers(1, steps, batch)
    return source.round(expected("log_halting", arrays, {"remainder": some_remainder(source)})["result"])


def log_prior(source, steps: int, batch: tuple[int, ...]) -> np.ndarray:
    if source.option("prior", "shared", "own") == "own":
        raw = source.values((steps, *batch)) * source.choose(1.0, 300.0)
        raw = raw - raw.max(axis=0)
        return source.round(raw - np.log(np.exp(raw).sum(axis=0)))
    kind = source.choose("uniform", "geometric", "last", "poisson", "certain")
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
    weights = source.shares(batch)
    if source.option("mask", True, False):
        return weights > 0
    return source.round(weights * source.choose(0.1, 2**-12, 24.0))
