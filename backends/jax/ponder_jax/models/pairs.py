"""The Transformer of paired associative inference (spec M10; paper app. D): functions, step network, fast unroll.

Every image is embedded once. In the unroll the states of all steps are encoded first; the decoder then works on all of
them together, each with its own keys and values, which are computed once: application k is for the steps n ≥ k. Where
examples may leave early, this is done for a few steps at a time, and no more once all examples have left.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ponder_jax.arrays import either, loop_while, on_any
from ponder_jax.models import CanonicalStep
from ponder_jax.models.transformer import layer_norm, unpack
from ponder_ref.base import HaltRule
from ponder_ref.models._attention import dropped_share
from ponder_ref.models._pair_inputs import check_inputs
from ponder_ref.models.pairs import BLOCKS, TOKENS, PairTransformer, count_layers, stage_ends

Params = Mapping[str, jax.Array]


class Seen(NamedTuple):
    """Keys `[..., heads, e, E]` and values `[..., heads, E, e]` of tokens beside a block's own.

    `by` says which rows see them, `[b, 1, 1, 1]`; None is all.
    """

    keys: jax.Array
    values: jax.Array
    by: jax.Array | None = None


def embed(params: Params, images: jax.Array, slots: jax.Array) -> jax.Array:
    """The embeddings norm(x·W) at slots `[..., n]`, `[..., n, embedding]`.

    They are taken by a product with ones and zeros: a gather's gradient would be a scatter, which is slow.
    Images that no slot names are made 0 first: 0 times what is not finite would reach values and gradients.
    """
    chosen = slots.astype(jnp.int32)[..., None] == jnp.arange(images.shape[-2], dtype=jnp.int32)
    images = jnp.where(chosen.any(-2)[..., None], images, 0.0)
    embedded = layer_norm(params, "embed.norm", dense(images, params["embed.images"]))
    return chosen.astype(embedded.dtype) @ embedded


def begin(params: Params, images: jax.Array, rows: jax.Array, query: jax.Array) -> tuple[jax.Array, jax.Array]:
    """h₀ `[..., M, embedding]` and the query's tokens `[..., 3, embedding]`, of one product with the images."""
    count = rows.shape[-2]
    rows, query = rows.astype(jnp.int32), query.astype(jnp.int32)  # a narrow dtype of one may not hold the other
    taken = embed(params, images, jnp.concatenate([rows[..., 0], rows[..., 1], query], -1))
    first, second, asked = jax.lax.split(taken, [count, count, TOKENS], taken.ndim - 2)
    return pair(params, first, second), asked + params["embed.roles"]


def pair(params: Params, first: jax.Array, second: jax.Array) -> jax.Array:
    return first * params["embed.mask"][0] + second * params["embed.mask"][1]


def signal(params: Params, name: str, step: Any) -> jax.Array:
    """The signal of a step of encoder or decoder; beyond the last one it is the last."""
    table = params[f"{name}.steps"]
    added = table[jnp.minimum(step, len(table)) - 1]
    return added if jnp.ndim(step) == 0 else added[:, None]  # rows at different steps, [b]


