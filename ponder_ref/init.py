"""Initial parameters, drawn in NumPy so that every backend starts from the same (spec M8 to M10)."""

import math
import zlib

import numpy as np

from ponder_ref import checks
from ponder_ref.models import parameter_shapes
from ponder_ref.pairs import BLOCKS
from ponder_ref.settings import AnyModel, Model, PairTransformer

# Deviations of the Transformer's tables; the mask of places is 1 and as much again by chance (M9).
EMBEDDINGS = {"embed.words": 0.5, "embed.mask": 1.0, "embed.positions": 0.5, "embed.steps": 0.5}

# Those of M10: attention begins as a look-up by likeness, with nothing else in its way.
PAIRS = {"embed.images": 1.0, "embed.mask": 0.7, "embed.roles": 0.2, "embed.sides": 1.0}
PAIRS |= {f"{name}.steps": 0.02 for name in BLOCKS} | {f"{name}.out.w": 0.0 for name in BLOCKS} | {"halt.w": 0.0}
SHARPNESS = 1.5  # of that look-up: the deviation of queries and keys is this over √embedding
SHARE = 0.5  # of what is found that is added to a token, about


def generator(seed: int, name: str) -> np.random.Generator:
    """Each parameter has a stream of its own, named by the seed and the parameter's name."""
    checks.check_count("seed", seed, 0, 2**64 - 1)
    return np.random.Generator(np.random.Philox(key=np.array([seed, zlib.crc32(name.encode())], np.uint64)))


def connections(seed: int, inputs: int, hidden: int, rounds: int) -> np.ndarray:
    """Which input reaches which unit, `[inputs, hidden]` of 0 and 1: in each round every unit is given one input.

    Inputs are dealt out like cards: each is given once before any is given again.
    """
    cards = generator(seed, "rnn.w_x.connections")
    mask = np.zeros((inputs, hidden))
    for _ in range(rounds):
        dealt = np.concatenate([cards.permutation(inputs) for _ in range(-(-hidden // inputs))])[:hidden]
        mask[dealt, np.arange(hidden)] = 1
    return mask


def initial_parameters(
    model: AnyModel,
    seed: int,
    *,
    input_scale: float | None = None,
    input_connections: int | None = None,
    recurrent_scale: float = 1.0,
    bias_scale: float = 0.0,
    tied_output: bool = False,
) -> dict[str, np.ndarray]:
    """Parameters by canonical name, float64.

    Weights are normal with standard deviation 1/√in, biases 0, scales of a norm 1; the tables of the Transformers have
    deviations of their own, and the blocks of M10 look up by likeness. For the RNN `input_scale` replaces the deviation
    of the input weights, of which all but `input_connections` a unit are 0; `recurrent_scale` multiplies the deviation
    of the recurrent weights, and `bias_scale` is that of the units' biases. For M10 with `tied_output`, where number j
    of an image is a score of class j, the answer begins as what the embedding leaves of these scores.
    """
    if tied_output and (not isinstance(model, PairTransformer) or model.outputs != model.width):
        raise ValueError(
            f"tied_output must be False but for pairs with an output for each number of an image, got {model}"
        )
    if input_scale is not None:
        checks.check_number("input_scale", input_scale, "(0, inf)")
    if input_connections is not None:
        checks.check_count("input_connections", input_connections, 1)
    checks.check_number("recurrent_scale", recurrent_scale, "(0, inf)")
    checks.check_number("bias_scale", bias_scale, "[0, inf)")
    shapes = parameter_shapes(model)
    own = PAIRS if isinstance(model, PairTransformer) else EMBEDDINGS
    deviations = {
        name: 0.0 if len(shape) == 1 else own.get(name, 1 / math.sqrt(shape[0])) for name, shape in shapes.items()
    }
    if isinstance(model, Model):
        deviations["rnn.w_x"] = input_scale or deviations["rnn.w_x"]
        deviations["rnn.w_h"] *= recurrent_scale
        deviations["rnn.b"] = bias_scale
    params = {}
    for name, shape in shapes.items():
        params[name] = np.full(shape, 1.0 if name == "embed.mask" or name.endswith(".scale") else 0.0)
        if deviations[name] > 0:
            params[name] += generator(seed, name).standard_normal(shape) * deviations[name]
    if isinstance(model, Model) and input_connections is not None:
        params["rnn.w_x"] *= connections(seed, model.inputs, model.hidden, input_connections)
    if isinstance(model, PairTransformer):
        for name in BLOCKS:
            params[f"{name}.q"] *= SHARPNESS
            params[f"{name}.k"] = params[f"{name}.q"].copy()
            back = SHARE * model.embedding / model.attention
            params[f"{name}.o"] = np.ascontiguousarray(params[f"{name}.v"].T) * back
        if tied_output:
            scores = params["embed.images"].T / math.sqrt(model.embedding)
            params["output.w"] = np.concatenate([np.zeros_like(scores), scores])
    return params
