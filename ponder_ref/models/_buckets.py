"""The Transformer's inputs: examples by length, so that little is computed on padding (spec annex/tasks.md, "Buckets").

Inputs are a dict of arrays. For each length L of a bucket, "words.L" has `[b, L, tokens]` integers: sentences, then the
question in the last row, rows of zeros in front of shorter inputs. "dropout.L" has the bits of the attention weights
that dropout leaves, `[steps, b, heads, L, ⌈L/8⌉]` uint8. Examples count through the buckets, shortest first: targets,
weights and ids are in this order. A chunk of K updates has K in front of every shape.
"""

from collections.abc import Mapping
from typing import Any

from ponder_ref import checks
from ponder_ref.models.transformer import Transformer, bucket_lengths


def check_inputs(model: Transformer, inputs: Any, steps: int) -> None:
    """Names, shapes and dtypes of one batch that is run for so many steps; ValueError otherwise."""
    if not isinstance(inputs, Mapping) or not bucket_lengths(inputs):
        raise ValueError(f'inputs must be a dict with "words.L" for each length, got {type(inputs).__name__}')
    lengths = bucket_lengths(inputs)
    known = {f"{kind}.{length}" for kind in ("words", "dropout") for length in lengths}
    if set(inputs) - known:
        raise ValueError(
            f"inputs must have words and dropout of their buckets alone, got {sorted(set(inputs) - known)}"
        )
    for length in lengths:
        name, bits = f"words.{length}", inputs.get(f"dropout.{length}")
        checks.check_integer(name, inputs[name])
        shape = tuple(inputs[name].shape)
        if len(shape) != 3 or shape[0] < 1 or shape[1:] != (length, model.tokens):
            raise ValueError(f"{name} must have the shape [b, {length}, {model.tokens}], got {shape}")
        if length > model.sentences + 1:
            raise ValueError(f"{name} must have at most the {model.sentences + 1} rows of the model, got {length}")
        if bits is not None:
            wanted, found = (shape[0], model.heads, length, -(-length // 8)), tuple(bits.shape)
            if found[1:] != wanted or found[0] < steps:
                raise ValueError(
                    f"dropout.{length} must have the shape {(steps, *wanted)} with {steps} steps or more, got {found}"
                )
