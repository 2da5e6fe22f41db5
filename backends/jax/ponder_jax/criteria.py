"""Losses of a prediction, entry by entry (spec M5); axes beyond the batch are averaged by `training_loss`."""

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid

from ponder_jax.arrays import as_float
from ponder_ref import checks


def cross_entropy(y_hat: jax.Array, targets: jax.Array) -> jax.Array:
    """−log softmax(ŷ) at the target class: y_hat `[..., classes]`, targets `[...]` integers; NaN for no class."""
    checks.check_classes(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    targets = targets.astype(jnp.promote_types(targets.dtype, jnp.int32))  # a narrow one may not hold all classes
    targets = jnp.where(targets < 0, y_hat.shape[-1], targets)  # else counted from the end
    return -jnp.take_along_axis(jax.nn.log_softmax(y_hat, -1), targets[..., None], -1, mode="fill")[..., 0]


def binary_cross_entropy(y_hat: jax.Array, targets: jax.Array) -> jax.Array:
    """−t·log σ(ŷ) − (1−t)·log σ(−ŷ), y_hat (logits) and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    targets = targets.astype(y_hat.dtype)
    return -targets * log_sigmoid(y_hat) - (1 - targets) * log_sigmoid(-y_hat)


def squared_error(y_hat: jax.Array, targets: jax.Array) -> jax.Array:
    """(ŷ − t)², y_hat and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    difference = y_hat - targets.astype(y_hat.dtype)
    return difference * difference
