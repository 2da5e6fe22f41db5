"""Losses of a prediction, entry by entry (spec M5); axes beyond the batch are averaged by `training_loss`."""

import torch
from torch.nn.functional import logsigmoid

from ponder_ref import checks
from ponder_torch.arrays import as_float


def cross_entropy(y_hat: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """−log softmax(ŷ) at the target class: y_hat `[..., classes]`, targets `[...]` integers.

    A target that is no class is an error that torch raises where it can see it.
    """
    checks.check_classes(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    return -torch.log_softmax(y_hat, -1).gather(-1, targets.long()[..., None])[..., 0]


def binary_cross_entropy(y_hat: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """−t·log σ(ŷ) − (1−t)·log σ(−ŷ), y_hat (logits) and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    targets = targets.to(y_hat.dtype)
    return -targets * logsigmoid(y_hat) - (1 - targets) * logsigmoid(-y_hat)


def squared_error(y_hat: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """(ŷ − t)², y_hat and targets of one shape."""
    checks.check_like_targets(y_hat, targets)
    (y_hat,) = as_float(y_hat)
    difference = y_hat - targets.to(y_hat.dtype)
    return difference * difference
