"""Inputs of the Transformer of paired associative inference and masks of its dropout (spec annex/tasks.md, "Pairs").

Inputs are a dict of arrays: "images" `[b, S, width]` floats, "rows" `[b, M, 2]`, M ≥ 2, and "query" `[b, 3]`
integers, the slots of images; in training with dropout also "dropout.encoder" `[steps, b, heads, M, ⌈keys/8⌉]` and
"dropout.decoder" `[steps, b, heads, 3, ⌈(M + 3)/8⌉]`, uint8. A chunk of K updates has K in front of every shape.
"""

from collections.abc import Mapping
from typing import Any

from ponder_ref import checks
from ponder_ref.models.pairs import TOKENS, PairTransformer


def check_inputs(model: PairTransformer, inputs: Any, steps: int) -> None:
    """Names, shapes and dtypes of one batch that is run for so many steps; ValueError otherwise."""
    needed = ("images", "rows", "query")
    if not isinstance(inputs, Mapping) or set(needed) - set(inputs):
        raise ValueError(f'inputs must be a dict with "images", "rows" and "query", got {type(inputs).__name__}')
    if unknown := set(inputs) - {*needed, "dropout.encoder", "dropout.decoder"}:
        raise ValueError(f"inputs must have images, rows, query and dropout alone, got {sorted(unknown)}")
    checks.check_floating("images", inputs["images"])
    images, rows, query = (tuple(inputs[name].shape) for name in needed)
    if len(images) != 3 or images[0] < 1 or images[2] != model.width:
        raise ValueError(f"images must have the shape [b, S, {model.width}], got {images}")
    for name, shape, wanted in (("rows", rows, (images[0], "M", 2)), ("query", query, (images[0], TOKENS))):
        checks.check_integer(name, inputs[name])
        fits = len(shape) == len(wanted) and all(b in (a, "M") for a, b in zip(shape, wanted, strict=True))
        if not fits or 0 in shape:
            raise ValueError(f"{name} must have the shape [{', '.join(map(str, wanted))}], got {shape}")
    if rows[1] < 2:
        raise ValueError(f"rows must have 2 pairs or more: no pair attends to itself, got {rows}")
    for name, (_, (*front, keys)) in model.mask_shapes(inputs).items():
        if name not in inputs:
            continue
        checks.check_array(name, inputs[name])
        if checks.dtype_name(inputs[name]) != "uint8":
            raise ValueError(f"{name} must have the dtype uint8, got {checks.dtype_name(inputs[name])}")
        wanted, found = (*front, -(-keys // 8)), tuple(inputs[name].shape)
        if found[1:] != wanted or found[0] < steps:
            raise ValueError(f"{name} must have the shape {(steps, *wanted)} with {steps} steps or more, got {found}")
