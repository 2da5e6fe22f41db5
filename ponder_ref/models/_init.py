"""How initial parameters are drawn: in NumPy, so that every backend starts from the same (spec M8 to M10)."""

import math
import zlib
from collections.abc import Mapping

import numpy as np

from ponder_ref import checks


def generator(seed: int, name: str) -> np.random.Generator:
    """Each parameter has a stream of its own, named by the seed and the parameter's name."""
    checks.check_count("seed", seed, 0, 2**64 - 1)
    return np.random.Generator(np.random.Philox(key=np.array([seed, zlib.crc32(name.encode())], np.uint64)))


def draw_parameters(
    shapes: Mapping[str, tuple[int, ...]], seed: int, deviations: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Parameters by canonical name, float64.

    Weights are normal with standard deviation 1/√in, or that of `deviations`; biases are 0, scales of a norm and masks
    are 1, and as much besides as `deviations` say.
    """
    params = {}
    for name, shape in shapes.items():
        usual = 0.0 if len(shape) == 1 else 1 / math.sqrt(shape[0])
        deviation = deviations.get(name, usual)
        params[name] = np.full(shape, 1.0 if name == "embed.mask" or name.endswith(".scale") else 0.0)
        if deviation > 0:
            params[name] += generator(seed, name).standard_normal(shape) * deviation
    return params
