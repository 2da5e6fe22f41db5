"""The Transformer of paired associative inference (spec M10; paper app. D): an encoder of the memory, a decoder of the
query.

A batch is images `[..., S, width]`; rows `[..., M, 2]`, which images stand in each pair of the memory; query
`[..., 3]`, those of cue, left and right.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ponder_ref import checks
from ponder_ref.models._attention import Attention
from ponder_ref.models._init import draw_parameters
from ponder_ref.models.transformer import layer_norm

BLOCKS = ("encoder", "decoder")
TOKENS = 3  # of a query: cue, left, right
# Deviations at the start: attention begins as a look-up by likeness, with nothing else in its way.
DEVIATIONS = {"embed.images": 1.0, "embed.mask": 0.7, "embed.roles": 0.2, "embed.sides": 1.0}
DEVIATIONS |= {f"{name}.steps": 0.02 for name in BLOCKS} | {f"{name}.out.w": 0.0 for name in BLOCKS} | {"halt.w": 0.0}
SHARPNESS = 1.5  # of that look-up: the deviation of queries and keys is this over √embedding
SHARE = 0.5  # of what is found that is added to a token, about


@dataclass(frozen=True)
class PairTransformer(Attention):
    """The Transformer of M10, by default at the sizes of the paper's experiment on associative inference (app. D).

    Images have `width` numbers. `attention` is the width of all heads together, `transition` that of each of the
    `layers` hidden layers, `steps` the number of step signals. With memory "xl" the encoder also sees the states of
    the step before.
    """

    kind: str = "pairs"
    width: int = 1000
    outputs: int = 2
    embedding: int = 256
    attention: int = 512
    heads: int = 8
    transition: int = 128
    layers: int = 2
    steps: int = 10
    dropout: float = 0.1
    memory: str = "none"
    output: str = "classes"

    def __post_init__(self):
        self.check_sizes("pairs", "width", "embedding", "transition", "steps")
        checks.check_choice("memory", self.memory, ("none", "xl"))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in canonical order."""
        d, attention, width = self.embedding, self.attention, self.transition
        shapes: dict[str, tuple[int, ...]] = {
            "embed.images": (self.width, d),
            "embed.norm.scale": (d,),
            "embed.norm.bias": (d,),
            "embed.mask": (2, d),
            "embed.roles": (TOKENS, d),
            "embed.sides": (2, d),
        }
        for name in BLOCKS:
            shapes[f"{name}.steps"] = (self.steps, d)
            if name == "decoder":
                shapes |= {"decoder.memory.scale": (d,), "decoder.memory.bias": (d,)}
            shapes |= {f"{name}.norm1.scale": (d,), f"{name}.norm1.bias": (d,)}
            shapes |= {f"{name}.{part}": (d, attention) for part in "qkv"}
            shapes |= {f"{name}.o": (attention, d), f"{name}.norm2.scale": (d,), f"{name}.norm2.bias": (d,)}
            for layer in range(1, self.layers + 1):
                shapes[f"{name}.hidden{layer}.w"] = (d if layer == 1 else width, width)
                shapes[f"{name}.hidden{layer}.b"] = (width,)
            shapes |= {f"{name}.out.w": (width, d), f"{name}.out.b": (d,)}
        return shapes | {
            "final.scale": (d,),
            "final.bias": (d,),
            "output.w": (2 * d, self.outputs),
            "output.b": (self.outputs,),
            "halt.w": (2 * d, 1),
            "halt.b": (1,),
        }

    def matrices(self) -> tuple[str, ...]:
        """The matrices of both blocks, which Muon trains."""
        shapes = self.shapes().items()
        return tuple(k for k, v in shapes if k.startswith(BLOCKS) and len(v) == 2 and not k.endswith(".steps"))

    def initial_parameters(self, seed: int, *, tied_output: bool = False) -> dict[str, np.ndarray]:
        """Parameters by canonical name, float64; the blocks look up by likeness.

        With `tied_output`, where number j of an image is a score of class j, the answer begins as what the embedding
        leaves of these scores.
        """
        if tied_output and self.outputs != self.width:
            raise ValueError(f"tied_output must be False but with an output for each number of an image, got {self}")
        params = draw_parameters(self.shapes(), seed, DEVIATIONS)
        for name in BLOCKS:
            params[f"{name}.q"] *= SHARPNESS
            params[f"{name}.k"] = params[f"{name}.q"].copy()
            back = SHARE * self.embedding / self.attention
            params[f"{name}.o"] = np.ascontiguousarray(params[f"{name}.v"].T) * back
        if tied_output:
            scores = params["embed.images"].T / math.sqrt(self.embedding)
            params["output.w"] = np.concatenate([np.zeros_like(scores), scores])
        return params

    def mask_shapes(self, inputs: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Of the encoder and of the decoder."""
        examples, rows = inputs["rows"].shape[:2]
        own = {"encoder": (rows, rows * (2 if self.memory == "xl" else 1)), "decoder": (TOKENS, rows + TOKENS)}
        shapes = {f"dropout.{name}": (examples, self.heads, *shape) for name, shape in own.items()}
        return {name: (f"attention.{name}", shape) for name, shape in shapes.items()}


SETTINGS = PairTransformer


def count_layers(params, name: str) -> int:
    """The number of hidden layers of a block's transition."""
    return sum(key.startswith(f"{name}.hidden") and key.endswith(".w") for key in params)


def stage_ends(steps: int) -> tuple[int, ...]:
    """The last steps of the stages in which a backend may run its steps where examples leave early.

    Few stages decode many steps together; with ends that double, at most twice as many steps are run as are needed.

    >>> stage_ends(7), stage_ends(1)
    ((2, 4, 7), (1,))
    """
    ends = [2]
    while ends[-1] < steps:
        ends.append(2 * ends[-1])
    return (*ends[:-1], steps)


def embed(params, images, slots) -> np.ndarray:
    """The embeddings norm(x·W) of the images at these slots, `[..., n, embedding]`; slots `[..., n]`."""
    embedded = layer_norm(params, "embed.norm", np.asarray(images) @ params["embed.images"])
    return np.take_along_axis(embedded, np.asarray(slots, np.int64)[..., None], axis=-2)


def pairs_encode(params, images, rows) -> np.ndarray:
    """h₀ `[..., M, embedding]`: of each pair the first image ⊙ mask 0 + the second ⊙ mask 1."""
    rows = np.asarray(rows)
    first, second = (embed(params, images, rows[..., place]) * params["embed.mask"][place] for place in (0, 1))
    return first + second


def pairs_query(params, images, query) -> np.ndarray:
    """The query's tokens `[..., 3, embedding]`: cue, left and right, each with the signal of its role."""
    return embed(params, images, query) + params["embed.roles"]


def block(params, name: str, x, extra, *, heads: int, kept=None, dropout: float = 0.0) -> np.ndarray:
    """Attention and transition of tokens x `[..., Q, embedding]`, to which the signal of the step has been added.

    Keys and values are those of the tokens `extra` `[..., E, embedding]`, already normed, then of norm1(x); no token of
    x attends to itself. kept: `[..., heads, Q, E + Q]`, the attention weights that dropout leaves.
    """
    u = layer_norm(params, f"{name}.norm1", x)
    tokens = u if extra is None else np.concatenate([extra, u], axis=-2)
    q, k, v = (split_heads(y @ params[f"{name}.{part}"], heads) for y, part in ((u, "q"), (tokens, "k"), (tokens, "v")))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    own = np.eye(x.shape[-2], scores.shape[-1], scores.shape[-1] - x.shape[-2], dtype=bool)
    scores = np.where(own, -np.inf, scores)
    weights = softmax(scores)
    if kept is not None:
        weights = np.where(kept, weights / (1 - dropout), 0)
    a = x + np.swapaxes(weights @ v, -2, -3).reshape(*x.shape[:-1], -1) @ params[f"{name}.o"]
    f = layer_norm(params, f"{name}.norm2", a)
    for layer in range(1, count_layers(params, name) + 1):
        f = f @ params[f"{name}.hidden{layer}.w"] + params[f"{name}.hidden{layer}.b"]
        f = np.where(f.real > 0, f, 0)
    return a + f @ params[f"{name}.out.w"] + params[f"{name}.out.b"]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(scores - np.real(scores).max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """`[..., n, width]` as `[..., heads, n, width/heads]`."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def signal(params, name: str, step: int) -> np.ndarray:
    """The signal of a step of encoder or decoder; beyond the last one it is the last."""
    table = params[f"{name}.steps"]
    return table[min(step, len(table)) - 1]


def pairs_transition(params, h, step, *, heads, earlier=None, kept=None, dropout=0.0) -> np.ndarray:
    """hₙ `[..., M, embedding]` of hₙ₋₁ for n = `step`, counted from 1.

    Args:
      earlier: hₙ₋₂, more keys and values for the attention ("xl"), through which no gradient flows; None is none.
      kept: `[..., heads, M, M]` booleans (`[..., heads, M, 2·M]` with `earlier`, whose rows come first), the attention
        weights that dropout leaves; None leaves all.
      dropout: the share that dropout takes.
    """
    added = signal(params, "encoder", step)
    extra = None if earlier is None else layer_norm(params, "encoder.norm1", np.real(earlier) + added)
    return block(params, "encoder", h + added, extra, heads=heads, kept=kept, dropout=dropout)


def pairs_decode(params, h, tokens, step, *, heads, kept=None, dropout=0.0) -> np.ndarray:
    """The query's tokens `[..., 3, embedding]` after n = `step` applications of the decoder to hₙ.

    Args:
      h: hₙ, `[..., M, embedding]`.
      kept: `[..., heads, 3, M + 3]` booleans, the attention weights that dropout leaves in all n applications.
    """
    memory = layer_norm(params, "decoder.memory", h)
    for k in range(1, step + 1):
        x = tokens + signal(params, "decoder", k)
        tokens = block(params, "decoder", x, memory, heads=heads, kept=kept, dropout=dropout)
    return tokens


def pairs_readout(params, tokens) -> tuple[np.ndarray, np.ndarray]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the query's tokens `[..., 3, embedding]` (M10).

    The cue points at left or right, as much as it is like them, and is read beside what it points at.
    """
    u = layer_norm(params, "final", tokens)
    cue, sides = u[..., 0, :], u[..., 1:, :]
    weights = softmax((sides * cue[..., None, :]).sum(-1) / np.sqrt(cue.shape[-1]))
    pointed = (weights[..., None] * (sides + params["embed.sides"])).sum(-2)
    both = np.concatenate([cue, pointed], axis=-1)
    return both @ params["output.w"] + params["output.b"], (both @ params["halt.w"] + params["halt.b"])[..., 0]


class Step:
    """The Transformer of pairs as a step network: x is the dict of images, rows and query of a batch, without dropout.

    The state is {"h": `[b, M, embedding]`, "n": `[b]`, "earlier": h one step before}.
    """

    def __init__(self, settings: PairTransformer, params):
        self.settings, self.params = settings, params

    def project(self, x) -> dict[str, np.ndarray]:
        """h₀ and the query's tokens of each example."""
        from ponder_ref.models._pair_inputs import check_inputs

        check_inputs(self.settings, x, 1)
        if any(name.startswith("dropout.") for name in x):
            raise ValueError("inputs must have no dropout: the reference answers, it does not train")
        h = pairs_encode(self.params, x["images"], x["rows"])
        return {"h": h, "tokens": pairs_query(self.params, x["images"], x["query"])}

    def initial_state(self, x) -> dict[str, np.ndarray]:
        return {"h": x["h"], "n": np.zeros(len(x["h"]), int), "earlier": np.zeros_like(x["h"])}

    def __call__(self, x, state) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        n, h, heads = state["n"] + 1, state["h"], self.settings.heads
        new, decoded = [], []
        for i, k in enumerate(map(int, n)):
            earlier = state["earlier"][i] if self.settings.memory == "xl" and k > 1 else None
            new.append(pairs_transition(self.params, h[i], k, heads=heads, earlier=earlier))
            decoded.append(pairs_decode(self.params, new[-1], x["tokens"][i], k, heads=heads))
        y_hat, z = pairs_readout(self.params, np.stack(decoded))
        return y_hat, {"h": np.stack(new), "n": n, "earlier": h}, z
