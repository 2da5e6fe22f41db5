"""A step network for Sudoku in Flax: each step, the cells of a row, a column and a box tell each other what they hold.

`python -m tasks.sudoku --backend jax` trains it; `ponder_jax.load(RUN, build=build)` returns it trained.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import normal, variance_scaling

from ponder_jax import PonderNet
from ponder_ref.runtime.network import Problem
from tasks.sudoku.puzzles import peers

WIDTH = 48  # numbers in a cell's state


class Step(nnx.Module):
    """One round of messages. x and h are `[B, cells, WIDTH]`: the clues as vectors, and the state of each cell.

    Each cell sees its state, its clue, and the sum of the messages of the other cells in its row, column and box.
    """

    def __init__(self, size: int, rngs: nnx.Rngs):
        self.size = size
        self.clues = nnx.Embed(size + 1, WIDTH, embedding_init=normal(1.0), rngs=rngs)  # 0 is a blank
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        # Smaller weights than Flax has by default: those of torch, ±1/√inputs.
        linear = partial(nnx.Linear, kernel_init=variance_scaling(1 / 3, "fan_in", "uniform"), rngs=rngs)
        self.message = linear(WIDTH, WIDTH)
        self.think = linear(5 * WIDTH, 2 * WIDTH)
        self.update = linear(2 * WIDTH, WIDTH)
        self.answer = linear(WIDTH, size)
        self.halt = linear(2 * WIDTH, 1)

    def project(self, x: jax.Array) -> jax.Array:
        """The cells, `[B, cells]` integers 0..size, as vectors."""
        return self.clues(x)

    def initial_state(self, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x)

    def __call__(self, x: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Logits of the digits `[B, cells, size]`, the next state, and one halting logit per puzzle `[B]`."""
        state = self.norm(h)
        connected = jnp.asarray(peers(self.size), h.dtype)
        heard = jnp.einsum("ucd,bdk->bcuk", connected, jnp.tanh(self.message(state + x)))
        thought = nnx.relu(self.think(jnp.concatenate([state, x, heard.reshape(*h.shape[:2], -1)], axis=-1)))
        h = h + self.update(thought)
        return self.answer(h), h, self.halt(thought).mean(axis=(1, 2))


def build(problem: Problem) -> PonderNet:
    """The network of a run: `problem.outputs` digits per cell."""
    return PonderNet(Step(problem.outputs, nnx.Rngs(problem.seed)), **problem.halting)
