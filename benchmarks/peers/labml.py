"""labml-nn 0.5.1 on trial: `labml_nn.adaptive_computation.ponder_net`.

| ours | what runs |
|---|---|
| `log_halting` | the loop of `ParityPonderGRU.forward` itself: its GRU is replaced by one that hands out the given logits, its two layers by identities; then `p.log()`, as in `RegularizationLoss` |
| `geometric_log_prior` | `RegularizationLoss(lambda_p, max_steps).p_g.log()`; the peer has one rule, so `remainder` makes no difference |
| `expected_loss` | `ReconstructionLoss` on each example as a batch of one; the loss function given to it returns `step_losses` |
| `kl_divergence` | `RegularizationLoss` on each example as a batch of one, with exp(log_prior) in the place of its `p_g` |
| `weighted_mean` | `.mean()` |
| `ponder_loss` | both losses on the whole batch, added as in the peer's `experiment.py`: loss_rec + beta * loss_reg |
| `value_and_grad` | torch's autograd |

Built by the adapter (see `shared`): `remainder="normalize"` (one step more than N, the last dropped, divided by the sum), `lengths`, `weights`.
Not offered: the peer samples with torch's global generator, without seeds or example ids, so there is no `draw_steps`; the expected steps are
written out in its training script only.
"""

from importlib import import_module

import torch
from torch import nn

from benchmarks.peers import shared
from benchmarks.peers.shared import from_numpy, to_numpy, value_and_grad, weighted_mean  # noqa: F401 (part of the interface)
from ponder_ref.interface import PonderLoss

peer = import_module("labml_nn.adaptive_computation.ponder_net")

NAME = "labml-nn"
DISTRIBUTION = "labml-nn"
DTYPES = ("float64", "float32")
OFFERED = ("log_halting", "geometric_log_prior", "expected_loss", "kl_divergence", "weighted_mean", "ponder_loss")
NOT_OFFERED = shared.not_offered(OFFERED, "P2")


class _Feed(nn.Module):
    """In the place of the GRU cell: the n-th state is the n-th logit."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        n = min(self.calls, x.shape[1] - 1)  # the peer asks for one state more than it uses
        self.calls += 1
        return x[:, n : n + 1]


def _halting(z: torch.Tensor, remainder: str) -> torch.Tensor:
    """p `[N, B]` of logits `[N, B]` by the peer's forward pass."""
    z = z if remainder == "last" else torch.cat([z, z[-1:]])
    model = peer.ParityPonderGRU(n_elems=1, n_hidden=1, max_steps=len(z))
    model.gru, model.lambda_layer, model.output_layer = _Feed(), nn.Identity(), nn.Identity()
    p = model(z.T)[0]
    return p if remainder == "last" else p[:-1] / p[:-1].sum(0)


def log_halting(halt_logits, *, remainder="last", lengths=None):
    return shared.log_of(shared.truncated(_halting, halt_logits, remainder, lengths))


def geometric_log_prior(lambda_p, max_steps, *, remainder="normalize", dtype="float32"):
    return peer.RegularizationLoss(lambda_p, max_steps).p_g.log().to(getattr(torch, dtype))


def _rec(p: torch.Tensor, step_losses: torch.Tensor) -> torch.Tensor:
    """`ReconstructionLoss` of `[N, B]`: a scalar."""
    return peer.ReconstructionLoss(lambda y_hat, y: y_hat)(p, step_losses, None)


def _reg(p: torch.Tensor, log_prior: torch.Tensor) -> torch.Tensor:
    """`RegularizationLoss` of `[N, B]` with another prior, `[N]` or `[N, 1]`: a scalar."""
    loss = peer.RegularizationLoss(0.5, max_steps=1)
    loss.p_g = nn.Parameter(log_prior.detach().exp().reshape(-1), requires_grad=False)
    return loss(p)


def expected_loss(log_p, step_losses):
    return shared.one_by_one(_rec, log_p.shape[1:], shared.probabilities(log_p), step_losses)


def kl_divergence(log_p, log_prior):
    p = shared.probabilities(log_p)
    if log_prior.ndim == 1:
        return shared.one_by_one(lambda one: _reg(one, log_prior), log_p.shape[1:], p)
    return shared.one_by_one(_reg, log_p.shape[1:], p, log_prior)


def ponder_loss(log_p, step_losses, log_prior, *, beta, weights=None) -> PonderLoss:
    example_rec, example_reg = expected_loss(log_p, step_losses), kl_divergence(log_p, log_prior)

    def whole():
        p = shared.flat(shared.probabilities(log_p))
        loss_rec = _rec(p, shared.flat(step_losses))
        loss_reg = _reg(p, log_prior) if log_prior.ndim == 1 else example_reg.mean()  # the peer has one prior a batch
        return loss_rec + beta * loss_reg, loss_rec, loss_reg

    return shared.assemble(whole, example_rec, example_reg, weights, beta)


CAUSES: dict[str, str] = {}


def observations() -> list[str]:
    """What the table cannot show."""
    return []
