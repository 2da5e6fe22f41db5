"""Initial parameters, drawn in NumPy so that every backend starts from the same (spec M8)."""

import math
import zlib

import numpy as np

from ponder_ref import checks
from ponder_ref.models import parameter_shapes
from ponder_ref.settings import Model


def generator(seed: int, name: str) -> np.random.Generator:
    """Each parameter has a stream of its own, named by the seed and the parameter's name."""
    checks.check_count("seed", seed, 0, 2**64 - 1)
    return np.random.Generator(np.random.Philox(key=np.array([seed, zlib.crc32(name.encode())], np.uint64)))


def initial_parameters(
    model: Model, seed: int, *, input_scale: float | None = None, recurrent_scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Parameters by canonical name, float64.

    Weights are normal with standard deviation 1/√in, biases 0; `input_scale` replaces the deviation of the input
    weights, `recurrent_scale` multiplies that of the recurrent ones.
    """
    if input_scale is not None:
        checks.check_number("input_scale", input_scale, "(0, inf)")
    checks.check_number("recurrent_scale", recurrent_scale, "(0, inf)")
    params = {}
    for name, shape in parameter_shapes(model).items():
        if len(shape) == 1:
            params[name] = np.zeros(shape)
            continue
        deviation = 1 / math.sqrt(shape[0])
        if name == "rnn.w_x" and input_scale is not None:
            deviation = input_scale
        if name == "rnn.w_h":
            deviation *= recurrent_scale
        params[name] = generator(seed, name).standard_normal(shape) * deviation
    return params
