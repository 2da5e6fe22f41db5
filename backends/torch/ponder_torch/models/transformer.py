"""The Universal Transformer of the bAbI experiment (spec M9; paper app. C), its steps at the speed of products.

The tokens of all buckets stand in one matrix `[tokens, embedding]`, bucket after bucket, so that every product but
those of attention is one product; attention runs bucket by bucket.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from ponder_ref.base import HaltRule, Pondered
from ponder_ref.models._attention import dropped_share
from ponder_ref.models._buckets import bucket_lengths, check_inputs
from ponder_ref.models.transformer import NORM_EPS, Transformer, count_layers
from ponder_torch.models import CanonicalStep

Params = Mapping[str, torch.Tensor]


class Bucket(NamedTuple):
    """The examples of one length: how many, which keys are padding, and which weights dropout leaves at a step."""

    size: int
    length: int
    absent: torch.Tensor  # [size, 1, 1, L]
    kept: Callable[[int], torch.Tensor | None]  # of step n: [size, heads, L, L], or None for all


def make_bucket(words: torch.Tensor, kept: torch.Tensor | None = None, bits: torch.Tensor | None = None) -> Bucket:
    """The bucket of words `[size, L, tokens]`; `kept` is of every step, `bits` `[steps, ...]` are packed."""
    size, length = words.shape[:2]
    masks = partial(step_mask, bits, length) if bits is not None else lambda n: kept
    return Bucket(size, length, (words == 0).all(-1)[:, None, None, :], masks)


def make_buckets(inputs: Mapping[str, torch.Tensor]) -> list[Bucket]:
    """The buckets of a batch, shortest first."""
    lengths = bucket_lengths(inputs)
    return [make_bucket(inputs[f"words.{length}"], bits=inputs.get(f"dropout.{length}")) for length in lengths]


def unpack(bits: torch.Tensor, length: int) -> torch.Tensor:
    """Booleans `[..., length]` of bits `[..., ⌈length/8⌉]`, the lowest bit first."""
    each = (bits[..., None] >> torch.arange(8, dtype=torch.uint8, device=bits.device)) & 1
    return each.flatten(-2)[..., :length].bool()


def step_mask(bits: torch.Tensor, length: int, n: int) -> torch.Tensor:
    """Booleans `[..., length]` of the bits `[steps, ..., ⌈length/8⌉]` of step n."""
    return unpack(bits[n - 1], length)


def signal(table: torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """The signal of step n, `[embedding]`, or of each row's own step `[rows]`; beyond the last one it is the last."""
    if isinstance(n, int):
        return table[min(n, len(table)) - 1]
    return table[n.clamp(max=len(table)) - 1]


def layer_norm(params: Params, name: str, x: torch.Tensor) -> torch.Tensor:
    """(x − mean)/√(variance + ε)·scale + bias over the last axis."""
    return functional.layer_norm(x, x.shape[-1:], params[f"{name}.scale"], params[f"{name}.bias"], NORM_EPS)


def encode(params: Params, words: torch.Tensor) -> torch.Tensor:
    """Σₜ word ⊙ mask of its place, `[tokens, embedding]` of words `[tokens, places]`."""
    vocabulary, d = params["embed.words"].shape
    table = (params["embed.words"][None] * params["embed.mask"][:, None]).view(-1, d)
    table = torch.cat([table, table.new_zeros(1, d)])  # the last row is no word's, and is left out of sums
    numbers = words.long() - 1 + vocabulary * torch.arange(words.shape[-1], device=words.device)
    numbers = torch.where(words == 0, len(table) - 1, numbers)
    return functional.embedding_bag(numbers, table, mode="sum", padding_idx=len(table) - 1)


def places(params: Params, buckets: list[Bucket]) -> torch.Tensor:
    """The position signals of all tokens, counted back from the question, `[tokens, embedding]`."""
    table = params["embed.positions"]
    parts = [table[: b.length].flip(0).expand(b.size, -1, -1).reshape(-1, table.shape[-1]) for b in buckets]
    return torch.cat(parts)


def rows_of(buckets: list[Bucket], x: torch.Tensor) -> list[torch.Tensor]:
    """The rows of each bucket."""
    return list(x.split([b.size * b.length for b in buckets]))


def questions(buckets: list[Bucket], x: torch.Tensor) -> torch.Tensor:
    """The rows of the questions `[batch, ...]` of `[tokens, ...]`."""
    parts = zip(buckets, rows_of(buckets, x), strict=True)
    return torch.cat([rows.view(b.size, b.length, -1)[:, -1] for b, rows in parts])


