"""The Universal Transformer of the bAbI experiment (spec M9; paper app. C), one example at a time, without its padding.

An input is words `[..., L, tokens]`, integers: sentences, then the question in the last row; 0 is no word, a row of
zeros is padding and stands in front. What stands in the rows of padding of a result is 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ponder_ref.base import ActHalting, Pondered
from ponder_ref.models._attention import Attention
from ponder_ref.models._init import draw_parameters

SURE = 1e4  # a halting logit that leaves no doubt
NORM_EPS = 1e-6  # under the root of a layer norm: a constant row comes out as 0
# Deviations of the tables; the mask of places is 1 and as much again by chance (M9).
EMBEDDINGS = {"embed.words": 0.5, "embed.mask": 1.0, "embed.positions": 0.5, "embed.steps": 0.5}


@dataclass(frozen=True)
class Transformer(Attention):
    """The Universal Transformer of M9, by default at the sizes of the paper's bAbI experiment (app. C).

    Words are 1..vocabulary, 0 is padding; an input has at most `sentences` sentences and a question, of at most
    `tokens` words each. `attention` is the width of all heads together, `transition` that of each of the `layers`
    hidden layers. `steps` is the number of step signals.
    """

    kind: str = "transformer"
    vocabulary: int = 145
    outputs: int = 60
    tokens: int = 11
    sentences: int = 320
    embedding: int = 128
    attention: int = 512
    heads: int = 8
    transition: int = 128
    layers: int = 1
    steps: int = 10
    dropout: float = 0.1
    output: str = "classes"

    def __post_init__(self):
        self.check_sizes("transformer", "vocabulary", "tokens", "sentences", "embedding", "transition", "steps")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in canonical order."""
        d, attention, width = self.embedding, self.attention, self.transition
        shapes: dict[str, tuple[int, ...]] = {
            "embed.words": (self.vocabulary, d),
            "embed.mask": (self.tokens, d),
            "embed.positions": (self.sentences + 1, d),
            "embed.steps": (self.steps, d),
            "block.norm1.scale": (d,),
            "block.norm1.bias": (d,),
            "block.q": (d, attention),
            "block.k": (d, attention),
            "block.v": (d, attention),
            "block.o": (attention, d),
            "block.norm2.scale": (d,),
            "block.norm2.bias": (d,),
        }
        for layer in range(1, self.layers + 1):
            shapes[f"block.hidden{layer}.w"] = (d if layer == 1 else width, width)
            shapes[f"block.hidden{layer}.b"] = (width,)
        return shapes | {
            "block.out.w": (width, d),
            "block.out.b": (d,),
            "final.scale": (d,),
            "final.bias": (d,),
            "output.w": (d, self.outputs),
            "output.b": (self.outputs,),
            "halt.w": (d, 1),
            "halt.b": (1,),
        }

    def matrices(self) -> tuple[str, ...]:
        """The block's matrices, which Muon trains."""
        return tuple(name for name, shape in self.shapes().items() if name[:5] == "block" and len(shape) == 2)

    def initial_parameters(self, seed: int) -> dict[str, np.ndarray]:
        """Parameters by canonical name, float64; the tables have deviations of their own."""
        return draw_parameters(self.shapes(), seed, EMBEDDINGS)

    def mask_shapes(self, inputs: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Of every bucket."""
        counts = {length: len(inputs[f"words.{length}"]) for length in bucket_lengths(inputs)}
        shapes = {length: (count, self.heads, length, length) for length, count in counts.items()}
        return {f"dropout.{length}": ("attention.dropout", shape) for length, shape in shapes.items()}


SETTINGS = Transformer


def bucket_lengths(inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """The lengths of the buckets, shortest first."""
    return tuple(sorted(int(name.removeprefix("words.")) for name in inputs if name.startswith("words.")))


def count_layers(params) -> int:
    """The number of hidden layers of the transition."""
    return sum(name.startswith("block.hidden") and name.endswith(".w") for name in params)


def each_example(fn: Callable, words: np.ndarray) -> np.ndarray:
    """fn(index, real) of every example, its index in the batch and its real rows; `[..., L, d]`, 0 in the others."""
    indices = list(np.ndindex(words.shape[:-2]))
    real = [words[index].any(-1) for index in indices]
    rows = [fn(*place) for place in zip(indices, real, strict=True)]
    out = np.zeros((*words.shape[:-1], rows[0].shape[-1]), rows[0].dtype)
    for index, chosen, values in zip(indices, real, rows, strict=True):
        out[index][chosen] = values
    return out


def layer_norm(params, name: str, x: np.ndarray) -> np.ndarray:
    """(x − mean)/√(variance + ε)·scale + bias over the last axis."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPS) * params[f"{name}.scale"] + params[f"{name}.bias"]


def transformer_encode(params, words) -> np.ndarray:
    """h₀ `[..., L, embedding]`: Σₜ word ⊙ mask of its place, and the position counted back from the question."""
    words = np.asarray(words)
    table = np.concatenate([np.zeros_like(params["embed.words"][:1]), params["embed.words"]])

    def encode(index: tuple[int, ...], real: np.ndarray) -> np.ndarray:
        sentences = (table[words[index][real]] * params["embed.mask"][: words.shape[-1]]).sum(1)
        return sentences + params["embed.positions"][: len(sentences)][::-1]

    return each_example(encode, words)


def attend(q, k, v, kept, dropout: float) -> np.ndarray:
    """softmax(q·kᵀ/√e)·v of one head, `[L, e]`; `kept` `[L, L]` says which weights dropout leaves."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.real.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    if kept is not None:
        weights = np.where(kept, weights / (1 - dropout), 0)
    return weights @ v


def transformer_transition(params, words, h, step, *, heads, kept=None, dropout=0.0) -> np.ndarray:
    """hₙ `[..., L, embedding]` of hₙ₋₁ for n = `step`, counted from 1.

    x = h + signal of step n,  a = x + attention(norm(x)),  hₙ = a + transition(norm(a))

    Args:
      words: the input, `[..., L, tokens]`; it says which rows are padding.
      kept: `[..., heads, L, L]` booleans, the attention weights (query, key) that dropout leaves; None leaves all.
      dropout: the share that dropout takes.
    """
    signal = params["embed.steps"][min(step, len(params["embed.steps"])) - 1]

    def advance(index: tuple[int, ...], real: np.ndarray) -> np.ndarray:
        x = h[index][real] + signal
        u = layer_norm(params, "block.norm1", x)
        q, k, v = (np.split(u @ params[f"block.{name}"], heads, -1) for name in "qkv")
        masks = [None] * heads if kept is None else np.asarray(kept)[index][:, real][:, :, real]
        parts = [attend(*of_head, dropout) for of_head in zip(q, k, v, masks, strict=True)]
        a = x + np.concatenate(parts, -1) @ params["block.o"]
        f = layer_norm(params, "block.norm2", a)
        for layer in range(1, count_layers(params) + 1):
            f = f @ params[f"block.hidden{layer}.w"] + params[f"block.hidden{layer}.b"]
            f = np.where(f.real > 0, f, 0)
        return a + f @ params["block.out.w"] + params["block.out.b"]

    return each_example(advance, np.asarray(words))


def transformer_readout(params, h) -> tuple[np.ndarray, np.ndarray]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the question, the last row of h (M9)."""
    question = layer_norm(params, "final", h[..., -1, :])
    y_hat = question @ params["output.w"] + params["output.b"]
    return y_hat, (question @ params["halt.w"] + params["halt.b"])[..., 0]


class Step:
    """The Transformer as a step network: x is words `[b, L, tokens]`, or a dict of buckets without dropout.

    The state is {"h": `[b, L, embedding]`, "n": `[b]`}: every example has its own number of steps.
    """

    OWN_METHODS = ("ut-act",)

    def __init__(self, settings: Transformer, params):
        self.settings, self.params = settings, params

    def project(self, x) -> np.ndarray:
        """The words `[b, L, tokens]`; several buckets become one of the largest length, shortest first."""
        from ponder_ref.models._buckets import check_inputs  # which imports this module

        inputs = x if isinstance(x, dict) else {f"words.{np.shape(x)[1] if np.ndim(x) == 3 else 0}": np.asarray(x)}
        check_inputs(self.settings, inputs, 1)
        lengths = bucket_lengths(inputs)
        if len(inputs) > len(lengths):
            raise ValueError("inputs must have no dropout: the reference answers, it does not train")
        widths = [((0, 0), (lengths[-1] - length, 0), (0, 0)) for length in lengths]
        parts = [np.asarray(inputs[f"words.{length}"]) for length in lengths]
        return np.concatenate([np.pad(words, width) for words, width in zip(parts, widths, strict=True)])

    def initial_state(self, x) -> dict[str, np.ndarray]:
        return {"h": transformer_encode(self.params, x), "n": np.zeros(len(x), int)}

    def __call__(self, x, state) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        n, heads = state["n"] + 1, self.settings.heads
        rows = zip(x, state["h"], n, strict=True)
        h = np.stack([transformer_transition(self.params, words, h, int(k), heads=heads) for words, h, k in rows])
        y_hat, z = transformer_readout(self.params, h)
        return y_hat, {"h": h, "n": n}, z

    def unroll_by(self, method: str, x, *, max_steps: int, act_epsilon: float) -> Pondered:
        """What a PonderNet gives for "ut-act": one answer, the same at every n; Nᵢ is that of the row that halts last.

        `act.remainder` is the whole cost, `act.steps` is 0, and the other weights tell Nᵢ.
        """
        from ponder_ref.models._ut_act import ut_act

        given = {"heads": self.settings.heads, "max_steps": max_steps, "act_epsilon": act_epsilon}
        found = [ut_act(self.params, words[words.any(-1)], **given) for words in self.project(x)]
        lengths = np.array([one.steps.max() for one in found])
        at_end = np.arange(1, max_steps + 1)[:, None] == lengths
        y_hat = np.stack([one.y_hat for one in found])
        act = ActHalting(at_end.astype(y_hat.dtype), np.zeros_like(lengths), np.array([one.cost for one in found]))
        z = np.where(at_end, SURE, -SURE)
        return Pondered(np.broadcast_to(y_hat, (max_steps, *y_hat.shape)), z, None, lengths, None, act)
