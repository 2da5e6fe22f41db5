"""What the adapters have in common: axes, autograd, and the options of the standard that no peer has.

Both peers know batches of one axis, means over whole batches, and one remainder rule. The judge mixes other
batch shapes, `remainder="normalize"`, `lengths` and `weights` into checks of requirements that a peer does
answer for, so the adapters build those options out of the peer's own function, by calling it on parts of the
batch. Nothing a peer computes is changed, and what is built here is not judged: H3, H4 and L3 are in
`NOT_OFFERED`.
"""

from collections.abc import Callable

import torch

from ponder_ref.interface import FUNCTIONS, PonderLoss
from ponder_torch.arrays import from_numpy, to_numpy

__all__ = [
    "BUILT_HERE",
    "flat",
    "from_numpy",
    "log_of",
    "losses",
    "not_offered",
    "one_by_one",
    "probabilities",
    "to_numpy",
    "truncated",
]
__all__ += ["value_and_grad", "weighted_mean"]

BUILT_HERE = ("H3", "H4", "L3")


def not_offered(offered: tuple[str, ...], *requirements: str) -> tuple[str, ...]:
    """NOT_OFFERED: every function that is not named, the transforms no peer speaks of, and the requirements."""
    return (*(name for name in FUNCTIONS if name not in offered), "compiled", "vmapped", *BUILT_HERE, *requirements)


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


def truncated(peer: Callable, x: torch.Tensor, remainder: str, lengths: torch.Tensor | None) -> torch.Tensor:
    """p `[N, ...batch]` by the peer's function of `[N, B]` and the remainder rule.

    Examples of length Nᵢ are run with Nᵢ steps and have zeros behind.
    """
    if remainder not in ("last", "normalize"):
        raise ValueError(f"remainder must be 'last' or 'normalize', got {remainder!r}")
    columns = flat(x)
    if lengths is None:
        return peer(columns, remainder).reshape(x.shape)
    p = torch.zeros_like(columns)
    for length in lengths.unique().tolist():
        rows = lengths.reshape(-1) == length
        p[:length, rows] = peer(columns[:length, rows], remainder)
    return p.reshape(x.shape)


def one_by_one(scalar: Callable, shape: torch.Size, *arrays: torch.Tensor) -> torch.Tensor:
    """The peer's scalar for each example as a batch of one, `[...batch]`: the peers return nothing but batch means."""
    examples = zip(*(flat(x).split(1, dim=1) for x in arrays), strict=True)
    return torch.stack([scalar(*example) for example in examples]).reshape(shape)


def weighted_mean(values: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """The batch mean of the peers, `.mean()`; with weights, which they do not know, built here."""
    if weights is None:
        return values.mean()
    weights = weights.to(values.dtype)
    return (weights * torch.where(weights == 0, 0.0, values)).sum() / weights.sum()


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
        if weights is not None:  # the peers know no weights
            return weighted(example_rec, example_reg, weights, beta)
        p, flat_losses = flat(probabilities(log_p)), flat(step_losses)
        loss_rec = rec(p, flat_losses)
        if log_prior.ndim > 1:  # the peers have one prior a batch
            loss_reg = example_reg.mean()
            return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, example_rec, example_reg)
        loss, loss_reg = total(p, flat_losses, log_prior, beta), reg(p, log_prior)
        return PonderLoss(loss, loss_rec, loss_reg, example_rec, example_reg)

    return expected_loss, kl_divergence, ponder_loss


def weighted(example_rec: torch.Tensor, example_reg: torch.Tensor, weights: torch.Tensor, beta) -> PonderLoss:
    """The parts of L4 with weights, built here."""
    rec, reg = (torch.where(weights == 0, 0.0, x) for x in (example_rec, example_reg))
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    return PonderLoss(loss_rec + beta * loss_reg, loss_rec, loss_reg, rec, reg)
