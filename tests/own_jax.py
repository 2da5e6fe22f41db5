"""A network of somebody's own in flax, for `--model`: what is drawn or counted in it must survive a resume."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from ponder_jax import PonderNet


class Cell(nnx.Module):
    """A recurrent layer with dropout and running statistics; an input of several axes is taken as one vector."""

    def __init__(self, problem, width: int = 24):
        rngs, size = nnx.Rngs(problem.seed), math.prod(problem.inputs.shape)
        self.width, self.binary = width, problem.output == "binary"
        self.norm, self.drop = nnx.BatchNorm(size, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)
        self.mix = nnx.Linear(size + width, width, rngs=rngs)
        self.heads = nnx.Linear(width, problem.outputs + 1, rngs=rngs)
        self.shift = nnx.Variable(jax.random.normal(rngs.params(), (size,)))  # is not trained

    def initial_state(self, x):
        return jnp.zeros((len(x), self.width), self.heads.kernel.dtype)

    def __call__(self, x, h):
        flat = self.norm(x.reshape(len(x), -1).astype(h.dtype)) + self.shift
        h = jnp.tanh(self.mix(jnp.concatenate([flat, h], -1)))
        out = self.heads(self.drop(h))
        return (out[:, 0] if self.binary else out[:, :-1]), h, out[:, -1]


def build(problem) -> PonderNet:
    return PonderNet(Cell(problem), **problem.halting)


class Wrong(Cell):
    """One that answers with two numbers where one is asked."""

    def __call__(self, x, h):
        y_hat, h, z = super().__call__(x, h)
        return jnp.stack([y_hat, y_hat], -1), h, z


def wrong(problem) -> PonderNet:
    return PonderNet(Wrong(problem), **problem.halting)


def other(problem) -> PonderNet:
    """One that does not ponder as the command line says."""
    return PonderNet(Cell(problem), **{**problem.halting, "max_steps": 3})