def as_rows(x: jax.Array, heads: int) -> jax.Array:
    """`[..., n, width]` as `[..., heads, n, e]`, for queries and values."""
    return jnp.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def as_columns(x: jax.Array, heads: int) -> jax.Array:
    """`[..., n, width]` as `[..., heads, e, n]`, for keys: small products are quick in this order."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], heads, -1), -3, -1)


def dense(x: jax.Array, w: jax.Array) -> jax.Array:
    """x·w of tokens `[..., n, in]`, as one product of two matrices.

    XLA's gradient for w is slow where it sums over more than one axis: the tokens are made one.
    """
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[-1])


def look(params: Params, name: str, u: jax.Array, heads: int) -> Seen:
    """What a block sees of normed tokens `[..., E, embedding]`."""
    kv = dense(u, jnp.concatenate([params[f"{name}.k"], params[f"{name}.v"]], 1))
    k, v = jnp.split(kv, 2, -1)
    return Seen(as_columns(k, heads), as_rows(v, heads))


def block(
    params: Params, name: str, x: jax.Array, seen: Seen | None, heads: int, kept: jax.Array | None, dropped: float
) -> jax.Array:
    """Attention and transition of tokens `[..., Q, embedding]` that see others and each other, not themselves."""
    u = layer_norm(params, f"{name}.norm1", x)
    qkv = dense(u, jnp.concatenate([params[f"{name}.{part}"] for part in "qkv"], 1))
    q, k, v = jnp.split(qkv, 3, -1)
    q = as_rows(q, heads) / math.sqrt(q.shape[-1] // heads)
    count = x.shape[-2]
    scores = jnp.where(jnp.eye(count, dtype=bool), -math.inf, q @ as_columns(k, heads))
    if seen is not None:
        others = q @ seen.keys
        others = others if seen.by is None else jnp.where(seen.by, others, -math.inf)
        scores = jnp.concatenate([others, scores], -1)
    weights = jax.nn.softmax(scores, -1)
    if kept is not None:
        weights = jnp.where(kept, weights / (1 - dropped), 0.0)
    others, own = jax.lax.split(weights, [weights.shape[-1] - count, count], weights.ndim - 1)
    found = own @ as_rows(v, heads)
    if seen is not None:
        found = found + others @ seen.values
    a = x + dense(jnp.swapaxes(found, -2, -3).reshape(*x.shape[:-1], -1), params[f"{name}.o"])
    f = layer_norm(params, f"{name}.norm2", a)
    for layer in range(1, count_layers(params, name) + 1):
        f = jax.nn.relu(dense(f, params[f"{name}.hidden{layer}.w"]) + params[f"{name}.hidden{layer}.b"])
    return a + dense(f, params[f"{name}.out.w"]) + params[f"{name}.out.b"]


def advance(
    params: Params, h: jax.Array, n: Any, earlier: jax.Array | None, heads: int, kept: jax.Array | None, dropped: float
) -> jax.Array:
    """hₙ of hₙ₋₁ (M10); `earlier` are more tokens to see."""
    added, seen = signal(params, "encoder", n), None
    if earlier is not None:
        seen = look(params, "encoder", layer_norm(params, "encoder.norm1", earlier + added), heads)
        if jnp.ndim(n):  # nothing is earlier than h₀
            seen = seen._replace(by=(n > 1)[:, None, None, None])
    return block(params, "encoder", h + added, seen, heads, kept, dropped)


def encode_stage(
    model: PairTransformer,
    params: Params,
    h: jax.Array,
    earlier: jax.Array | None,
    steps: tuple[int, int],
    bits: jax.Array | None,
) -> tuple[jax.Array, jax.Array | None]:
    """hₙ of the steps first..last after `h`, `[steps, batch, M, embedding]`, and the state one step before the last."""
    rest = {"heads": model.heads, "dropped": dropped_share(model)}
    xl, count, (first, last) = model.memory == "xl", h.shape[-2], steps

    def kept(n: Any) -> jax.Array | None:
        return None if bits is None else unpack(bits, 2 * count if xl else count, n)

    def body(carry, n):
        h, earlier = carry
        new = advance(params, h, n, jax.lax.stop_gradient(earlier) if xl else None, kept=kept(n), **rest)
        return (new, h if xl else None), new

    before = []
    if first == 1:  # nothing is earlier than h₀: the first step has its own keys alone, the last of the mask's
        mask = kept(jnp.int32(1))
        new = advance(params, h, jnp.int32(1), None, kept=None if mask is None else mask[..., -count:], **rest)
        before, h, earlier = [new[None]], new, h if xl else None
    carry, states = jax.lax.scan(body, (h, earlier), jnp.arange(first + len(before), last + 1, dtype=jnp.int32))
    return jnp.concatenate([*before, states]), carry[1]


def decode_stage(
    model: PairTransformer,
    params: Params,
    states: jax.Array,
    tokens: jax.Array,
    steps: tuple[int, int],
    bits: jax.Array | None,
) -> jax.Array:
    """The query's tokens after n applications to hₙ, for n = first..last: `[steps, batch, 3, embedding]`."""
    seen = look(params, "decoder", layer_norm(params, "decoder.memory", states), model.heads)
    (first, last), keys = steps, states.shape[-2] + TOKENS
    kept = None if bits is None else jax.vmap(partial(unpack, bits, keys))(jnp.arange(first, last + 1))
    x, done = jnp.broadcast_to(tokens, (len(states), *tokens.shape)), []
    for k in range(1, last + 1):
        x = block(params, "decoder", x + signal(params, "decoder", k), seen, model.heads, kept, dropped_share(model))
        if k < first:
            continue
        done.append(x[0])
        # From the rest of before, not from the whole: XLA sums the gradients of slices of one array wrongly.
        x, seen, kept = x[1:], Seen(seen.keys[1:], seen.values[1:]), None if kept is None else kept[1:]
    return jnp.stack(done)


