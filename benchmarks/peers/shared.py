"""What the adapters have in common: axes, autograd, and the options of the standard that no peer has.

Both peers know batches of one axis, means over whole batches, and one remainder rule. Other batch shapes and the
losses of single examples are built out of the peer's own function, by calling it on parts of the batch. Nothing a
peer computes is changed. `remainder="normalize"`, `lengths` and `weights` are not offered, and the judge does not
ask for them.
"""

from collections.abc import Callable

import torch

from ponder_ref.base import PonderLoss
from ponder_ref.conformance.interface import FUNCTIONS
from ponder_torch.arrays import from_numpy, to_numpy

__all__ = [
    "UNKNOWN",
    "flat",
    "from_numpy",
    "halting",
    "log_of",
    "losses",
    "not_offered",
    "one_by_one",
    "probabilities",
    "to_numpy",
    "value_and_grad",
    "weighted_mean",
]

UNKNOWN = ("H3", "H4", "L3")


def not_offered(offered: tuple[str, ...], *requirements: str) -> tuple[str, ...]:
    """NOT_OFFERED: every function that is not named, the transforms no peer speaks of, and the requirements."""
    return (*(name for name in FUNCTIONS if name not in offered), "compiled", "vmapped", *UNKNOWN, *requirements)


def value_and_grad(fn: Callable, *arrays: torch.Tensor, constants: tuple = ()):
    """The scalar fn(*arrays, *constants) and its gradients by arrays, by plain autograd, with which the peers train."""
    leaves = [x.detach().clone().requires_grad_() for x in arrays]
    value = fn(*leaves, *constants)
    return value, torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)


def flat(x: torch.Tensor) -> torch.Tensor:
    """`[N, ...batch]` as the `[N, B]` that the peers take."""
    return x.flatten(1) if x.ndim > 1 else x.unsqueeze(1)


def log_of(p: torch.Tensor) -> torch.Tensor:
    """log p that remembers its p: no gradient of a loss then passes through a logarithm that the peer does not take."""
    log_p = p.log()
    log_p.peer_p = p  # pyright: ignore[reportAttributeAccessIssue]
    return log_p


def probabilities(log_p: torch.Tensor) -> torch.Tensor:
    """The p of a log p."""
    p = getattr(log_p, "peer_p", None)
    return log_p.exp() if p is None else p


def halting(peer: Callable, x: torch.Tensor, remainder: str, lengths: torch.Tensor | None) -> torch.Tensor:
    """p `[N, ...batch]` by the peer's function of `[N, B]`, which has one rule and no lengths."""
    if remainder != "last" or lengths is not None:
        raise ValueError(f"remainder must be 'last' and lengths None, got {remainder!r} and {lengths!r}")
    return peer(flat(x)).reshape(x.shape)


def one_by_one(scalar: Callable, shape: torch.Size, *arrays: torch.Tensor) -> torch.Tensor:
    """The peer's scalar for each example as a batch of one, `[...batch]`: the peers return nothing but batch means."""
    examples = zip(*(flat(x).split(1, dim=1) for x in arrays), strict=True)
    return torch.stack([scalar(*example) for example in examples]).reshape(shape)


def weighted_mean(values: torch.Tensor, weights: None = None) -> torch.Tensor:
    """The batch mean of the peers, `.mean()`; they know no weights."""
    if weights is not None:
        raise ValueError("weights must be None: the peer has none")
    return values.mean()


def losses(rec: Callable, reg: Callable, total: Callable) -> tuple[Callable, Callable, Callable]:
    """expected_loss, kl_divergence and ponder_loss by a peer's scalars of a batch `[N, B]`.

    They are rec(p, step_losses), reg(p, log_prior) and total(p, step_losses, log_prior, beta), the prior being `[N]`.
    """

    def expected_loss(log_p, step_losses):
        return one_by_one(rec, log_p.shape[1:], probabilities(log_p), step_losses)

    def kl_divergence(log_p, log_prior):
        p = probabilities(log_p)
        if log_prior.ndim == 1:
            return one_by_one(lambda one: reg(one, log_prior), log_p.shape[1:], p)
        return one_by_one(reg, log_p.shape[1:], p, log_prior)

    def ponder_loss(log_p, step_losses, log_prior, *, beta, weights=None) -> PonderLoss:
        example_rec, example_reg = expected_loss(log_p, step_losses), kl_divergence(log_p, log_prior)
        p, flat_losses = flat(probabilities(log_p)), flat(step_losses)
        loss_rec = rec(p, flat_losses)
        if log_prior.ndim > 1:  # the peers have one prior a batch
            loss_reg = example_reg.mean()
            return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, example_rec, example_reg)
        loss, loss_reg = total(p, flat_losses, log_prior, beta), reg(p, log_prior)
        return PonderLoss(loss, loss_rec, loss_reg, example_rec, example_reg)

    return expected_loss, kl_divergence, ponder_loss
