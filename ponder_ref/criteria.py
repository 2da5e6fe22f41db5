"""Losses of a prediction, entry by entry (spec M5); axes beyond the batch are averaged by `training_loss`."""

import numpy as np

from ponder_ref import checks
from ponder_ref.halting import as_float, log_sigmoid


def cross_entropy(y_hat, targets) -> np.ndarray:
    """−log softmax(ŷ) at the target class: y_hat `[..., classes]`, targets `[...]` integers."""
    checks.check_classes(y_hat, targets)
    y_hat, targets = as_float(y_hat), np.asarray(targets)
    if ((targets < 0) | (targets >= y_hat.shape[-1])).any():
        raise ValueError(f"targets must be classes in 0..{y_hat.shape[-1] - 1}, got {targets.min()}..{targets.max()}")
    y_hat = y_hat - np.real(y_hat).max(axis=-1, keepdims=True)
    picked = np.take_along_axis(y_hat, targets[..., None], axis=-1)[..., 0]
    return np.log(np.exp(y_hat).sum(axis=-1)) - picked


def binary_cross_entropy(y_hat, targets) -> np.ndarray:
    """−t·log σ(ŷ) − (1−t)·log σ(−ŷ), y_hat (logits) and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    y_hat, targets = as_float(y_hat), as_float(targets)
    return -targets * log_sigmoid(y_hat) - (1 - targets) * log_sigmoid(-y_hat)


def squared_error(y_hat, targets) -> np.ndarray:
    """(ŷ − t)², y_hat and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    difference = as_float(y_hat) - as_float(targets)
    return difference * difference
