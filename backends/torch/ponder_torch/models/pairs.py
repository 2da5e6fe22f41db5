"""The Transformer of paired associative inference (spec M10; paper app. D), its steps at the speed of products.

Every image is embedded once. The states of all steps are encoded first; the decoder then works on all of them
together, each with its own keys and values, which are computed once: application k is for the steps n ≥ k. Where
examples may leave early, this is done for a few steps at a time, and no more once all examples have left.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ponder_ref.base import HaltRule
from ponder_ref.models._attention import dropped_share
from ponder_ref.models._pair_inputs import check_inputs
from ponder_ref.models.pairs import TOKENS, PairTransformer, count_layers, stage_ends
from ponder_torch.models import CanonicalStep
from ponder_torch.models.transformer import Params, layer_norm, signal, step_mask, unpack


class Seen(NamedTuple):
    """Keys `[..., heads, e, E]` and values `[..., heads, E, e]` of tokens beside a block's own."""

    keys: torch.Tensor
    values: torch.Tensor
    absent: torch.Tensor | None = None  # examples that see none of them, `[..., 1, 1, 1]`


def embed(params: Params, images: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """The embeddings norm(x·W) at slots `[..., n]`, `[..., n, embedding]`.

    Images that no slot names are made 0 first: 0 times what is not finite would reach the gradients.
    """
    slots = slots.long()[..., None]
    chosen = slots == torch.arange(images.shape[-2], device=slots.device)
    images = torch.where(chosen.any(-2)[..., None], images, 0.0)
    embedded = layer_norm(params, "embed.norm", images @ params["embed.images"])
    return torch.take_along_dim(embedded, slots, -2)


def begin(
    params: Params, images: torch.Tensor, rows: torch.Tensor, query: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """h₀ `[..., M, embedding]` and the query's tokens `[..., 3, embedding]`, of one product with the images."""
    count = rows.shape[-2]
    rows, query = rows.long(), query.long()  # a narrow dtype of one may not hold the other
    taken = embed(params, images, torch.cat([rows[..., 0], rows[..., 1], query], -1))
    first, second, asked = taken.split([count, count, TOKENS], -2)
    return pair(params, first, second), asked + params["embed.roles"]


def pair(params: Params, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first * params["embed.mask"][0] + second * params["embed.mask"][1]


def as_rows(x: torch.Tensor, heads: int) -> torch.Tensor:
    """`[..., n, width]` as `[..., heads, n, e]`, for queries and values."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3).contiguous()


def as_columns(x: torch.Tensor, heads: int) -> torch.Tensor:
    """`[..., n, width]` as `[..., heads, e, n]`, for keys."""
    return x.unflatten(-1, (heads, -1)).movedim(-3, -1).contiguous()


def look(params: Params, name: str, u: torch.Tensor, heads: int) -> Seen:
    """What a block sees of normed tokens `[..., E, embedding]`."""
    k, v = (u @ torch.cat([params[f"{name}.k"], params[f"{name}.v"]], 1)).chunk(2, -1)
    return Seen(as_columns(k, heads), as_rows(v, heads))


def block(
    params: Params,
    name: str,
    x: torch.Tensor,
    seen: Seen | None,
    heads: int,
    kept: torch.Tensor | None,
    dropped: float,
) -> torch.Tensor:
    """Attention and transition of tokens `[..., Q, embedding]` that see others and each other, not themselves."""
    u = layer_norm(params, f"{name}.norm1", x)
    q, k, v = (u @ torch.cat([params[f"{name}.{part}"] for part in "qkv"], 1)).chunk(3, -1)
    q = as_rows(q, heads) / math.sqrt(q.shape[-1] // heads)
    count = x.shape[-2]
    itself = torch.eye(count, dtype=torch.bool, device=x.device)
    scores = (q @ as_columns(k, heads)).masked_fill(itself, -math.inf)
    if seen is not None:
        others = q @ seen.keys
        others = others if seen.absent is None else others.masked_fill(seen.absent, -math.inf)
        scores = torch.cat([others, scores], -1)
    weights = scores.softmax(-1)
    if kept is not None:
        weights = torch.where(kept, weights / (1 - dropped), 0.0)
    others, own = weights.split([weights.shape[-1] - count, count], -1)
    found = own @ as_rows(v, heads)
    if seen is not None:
        found = found + others @ seen.values
    a = x + found.transpose(-2, -3).flatten(-2) @ params[f"{name}.o"]
    f = layer_norm(params, f"{name}.norm2", a)
    for layer in range(1, count_layers(params, name) + 1):
        f = (f @ params[f"{name}.hidden{layer}.w"] + params[f"{name}.hidden{layer}.b"]).relu()
    return a + f @ params[f"{name}.out.w"] + params[f"{name}.out.b"]


def advance(
    params: Params,
    h: torch.Tensor,
    added: torch.Tensor,
    earlier: torch.Tensor | None,
    heads: int,
    kept: torch.Tensor | None,
    dropped: float,
    absent: torch.Tensor | None = None,
) -> torch.Tensor:
    """hₙ of hₙ₋₁ and the signal of the step (M10); `earlier` are more tokens to see, but for examples `absent`."""
    seen = None
    if earlier is not None:
        seen = look(params, "encoder", layer_norm(params, "encoder.norm1", earlier + added), heads)
        seen = seen._replace(absent=absent)
    return block(params, "encoder", h + added, seen, heads, kept, dropped)


def encode_stage(
    model: PairTransformer,
    params: Params,
    h: torch.Tensor,
    earlier: torch.Tensor | None,
    steps: tuple[int, int],
    bits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """hₙ of the steps first..last after `h`, `[steps, batch, M, embedding]`, and the state one step before the last."""
    xl, count, (first, last), states = model.memory == "xl", h.shape[-2], steps, []
    for n in range(first, last + 1):
        kept = None if bits is None else step_mask(bits, 2 * count if xl else count, n)
        if kept is not None and earlier is None:
            kept = kept[..., -count:]  # nothing is earlier than h₀: the first step has its own keys alone
        new = advance(params, h, signal(params["encoder.steps"], n), earlier, model.heads, kept, dropped_share(model))
        h, earlier = new, h.detach() if xl else None
        states.append(new)
    return torch.stack(states), earlier


def decode_stage(
    model: PairTransformer,
    params: Params,
    states: torch.Tensor,
    tokens: torch.Tensor,
    steps: tuple[int, int],
    bits: torch.Tensor | None,
) -> torch.Tensor:
    """The query's tokens after n applications to hₙ, for n = first..last: `[steps, batch, 3, embedding]`."""
    seen = look(params, "decoder", layer_norm(params, "decoder.memory", states), model.heads)
    (first, last), keys = steps, states.shape[-2] + TOKENS
    kept = None if bits is None else unpack(bits[first - 1 : last], keys)
    x, done = tokens.expand(len(states), *tokens.shape), []
    for k in range(1, last + 1):
        x = block(
            params, "decoder", x + signal(params["decoder.steps"], k), seen, model.heads, kept, dropped_share(model)
        )
        if k < first:
            continue
        done.append(x[0])
        x, seen, kept = x[1:], Seen(seen.keys[1:], seen.values[1:]), None if kept is None else kept[1:]
    return torch.stack(done)


def have_enough(z: torch.Tensor, rule: HaltRule) -> torch.Tensor:
    """Whether logits `[n, batch]` of the first steps are enough after each of them, `[n, batch]`."""
    numbers = torch.arange(1, len(z) + 1, device=z.device)[:, None]
    return rule.enough(torch.cumsum(rule.add(z.detach()), 0)) & (numbers >= rule.min_steps)


def lengths_of(z: torch.Tensor, rule: HaltRule | None) -> torch.Tensor:
    """Nᵢ of logits `[N, batch]`: the first step that is enough, else N."""
    steps = len(z)
    if rule is None:
        return torch.full(z.shape[1:], steps, dtype=torch.int64, device=z.device)
    numbers = torch.arange(1, steps + 1, device=z.device)[:, None]
    return torch.where(have_enough(z, rule), numbers, steps).amin(0)


def pairs_unroll(
    model: PairTransformer,
    params: Params,
    inputs: Mapping[str, torch.Tensor],
    max_steps: int,
    rule: HaltRule | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, the query's last tokens and Nᵢ.

    N is the number of steps that were run: with a rule they are run stage by stage, until nobody needs the next one.
    """
    check_inputs(model, inputs, max_steps)
    h, tokens = begin(params, inputs["images"], inputs["rows"], inputs["query"])
    earlier, parts, first = None, [], 1
    for last in (max_steps,) if rule is None else stage_ends(max_steps):
        if rule is not None and parts and bool(have_enough(torch.cat([z for _, z, _ in parts]), rule).any(0).all()):
            break
        states, earlier = encode_stage(model, params, h, earlier, (first, last), inputs.get("dropout.encoder"))
        decoded = decode_stage(model, params, states, tokens, (first, last), inputs.get("dropout.decoder"))
        parts.append((*pairs_readout(params, decoded), decoded))
        h, first = states[-1], last + 1
    y_hat, z, decoded = (torch.cat(part) for part in zip(*parts, strict=True))
    lengths = lengths_of(z, rule)
    state = decoded[lengths - 1, torch.arange(len(lengths), device=z.device)]
    return y_hat, z, state, lengths


def pairs_encode(params: Params, images: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """h₀ `[..., M, embedding]` of images `[..., S, width]` and the slots of the pairs `[..., M, 2]` (M10)."""
    return pair(params, embed(params, images, rows[..., 0]), embed(params, images, rows[..., 1]))


def pairs_query(params: Params, images: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The query's tokens `[..., 3, embedding]` of images `[..., S, width]` and slots `[..., 3]` (M10)."""
    return embed(params, images, query) + params["embed.roles"]


def pairs_transition(
    params: Params,
    h: torch.Tensor,
    step: int,
    *,
    heads: int,
    earlier: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """hₙ `[..., M, embedding]` of hₙ₋₁ for n = `step`; `earlier` is hₙ₋₂, without gradient, or None (M10)."""
    before = None if earlier is None else earlier.detach()
    return advance(params, h, signal(params["encoder.steps"], step), before, heads, kept, dropout)


def pairs_decode(
    params: Params,
    h: torch.Tensor,
    tokens: torch.Tensor,
    step: int,
    *,
    heads: int,
    kept: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """The query's tokens `[..., 3, embedding]` after n = `step` applications of the decoder to hₙ (M10)."""
    seen = look(params, "decoder", layer_norm(params, "decoder.memory", h), heads)
    for k in range(1, step + 1):
        tokens = block(params, "decoder", tokens + signal(params["decoder.steps"], k), seen, heads, kept, dropout)
    return tokens


def pairs_readout(params: Params, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the query's tokens `[..., 3, embedding]` (M10).

    The cue points at left or right, as much as it is like them, and is read beside what it points at.
    """
    u = layer_norm(params, "final", tokens)
    cue, sides = u[..., 0, :], u[..., 1:, :]
    weights = ((sides * cue[..., None, :]).sum(-1) / math.sqrt(cue.shape[-1])).softmax(-1)
    pointed = (weights[..., None] * (sides + params["embed.sides"])).sum(-2)
    matrix = torch.cat([params["output.w"], params["halt.w"]], 1)
    both = torch.cat([cue, pointed], -1) @ matrix + torch.cat([params["output.b"], params["halt.b"]])
    return both[..., :-1], both[..., -1]


class Step(CanonicalStep):
    """One step of the Transformer of pairs; the input is the dict with "images", "rows" and "query" that tasks make.

    The state is {"h": `[b, M, embedding]`, "n": `[b]`}, n the number of steps that each example has taken; with memory
    "xl" there is also "earlier", the state one step before.
    """

    settings: PairTransformer

    def project(self, x: Any) -> dict[str, torch.Tensor]:
        """{"memory": `[b, M, embedding]`, "tokens": `[b, 3, embedding]`}; the bits of dropout with examples first."""
        check_inputs(self.settings, x, 1)
        memory, tokens = begin(self.params(), x["images"], x["rows"], x["query"])
        bits = {name: array.movedim(0, 1) for name, array in x.items() if name.startswith("dropout.")}
        return {"memory": memory, "tokens": tokens, **bits}

    def initial_state(self, projected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        h = projected["memory"]
        state = {"h": h, "n": torch.zeros(len(h), dtype=torch.int64, device=h.device)}
        return {**state, "earlier": torch.zeros_like(h)} if self.settings.memory == "xl" else state

    def forward(self, projected: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> tuple[Any, Any, Any]:
        params, h, n, heads = self.params(), state["h"], state["n"] + 1, self.settings.heads
        count, dropped, earlier = h.shape[-2], dropped_share(self.settings), state.get("earlier")

        def kept(name: str, keys: int) -> torch.Tensor | None:
            bits = projected.get(name)
            return None if bits is None else unpack(bits[torch.arange(len(n), device=n.device), n - 1], keys)

        masks = kept("dropout.encoder", count if earlier is None else 2 * count)
        added, first = signal(params["encoder.steps"], n)[:, None], (n == 1)[:, None, None, None]
        before = None if earlier is None else earlier.detach()
        new = advance(params, h, added, before, heads, masks, dropped, first)
        seen = look(params, "decoder", layer_norm(params, "decoder.memory", new), heads)
        tokens, masks = projected["tokens"], kept("dropout.decoder", count + TOKENS)
        for k in range(1, int(n.max()) + 1):
            x = tokens + signal(params["decoder.steps"], k)
            applied = block(params, "decoder", x, seen, heads, masks, dropped)
            tokens = torch.where((k <= n)[:, None, None], applied, tokens)  # each example as often as its step is
        y_hat, z = pairs_readout(params, tokens)
        return y_hat, {"h": new, "n": n, **({} if earlier is None else {"earlier": h})}, z

    def unroll(self, x: Any, max_steps: int, rule: HaltRule | None) -> Any:
        """As `ponder_ref.runtime.contracts.StepNetwork` says; the state is the query's tokens, `[b, 3, embedding]`."""
        return pairs_unroll(self.settings, self.params(), x, max_steps, rule)

    def steps_run(self, longest: torch.Tensor, max_steps: int) -> torch.Tensor:
        """How many steps were run where the longest example took so many: they are run stage by stage."""
        ends = torch.tensor(stage_ends(max_steps), device=longest.device)
        return ends[(ends < longest).sum()]
