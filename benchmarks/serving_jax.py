"""Contenders of `python -m benchmarks inference` in JAX: fixed N, the usual exit of the whole batch, predict."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ponder_jax

Result = tuple[int, np.ndarray]  # rows given to the step network, and the steps of each example


def rnn_step(params: dict[str, jax.Array], x: Any, h: jax.Array):
    """The parity RNN; its halting logits are given, and the head that would make them is computed all the same."""
    h = jnp.tanh(x["x"] + h @ params["recurrent"])
    both = h @ params["out"]
    return both[..., 0], h, x["z"] + 0 * both[..., 1]


def _normed(h: jax.Array) -> jax.Array:
    h = h - h.mean(-1, keepdims=True)
    return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5)


def transformer_step(params: dict[str, jax.Array], x: Any, h: jax.Array):
    """A pre-norm transformer block that sees its input at every step; mean of the tokens for the heads."""
    h = h + x["x"]
    rows, tokens, width = h.shape
    q, k, v = jnp.moveaxis((_normed(h) @ params["qkv"]).reshape(rows, tokens, 3, -1, min(32, width)), 2, 0)
    h = h + jax.nn.dot_product_attention(q, k, v).reshape(h.shape) @ params["mix"]
    h = h + jax.nn.gelu(_normed(h) @ params["up"], approximate=False) @ params["down"]
    both = h.mean(1) @ params["out"]
    return both[..., 0], h, x["z"] + 0 * both[..., 1]


STEPS = {"rnn": rnn_step, "transformer": transformer_step}


@partial(jax.jit, static_argnames="network")
def _fixed(network: str, params, x, h, steps):
    """Batches `[batches, batch, ...]` one after the other, `steps` steps each."""

    def one(batch):
        some, state = batch

        def body(_, carry):
            y_hat, state, _ = STEPS[network](params, some, carry[0])
            return state, y_hat

        return jax.lax.fori_loop(0, steps, body, (state, jnp.zeros(len(state))))[1]

    return jax.lax.map(one, (x, h))


@partial(jax.jit, static_argnames="network")
def _whole_batch(network: str, params, x, h, uniforms, steps):
    """Batches one after the other, each left when all of its examples have halted; their rows and steps."""

    def one(batch):
        some, state, u = batch

        def body(carry):
            n, state, answer, halted = carry
            y_hat, state, z = STEPS[network](params, some, state)
            drawn = jax.lax.dynamic_index_in_dim(u, n, 1, keepdims=False) < jax.nn.sigmoid(z)
            now = (halted == 0) & (drawn | (n + 1 == steps))
            return n + 1, state, jnp.where(now, y_hat, answer), jnp.where(now, n + 1, halted)

        start = jnp.int32(0), state, jnp.zeros(len(state)), jnp.zeros(len(state), jnp.int32)
        n, _, answer, halted = jax.lax.while_loop(lambda carry: (carry[3] == 0).any(), body, start)
        return answer, n * len(state), halted

    return jax.lax.map(one, (x, h, uniforms))


class Runs:
    """Runs of one network: a number of steps to a result. Warm-up is a run of one step, of the same shapes."""

    def __init__(self, network: str, data: np.ndarray, width: int, slots: int, seed: int, limit: int):
        rng, shapes = np.random.default_rng(0), {"recurrent": (width, width), "out": (width, 2)}
        if network == "transformer":
            shapes |= {"qkv": (width, 3 * width), "mix": (width, width), "up": (width, 4 * width)}
            shapes |= {"down": (4 * width, width)}
        scales = {name: shape[0] ** -0.5 for name, shape in shapes.items()}
        self.params = {name: jnp.asarray(rng.normal(size=s) * scales[name], jnp.float32) for name, s in shapes.items()}
        self.network, self.x, self.slots, self.seed = network, jnp.asarray(data), slots, seed
        ids = jnp.arange(len(data))
        self.uniforms = ponder_jax.halting_uniforms(seed, ids, max_steps=limit).T
        self.step = jax.tree_util.Partial(STEPS[network], self.params)

    def _batched(self, logit: float, batch: int) -> Any:
        """Input, state and uniforms as `[batches, batch, ...]`; the number of examples is a multiple of the batch."""
        x, h = self._inputs(logit)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, batch, *leaf.shape[1:]), (x, h, self.uniforms))

    def _inputs(self, logit: float) -> Any:
        return {"x": self.x, "z": jnp.full(len(self.x), logit, jnp.float32)}, jnp.zeros_like(self.x)

    def fixed(self, logit: float, steps: int, batch: int | None = None) -> Result:
        x, h, _ = self._batched(logit, batch or self.slots)
        jax.block_until_ready(_fixed(self.network, self.params, x, h, steps))
        return len(self.x) * steps, np.full(len(self.x), steps)

    def whole_batch(self, logit: float, steps: int, batch: int | None = None) -> Result:
        x, h, u = self._batched(logit, batch or self.slots)
        _, rows, taken = jax.block_until_ready(_whole_batch(self.network, self.params, x, h, u, steps))
        return int(rows.sum()), np.asarray(taken).ravel()

    def predict(self, logit: float, steps: int, slots: int | None) -> Result:
        out = ponder_jax.predict(self.step, *self._inputs(logit), max_steps=steps, seed=self.seed, slots=slots)
        jax.block_until_ready(out)
        return int(out.rows), np.asarray(out.steps)