def have_enough(z: jax.Array, rule: HaltRule) -> jax.Array:
    """Whether logits `[n, batch]` of the first steps are enough after each of them, `[n, batch]`."""
    numbers = jnp.arange(1, len(z) + 1, dtype=jnp.int32)[:, None]
    return rule.enough(jnp.cumsum(rule.add(jax.lax.stop_gradient(z)), 0)) & (numbers >= rule.min_steps)


def lengths_of(z: jax.Array, rule: HaltRule | None) -> jax.Array:
    """Nᵢ of logits `[N, batch]`: the first step that is enough, else N."""
    steps = len(z)
    if rule is None:
        return jnp.full(z.shape[1:], steps, jnp.int32)
    numbers = jnp.arange(1, steps + 1, dtype=jnp.int32)[:, None]
    return jnp.where(have_enough(z, rule), numbers, steps).min(0)


def pairs_unroll(
    model: PairTransformer, params: Params, inputs: Mapping[str, jax.Array], max_steps: int, rule: HaltRule | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, the query's last tokens and Nᵢ.

    With a rule the steps are run stage by stage; those of stages that nobody needs are 0.
    """
    check_inputs(model, inputs, max_steps)
    h, tokens = begin(params, inputs["images"], inputs["rows"], inputs["query"])

    def run(h, earlier, steps):
        states, earlier = encode_stage(model, params, h, earlier, steps, inputs.get("dropout.encoder"))
        decoded = decode_stage(model, params, states, tokens, steps, inputs.get("dropout.decoder"))
        return (states[-1], earlier), (*pairs_readout(params, decoded), decoded)

    carry, parts, first = (h, None), [], 1
    for last in (max_steps,) if rule is None else stage_ends(max_steps):
        stage = partial(run, steps=(first, last))
        if rule is None or first == 1:
            carry, part = stage(*carry)
        else:
            going_on = on_any(~have_enough(jnp.concatenate([z for _, z, _ in parts]), rule).any(0).all())
            nothing = tuple(jnp.zeros((last + 1 - first, *x.shape[1:]), x.dtype) for x in parts[0])
            carry, part = either(going_on, stage, lambda *carry, zeros=nothing: (carry, zeros), *carry)
        parts.append(part)
        first = last + 1
    y_hat, z, decoded = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    lengths = lengths_of(z, rule)
    state = jnp.take_along_axis(decoded, lengths[None, :, None, None] - 1, 0)[0]
    return y_hat, z, state, lengths


class Step(CanonicalStep):
    """The Transformer of pairs as a step network: x is the dict of images, rows and query of a batch `[b]`.

    The state has every example's number of steps: {"h": `[b, M, embedding]`, "n": `[b]`}, with memory "xl" also
    "earlier", the state before h. A step applies the decoder n times, which reverse mode cannot go through:
    gradients are those of `unroll`, by which `PonderNet` is called.
    """

    settings: PairTransformer

    def project(self, x: Any) -> dict[str, jax.Array]:
        """h₀ and the query's tokens of each example; with dropout also what it leaves, `[b, steps, ...]`."""
        check_inputs(self.settings, x, 1)
        h, tokens = begin(self.params(), x["images"], x["rows"], x["query"])
        projected = {"h": h, "tokens": tokens}
        count = h.shape[-2]
        keys = {"encoder": count * (2 if self.settings.memory == "xl" else 1), "decoder": count + TOKENS}
        for name in BLOCKS:
            if (bits := x.get(f"dropout.{name}")) is not None:
                kept = jax.vmap(partial(unpack, bits, keys[name]))(jnp.arange(1, len(bits) + 1))
                projected[f"kept.{name}"] = jnp.moveaxis(kept, 0, 1)
        return projected

    def initial_state(self, x: dict[str, jax.Array]) -> dict[str, jax.Array]:
        h = x["h"]
        earlier = {"earlier": jnp.zeros_like(h)} if self.settings.memory == "xl" else {}
        return {"h": h, "n": jnp.zeros(len(h), jnp.int32), **earlier}

    def __call__(self, x: dict[str, jax.Array], state: dict[str, jax.Array]) -> tuple[jax.Array, Any, jax.Array]:
        params, n, heads, dropped = self.params(), state["n"] + 1, self.settings.heads, dropped_share(self.settings)

        def kept(name: str) -> jax.Array | None:
            masks = x.get(f"kept.{name}")
            return None if masks is None else jnp.take_along_axis(masks, n[:, None, None, None, None] - 1, 1)[:, 0]

        earlier = state.get("earlier")
        earlier = None if earlier is None else jax.lax.stop_gradient(earlier)
        h = advance(params, state["h"], n, earlier, heads, kept("encoder"), dropped)
        seen = look(params, "decoder", layer_norm(params, "decoder.memory", h), heads)
        masks = kept("decoder")

        def apply(carry):
            k, tokens = carry
            after = block(params, "decoder", tokens + signal(params, "decoder", k), seen, heads, masks, dropped)
            return k + 1, jnp.where((k <= n)[:, None, None], after, tokens)

        _, tokens = loop_while(lambda carry: (carry[0] <= n).any(), apply, (jnp.int32(1), x["tokens"]))
        y_hat, z = pairs_readout(params, tokens)
        return y_hat, {**({} if earlier is None else {"earlier": state["h"]}), "h": h, "n": n}, z

    def unroll(self, x: Any, max_steps: int, rule: HaltRule | None) -> tuple | None:
        """All steps, or stage by stage; the state is what the decoder made of the query, `[b, 3, embedding]`."""
        return pairs_unroll(self.settings, self.params(), x, max_steps, rule)

    def steps_run(self, longest: jax.Array, max_steps: int) -> jax.Array:
        """How many steps are run where the longest example takes so many: the end of its stage."""
        ends = jnp.array(stage_ends(max_steps), longest.dtype)
        return ends[jnp.searchsorted(ends, longest)]


def pairs_encode(params: Params, images: jax.Array, rows: jax.Array) -> jax.Array:
    """h₀ `[..., M, embedding]` of images `[..., S, width]` and the slots of the pairs `[..., M, 2]` (M10)."""
    return pair(params, embed(params, images, rows[..., 0]), embed(params, images, rows[..., 1]))


def pairs_query(params: Params, images: jax.Array, query: jax.Array) -> jax.Array:
    """The query's tokens `[..., 3, embedding]` of images `[..., S, width]` and slots `[..., 3]` (M10)."""
    return embed(params, images, query) + params["embed.roles"]


def pairs_transition(
    params: Params,
    h: jax.Array,
    step: int,
    *,
    heads: int,
    earlier: jax.Array | None = None,
    kept: jax.Array | None = None,
    dropout: float = 0.0,
) -> jax.Array:
    """hₙ `[..., M, embedding]` of hₙ₋₁ for n = `step`; `earlier` is hₙ₋₂, without gradient, or None (M10)."""
    earlier = None if earlier is None else jax.lax.stop_gradient(earlier)
    return advance(params, h, step, earlier, heads, kept, dropout)


def pairs_decode(
    params: Params,
    h: jax.Array,
    tokens: jax.Array,
    step: int,
    *,
    heads: int,
    kept: jax.Array | None = None,
    dropout: float = 0.0,
) -> jax.Array:
    """The query's tokens `[..., 3, embedding]` after n = `step` applications of the decoder to hₙ (M10)."""
    seen = look(params, "decoder", layer_norm(params, "decoder.memory", h), heads)
    for k in range(1, step + 1):
        tokens = block(params, "decoder", tokens + signal(params, "decoder", k), seen, heads, kept, dropout)
    return tokens


def pairs_readout(params: Params, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the query's tokens `[..., 3, embedding]` (M10).

    The cue points at left or right, as much as it is like them, and is read beside what it points at.
    """
    u = layer_norm(params, "final", tokens)
    cue, sides = u[..., 0, :], u[..., 1:, :]
    weights = jax.nn.softmax((sides * cue[..., None, :]).sum(-1) / math.sqrt(cue.shape[-1]), -1)
    pointed = (weights[..., None] * (sides + params["embed.sides"])).sum(-2)
    matrix = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    both = jnp.concatenate([cue, pointed], -1) @ matrix + jnp.concatenate([params["output.b"], params["halt.b"]])
    return both[..., :-1], both[..., -1]
