"""The Universal Transformer of the bAbI experiment (spec M9; paper app. C): functions, step network, fast unroll.

The tokens of all buckets stand in one matrix `[tokens, embedding]`, bucket after bucket, so that every product but
those of attention is one product; attention runs bucket by bucket.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ponder_jax.arrays import either, on_any, settle_axes, vary_like
from ponder_jax.models import CanonicalStep
from ponder_ref.base import HaltRule, Pondered
from ponder_ref.models._attention import dropped_share
from ponder_ref.models._buckets import bucket_lengths, check_inputs
from ponder_ref.models.transformer import NORM_EPS, Transformer, count_layers

Params = Mapping[str, jax.Array]


class Bucket(NamedTuple):
    """The examples of one length: how many, which keys are real, and which weights dropout leaves at step n, if any."""

    size: int
    length: int
    present: jax.Array  # [size, 1, 1, L]
    kept: Callable[[Any], jax.Array] | None  # [size, heads, L, L]


def make_bucket(words: jax.Array, kept: Callable[[Any], jax.Array] | None) -> Bucket:
    """The bucket of words `[size, L, tokens]`."""
    return Bucket(words.shape[0], words.shape[1], (words != 0).any(-1)[:, None, None, :], kept)


def make_buckets(inputs: Mapping[str, jax.Array]) -> list[Bucket]:
    """The buckets of a batch, shortest first."""
    buckets = []
    for length in bucket_lengths(inputs):
        bits = inputs.get(f"dropout.{length}")
        buckets.append(make_bucket(inputs[f"words.{length}"], None if bits is None else partial(unpack, bits, length)))
    return buckets


def unpack(bits: jax.Array, length: int, n: Any) -> jax.Array:
    """Booleans `[..., length]` of the bits `[steps, ..., ⌈length/8⌉]` of step n, the lowest bit first."""
    bits = jax.lax.dynamic_index_in_dim(bits, n - 1, 0, keepdims=False)
    each = (bits[..., None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
    return each.reshape(*bits.shape[:-1], -1)[..., :length].astype(bool)


def layer_norm(params: Params, name: str, x: jax.Array) -> jax.Array:
    """(x − mean)/√(variance + ε)·scale + bias over the last axis."""
    x = x - x.mean(-1, keepdims=True)
    return (
        x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + NORM_EPS) * params[f"{name}.scale"] + params[f"{name}.bias"]
    )


def encode(params: Params, words: jax.Array) -> jax.Array:
    """Σₜ word ⊙ mask of its place, `[tokens, embedding]` of words `[tokens, places]`.

    As a product with ones and zeros: a gather's gradient would be a scatter, which is slow.
    """
    vocabulary, d = params["embed.words"].shape
    table = params["embed.words"][None] * params["embed.mask"][: words.shape[-1], None]
    words = words.astype(jnp.promote_types(words.dtype, jnp.int32))  # a narrow dtype may not hold the vocabulary
    chosen = words[..., None] == jnp.arange(1, vocabulary + 1, dtype=words.dtype)
    return chosen.reshape(len(words), -1).astype(table.dtype) @ table.reshape(-1, d)


def places(params: Params, buckets: list[Bucket]) -> jax.Array:
    """The position signals of all tokens, counted back from the question, `[tokens, embedding]`."""
    table = params["embed.positions"]
    d = table.shape[-1]
    parts = [jnp.broadcast_to(table[: b.length][::-1], (b.size, b.length, d)).reshape(-1, d) for b in buckets]
    return jnp.concatenate(parts)


def rows_of(buckets: list[Bucket], x: jax.Array) -> list[jax.Array]:
    """The rows of each bucket. By `split`, whose gradient is one concatenation; slices would each be padded."""
    return list(jax.lax.split(x, [b.size * b.length for b in buckets]))


def questions(buckets: list[Bucket], x: jax.Array) -> jax.Array:
    """The rows of the questions `[batch, ...]` of `[tokens, ...]`."""
    parts = zip(buckets, rows_of(buckets, x), strict=True)
    return jnp.concatenate([rows.reshape(b.size, b.length, -1)[:, -1] for b, rows in parts])


def attend(bucket: Bucket, q: jax.Array, k: jax.Array, v: jax.Array, n: Any, heads: int, dropped: float) -> jax.Array:
    """softmax(q·kᵀ/√e)·v of every head in a bucket, `[queries, attention]`: of all tokens, or of the questions."""
    width = q.shape[-1]
    q, k, v = (x.reshape(bucket.size, -1, heads, width // heads) for x in (q, k, v))
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(width // heads)
    weights = jax.nn.softmax(jnp.where(bucket.present, scores, -math.inf), -1)
    if bucket.kept is not None:
        weights = jnp.where(bucket.kept(n)[:, :, -q.shape[1] :], weights / (1 - dropped), 0.0)
    return jnp.einsum("bhqk,bkhe->bqhe", weights, v).reshape(-1, width)


def signal(params: Params, buckets: list[Bucket], n: Any) -> jax.Array:
    """The signal of step n; of rows at different steps, n `[size]` of one bucket, that of each token."""
    table = params["embed.steps"]
    rows = table[jnp.minimum(n, len(table)) - 1]
    return rows if jnp.ndim(n) == 0 else jnp.repeat(rows, buckets[0].length, axis=0)


def advance(
    params: Params, buckets: list[Bucket], h: jax.Array, n: Any, heads: int, dropped: float, *, last: bool = False
) -> jax.Array:
    """hₙ of hₙ₋₁, `[tokens, embedding]` (M9); of the last step the questions alone, `[batch, embedding]`."""
    x = h + signal(params, buckets, n)
    u = layer_norm(params, "block.norm1", x)
    width = params["block.o"].shape[0]
    if last:
        x = questions(buckets, x)
        kv = u @ jnp.concatenate([params["block.k"], params["block.v"]], 1)
        q = jax.lax.split(questions(buckets, u) @ params["block.q"], [b.size for b in buckets])
    else:
        qkv = u @ jnp.concatenate([params["block.q"], params["block.k"], params["block.v"]], 1)
        q, kv = jax.lax.split(qkv, [width, 2 * width], 1)
        q = rows_of(buckets, q)
    k, v = (rows_of(buckets, part) for part in jax.lax.split(kv, [width, width], 1))
    parts = [attend(*of_bucket, n, heads, dropped) for of_bucket in zip(buckets, q, k, v, strict=True)]
    a = x + jnp.concatenate(parts) @ params["block.o"]
    f = layer_norm(params, "block.norm2", a)
    for layer in range(1, count_layers(params) + 1):
        f = jax.nn.relu(f @ params[f"block.hidden{layer}.w"] + params[f"block.hidden{layer}.b"])
    return a + f @ params["block.out.w"] + params["block.out.b"]


def read(params: Params, question: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prediction `[..., outputs]` and halting logit `[...]` of questions `[..., embedding]`."""
    weights = jnp.concatenate([params["output.w"], params["halt.w"]], 1)
    both = layer_norm(params, "final", question) @ weights + jnp.concatenate([params["output.b"], params["halt.b"]])
    return both[..., :-1], both[..., -1]