def attend(
    bucket: Bucket, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: int, heads: int, dropped: float
) -> torch.Tensor:
    """softmax(q·kᵀ/√e)·v of every head in a bucket, `[queries, attention]`: of all tokens, or of the questions."""
    width = q.shape[-1]
    q, k, v = (x.reshape(bucket.size, -1, heads, width // heads).transpose(1, 2) for x in (q, k, v))
    scores = q @ (k.transpose(2, 3) / math.sqrt(width // heads))
    weights = scores.masked_fill(bucket.absent, -math.inf).softmax(-1)
    kept = bucket.kept(n)
    if kept is not None:
        weights = torch.where(kept[:, :, -q.shape[2] :], weights / (1 - dropped), 0.0)
    return (weights @ v).transpose(1, 2).reshape(-1, width)


def advance(
    params: Params,
    buckets: list[Bucket],
    h: torch.Tensor,
    n: int,
    heads: int,
    dropped: float,
    *,
    added: torch.Tensor | None = None,
    last: bool = False,
) -> torch.Tensor:
    """hₙ of hₙ₋₁, `[tokens, embedding]` (M9); of the last step the questions alone, `[batch, embedding]`.

    `added` are the signals of the step where rows are at steps of their own, `[tokens, embedding]`.
    """
    x = h + (signal(params["embed.steps"], n) if added is None else added)
    u = layer_norm(params, "block.norm1", x)
    width = params["block.o"].shape[0]
    if last:
        x = questions(buckets, x)
        k, v = (u @ torch.cat([params["block.k"], params["block.v"]], 1)).split(width, 1)
        q = (questions(buckets, u) @ params["block.q"]).split([b.size for b in buckets])
    else:
        q, k, v = (u @ torch.cat([params["block.q"], params["block.k"], params["block.v"]], 1)).split(width, 1)
        q = rows_of(buckets, q)
    columns = zip(buckets, q, rows_of(buckets, k), rows_of(buckets, v), strict=True)
    parts = [attend(*of_bucket, n, heads, dropped) for of_bucket in columns]
    a = torch.addmm(x, torch.cat(parts), params["block.o"])
    f = layer_norm(params, "block.norm2", a)
    for layer in range(1, count_layers(params) + 1):
        f = torch.addmm(params[f"block.hidden{layer}.b"], f, params[f"block.hidden{layer}.w"]).relu()
    return torch.addmm(a + params["block.out.b"], f, params["block.out.w"])


def read(params: Params, question: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prediction `[..., outputs]` and halting logit `[...]` of questions `[..., embedding]`."""
    weights = torch.cat([params["output.w"], params["halt.w"]], 1)
    both = layer_norm(params, "final", question) @ weights + torch.cat([params["output.b"], params["halt.b"]])
    return both[..., :-1], both[..., -1]


def begin(
    model: Transformer, params: Params, inputs: Mapping[str, torch.Tensor], steps: int
) -> tuple[list[Bucket], torch.Tensor]:
    """The buckets of inputs that are to be run for so many steps, and h₀ `[tokens, embedding]`."""
    check_inputs(model, inputs, steps)
    buckets = make_buckets(inputs)
    words = torch.cat([inputs[f"words.{b.length}"].flatten(0, 1) for b in buckets])
    return buckets, encode(params, words) + places(params, buckets)


def transformer_unroll(
    model: Transformer, params: Params, inputs: Mapping[str, torch.Tensor], max_steps: int, rule: HaltRule | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, the questions' last states and Nᵢ.

    N is the number of steps that were run: fewer than max_steps if a rule has let all examples go.
    """
    buckets, h = begin(model, params, inputs, max_steps)
    states, total = [], h.new_zeros(sum(b.size for b in buckets))
    lengths = torch.zeros(len(total), dtype=torch.int64, device=h.device)
    for n in range(1, max_steps + 1):
        h = advance(params, buckets, h, n, model.heads, dropped_share(model), last=n == max_steps)
        states.append(h if n == max_steps else questions(buckets, h))
        if rule is None:
            continue
        total = total + rule.add(read(params, states[-1].detach())[1].detach())
        if n >= rule.min_steps:
            lengths = torch.where((lengths == 0) & rule.enough(total), n, lengths)
            if bool((lengths > 0).all()):
                break
    stacked = torch.stack(states)
    lengths = torch.where(lengths > 0, lengths, len(states))
    y_hat, z = read(params, stacked)
    state = stacked[lengths - 1, torch.arange(len(lengths), device=h.device)]
    return y_hat, z, state, lengths


def transformer_encode(params: Params, words: torch.Tensor) -> torch.Tensor:
    """h₀ `[..., L, embedding]` of words `[..., L, tokens]` (M9)."""
    rows = words.reshape(-1, *words.shape[-2:])
    h = encode(params, rows.flatten(0, 1)) + places(params, [make_bucket(rows)])
    return h.reshape(*words.shape[:-1], -1)


def transformer_transition(
    params: Params,
    words: torch.Tensor,
    h: torch.Tensor,
    step: int,
    *,
    heads: int,
    kept: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """hₙ `[..., L, embedding]` of hₙ₋₁ for n = `step`; dropout leaves the weights `kept` `[..., heads, L, L]`."""
    rows = words.reshape(-1, *words.shape[-2:])
    masks = None if kept is None else kept.reshape(-1, *kept.shape[-3:])
    bucket = make_bucket(rows, masks)
    return advance(params, [bucket], h.reshape(-1, h.shape[-1]), step, heads, dropout).reshape(h.shape)


def transformer_readout(params: Params, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the question, the last row of h (M9)."""
    return read(params, h[..., -1, :])


class Step(CanonicalStep):
    """One step of the Transformer; the input is words `[b, L, tokens]`, or the dict of buckets that tasks make.

    The state is {"h": `[b, L, embedding]`, "n": `[b]`, the number of steps that each example has taken}. Examples of
    several lengths are padded to the longest here, which changes nothing but the time.
    """

    settings: Transformer
    OWN_METHODS = ("ut-act",)

    def project(self, x: Any) -> dict[str, torch.Tensor]:
        """{"words": `[b, L, tokens]`}, and with dropout "kept" `[b, steps, heads, L, L]`."""
        inputs = as_buckets(x)
        check_inputs(self.settings, inputs, 1)
        lengths = bucket_lengths(inputs)
        front = [lengths[-1] - length for length in lengths]
        words = [
            functional.pad(inputs[f"words.{length}"], (0, 0, more, 0))
            for length, more in zip(lengths, front, strict=True)
        ]
        found = {"words": torch.cat(words)}
        if any(f"dropout.{length}" in inputs for length in lengths):
            masks = []
            for length, more in zip(lengths, front, strict=True):
                bits = inputs.get(f"dropout.{length}")
                if bits is None:
                    raise ValueError(f"inputs must have dropout for all buckets or for none, got none for {length}")
                masks.append(functional.pad(unpack(bits, length).movedim(0, 1), (more, 0, more, 0)))
            found["kept"] = torch.cat(masks)
        return found

    def initial_state(self, projected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        words = projected["words"]
        taken = torch.zeros(len(words), dtype=torch.int64, device=words.device)
        return {"h": transformer_encode(self.params(), words), "n": taken}

    def forward(self, projected: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> tuple[Any, Any, Any]:
        params, words, h, n = self.params(), projected["words"], state["h"], state["n"] + 1
        kept = projected["kept"][torch.arange(len(n), device=n.device), n - 1] if "kept" in projected else None
        added = signal(params["embed.steps"], n)[:, None].expand_as(h)
        rule = {"heads": self.settings.heads, "dropped": dropped_share(self.settings)}
        rows = h.flatten(0, 1), 0
        h = advance(params, [make_bucket(words, kept)], *rows, added=added.flatten(0, 1), **rule).view(h.shape)
        y_hat, z = transformer_readout(params, h)
        return y_hat, {"h": h, "n": n}, z

    def unroll(self, x: Any, max_steps: int, rule: HaltRule | None) -> Any:
        """As `ponder_ref.runtime.contracts.StepNetwork` says; the state is the question's alone, `[b, embedding]`."""
        return transformer_unroll(self.settings, self.params(), as_buckets(x), max_steps, rule)

    def unroll_by(self, method: str, x: Any, *, max_steps: int, act_epsilon: float) -> Pondered:
        """The Universal Transformer's own ACT, by which every row halts by itself."""
        from ponder_torch.models._ut_act import ut_act_unroll

        del method  # there is one
        return ut_act_unroll(self.settings, self.params(), as_buckets(x), max_steps, act_epsilon)


def as_buckets(x: Any) -> Any:
    """Words as the dict of their one bucket."""
    return {f"words.{x.shape[-2]}": x} if isinstance(x, torch.Tensor) and x.ndim == 3 else x
