"""Networks of checkpoints that were written before they described their network: the one place that knows those.

Such a checkpoint has its task's settings. What they do not say of the network, the shapes of its parameters do.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ponder_ref import models
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting

Shapes = Mapping[str, tuple[int, ...]]


def rnn(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """The RNN of parity."""
    (inputs, hidden), outputs = shapes["rnn.w_x"], shapes["output.b"][0]
    output = "binary" if outputs == 1 else "classes"
    return {"kind": "rnn", "inputs": inputs, "hidden": hidden, "outputs": outputs, "output": output}


def block(shapes: Shapes, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What both Transformers have, of the block of that name."""
    embedding, attention = shapes[f"{name}.q"]
    return {
        "embedding": embedding,
        "attention": attention,
        "transition": shapes[f"{name}.out.w"][0],
        "layers": sum(key.startswith(f"{name}.hidden") and key.endswith(".w") for key in shapes),
        "outputs": shapes["output.b"][0],
        "heads": config.get("heads", 8),
        "dropout": config.get("dropout", 0.1),
    }


def transformer(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """The Transformer of bAbI."""
    return {
        "kind": "transformer",
        "vocabulary": shapes["embed.words"][0],
        "tokens": shapes["embed.mask"][0],
        "sentences": shapes["embed.positions"][0] - 1,
        "steps": shapes["embed.steps"][0],
        **block(shapes, "block", config),
    }


def pairs(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """The Transformer of paired associative inference."""
    return {
        "kind": "pairs",
        "width": shapes["embed.images"][0],
        "steps": shapes["encoder.steps"][0],
        "memory": config.get("memory", "none"),
        **block(shapes, "encoder", config),
    }


KNOWN_BY = {"rnn.w_x": rnn, "block.q": transformer, "encoder.q": pairs}  # a parameter that no other network has


def network_of(config: Mapping[str, Any], shapes: Shapes) -> Network:
    """The network of a task's settings and the shapes of its parameters; ValueError if it is none of ours."""
    known = {field.name for field in fields(Halting)}
    halting = Halting(**{name: value for name, value in config.items() if name in known})
    for name, settings in KNOWN_BY.items():
        if name in shapes:
            try:
                values = settings(shapes, config)
            except (LookupError, ValueError):
                raise ValueError(f"the parameters are not those of a network that has {name}") from None
            return Network(models.settings_of(values), halting)
    raise ValueError("the parameters are of no network that is known here")