def begin(
    model: Transformer, params: Params, inputs: Mapping[str, jax.Array], steps: int
) -> tuple[list[Bucket], jax.Array]:
    """The buckets of inputs that are to be run for so many steps, and h₀ `[tokens, embedding]`."""
    check_inputs(model, inputs, steps)
    buckets = make_buckets(inputs)
    words = jnp.concatenate([inputs[f"words.{b.length}"].reshape(-1, model.tokens) for b in buckets])
    return buckets, encode(params, words) + places(params, buckets)


def transformer_unroll(
    model: Transformer, params: Params, inputs: Mapping[str, jax.Array], max_steps: int, rule: HaltRule | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, the questions' last states and Nᵢ."""
    buckets, h = begin(model, params, inputs, max_steps)
    batch, d = sum(b.size for b in buckets), model.embedding
    # Steps are run while an example has not had enough of them; without a rule always.
    nothing = jnp.zeros((batch, d), h.dtype)
    carry = h, jnp.zeros(batch, h.dtype), jnp.zeros(batch, jnp.int32)

    def run(carry, n, *, last: bool = False):
        h, total, lengths = carry
        h = advance(params, buckets, h, n, model.heads, dropped_share(model), last=last)
        question = h if last else questions(buckets, h)
        if rule is not None:
            total = total + rule.add(jax.lax.stop_gradient(read(params, question)[1]))
            lengths = jnp.where((lengths == 0) & rule.enough(total) & (n >= rule.min_steps), n, lengths)
        return (carry[0] if last else h, total, lengths), question

    def body(carry, n, *, last: bool = False):
        if rule is None:
            return run(carry, n, last=last)
        going_on = on_any((carry[2] == 0).any())
        after, question = either(going_on, partial(run, last=last), lambda carry, n: (carry, nothing), carry, n)
        return vary_like(after, carry), question

    carry = settle_axes(lambda carry: run(carry, jnp.int32(1))[0], carry)
    carry, states = jax.lax.scan(body, carry, jnp.arange(1, max_steps, dtype=jnp.int32))
    carry, question = body(carry, jnp.int32(max_steps), last=True)
    states = jnp.concatenate([states, question[None]])
    lengths = jnp.where(carry[2] > 0, carry[2], max_steps)
    y_hat, z = read(params, states)
    state = jnp.take_along_axis(states, lengths[None, :, None] - 1, 0)[0]
    return y_hat, z, state, lengths


class Step(CanonicalStep):
    """The Transformer as a step network: x is words `[b, L, tokens]`, or the dict of buckets of a training.

    The state has every row's number of steps: {"h": `[b, L, embedding]`, "n": `[b]`}. Examples of several buckets are
    put into one of the largest length, shortest first, when the steps are run one by one.
    """

    settings: Transformer
    OWN_METHODS = ("ut-act",)  # every row of an example halts by itself

    def project(self, x: Any) -> dict[str, jax.Array]:
        """{"words": `[b, L, tokens]`}, with dropout also {"kept": `[b, steps, heads, L, L]`}."""
        inputs = as_buckets(x)
        check_inputs(self.settings, inputs, 1)
        lengths = bucket_lengths(inputs)
        words = [pad_front(inputs[f"words.{length}"], lengths[-1], (1,)) for length in lengths]
        projected = {"words": jnp.concatenate(words)}
        if len(inputs) > len(lengths):
            projected["kept"] = jnp.concatenate([all_kept(inputs, length, lengths[-1]) for length in lengths])
        return projected

    def initial_state(self, x: dict[str, jax.Array]) -> dict[str, jax.Array]:
        words = x["words"]
        return {"h": transformer_encode(self.params(), words), "n": jnp.zeros(len(words), jnp.int32)}

    def __call__(self, x: dict[str, jax.Array], state: dict[str, jax.Array]) -> tuple[jax.Array, Any, jax.Array]:
        params, n = self.params(), state["n"] + 1
        rule: dict[str, Any] = {"heads": self.settings.heads, "dropout": dropped_share(self.settings)}
        if "kept" in x:
            rule["kept"] = jnp.take_along_axis(x["kept"], n[:, None, None, None, None] - 1, 1)[:, 0]
        h = transformer_transition(params, x["words"], state["h"], n, **rule)
        y_hat, z = transformer_readout(params, h)
        return y_hat, {"h": h, "n": n}, z

    def unroll(self, x: Any, max_steps: int, rule: HaltRule | None) -> tuple | None:
        """All steps at once; the state is the question's alone, `[b, embedding]`: the last row of h step by step."""
        return transformer_unroll(self.settings, self.params(), as_buckets(x), max_steps, rule)

    def unroll_by(self, method: str, x: Any, *, max_steps: int, act_epsilon: float) -> Pondered:
        """What `PonderNet` gives for the method "ut-act" (M9, "Halting row by row")."""
        from ponder_jax.models._ut_act import ut_act_unroll

        del method  # there is one
        return ut_act_unroll(self.settings, self.params(), as_buckets(x), max_steps, act_epsilon)


def as_buckets(x: Any) -> Any:
    """Words as a dict of one bucket; a dict as it is."""
    return x if isinstance(x, Mapping) or jnp.ndim(x) != 3 else {f"words.{x.shape[1]}": x}


def pad_front(x: jax.Array, length: int, axes: tuple[int, ...]) -> jax.Array:
    """Zeros in front of some axes, up to a length."""
    return jnp.pad(x, [(length - size if axis in axes else 0, 0) for axis, size in enumerate(x.shape)])


def all_kept(inputs: Mapping[str, jax.Array], length: int, largest: int) -> jax.Array:
    """What dropout leaves in a bucket at all steps, padded to the largest: `[size, steps, heads, L, L]`."""
    if f"dropout.{length}" not in inputs:
        raise ValueError(f"inputs must have dropout for all buckets or for none, got none for length {length}")
    bits = inputs[f"dropout.{length}"]
    kept = jax.vmap(partial(unpack, bits, length))(jnp.arange(1, len(bits) + 1))
    return pad_front(jnp.moveaxis(kept, 0, 1), largest, (3, 4))


def transformer_encode(params: Params, words: jax.Array) -> jax.Array:
    """h₀ `[..., L, embedding]` of words `[..., L, tokens]` (M9)."""
    rows = words.reshape(-1, *words.shape[-2:])
    h = encode(params, rows.reshape(-1, rows.shape[-1])) + places(params, [make_bucket(rows, None)])
    return h.reshape(*words.shape[:-1], -1)


def transformer_transition(
    params: Params,
    words: jax.Array,
    h: jax.Array,
    step: int | jax.Array,
    *,
    heads: int,
    kept: jax.Array | None = None,
    dropout: float = 0.0,
) -> jax.Array:
    """hₙ `[..., L, embedding]` of hₙ₋₁ for n = `step`; dropout leaves the weights `kept` `[..., heads, L, L]`.

    A batch `[b, L, embedding]` may have rows at different steps, `[b]`.
    """
    rows = words.reshape(-1, *words.shape[-2:])
    masks = None if kept is None else kept.reshape(-1, *kept.shape[-3:])
    bucket = make_bucket(rows, None if masks is None else lambda n: masks)
    return advance(params, [bucket], h.reshape(-1, h.shape[-1]), step, heads, dropout).reshape(h.shape)


def transformer_readout(params: Params, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prediction `[..., outputs]` and halting logit `[...]` of the question, the last row of h (M9)."""
    return read(params, h[..., -1, :])
