"""labml-nn 0.5.1 on trial: `labml_nn.adaptive_computation.ponder_net`.

What runs behind each function of the interface:

- `log_halting`: the loop of `ParityPonderGRU.forward` itself. Its GRU is replaced by one that hands out the
  given logits, its two layers by identities. Then `p.log()`, as in `RegularizationLoss`.
- `geometric_log_prior`: `RegularizationLoss(lambda_p, max_steps).p_g.log()`. The peer has one rule: `remainder`
  makes no difference.
- `expected_loss`: `ReconstructionLoss` on each example as a batch of one, its loss function returning
  `step_losses`.
- `kl_divergence`: `RegularizationLoss` on each example as a batch of one, exp(log_prior) in the place of its
  `p_g`.
- `weighted_mean`: `.mean()`.
- `ponder_loss`: both losses on the whole batch, added as in the peer's `experiment.py`, loss_rec + beta *
  loss_reg.
- `value_and_grad`: torch's autograd.

Built by the adapter (see `shared`): a prior for each example. Not offered: `remainder="normalize"`, `lengths` and
`weights`, which the peer does not have; it samples with torch's global
generator, without seeds or example ids, so there is no `draw_steps`; the expected steps are written out in its
training script only.
"""

from collections.abc import Callable
from importlib import import_module

import torch
from torch import nn

from benchmarks.peers import shared
from benchmarks.peers.shared import from_numpy, to_numpy, value_and_grad, weighted_mean  # noqa: F401 (part of the interface)

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


def _model(steps: int):
    """The peer's model of so many steps, its input `[B, N]` being the logits."""
    model = peer.ParityPonderGRU(n_elems=1, n_hidden=1, max_steps=steps)
    model.gru, model.lambda_layer, model.output_layer = _Feed(), nn.Identity(), nn.Identity()
    return model


def _halting(z: torch.Tensor) -> torch.Tensor:
    """p `[N, B]` of logits `[N, B]` by the peer's forward pass."""
    return _model(len(z))(z.T)[0]


def log_halting(halt_logits, *, remainder="last", lengths=None):
    return shared.log_of(shared.halting(_halting, halt_logits, remainder, lengths))


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


def _total(p: torch.Tensor, step_losses: torch.Tensor, log_prior: torch.Tensor, beta) -> torch.Tensor:
    """The sum of the two as in the peer's `experiment.py`."""
    return _rec(p, step_losses) + beta * _reg(p, log_prior)


expected_loss, kl_divergence, ponder_loss = shared.losses(_rec, _reg, _total)


def training_loss(log_prior: torch.Tensor, beta: float) -> Callable:
    """The peer's loss of logits and step losses `[N, B]`, its modules built once: for measuring speed."""
    model, rec = _model(len(log_prior)), peer.ReconstructionLoss(lambda y_hat, y: y_hat)
    reg = peer.RegularizationLoss(0.5, max_steps=1)
    reg.p_g = nn.Parameter(log_prior.exp(), requires_grad=False)

    def loss(z: torch.Tensor, step_losses: torch.Tensor) -> torch.Tensor:
        model.gru.calls = 0
        p = model(z.T)[0]
        return rec(p, step_losses, None) + beta * reg(p)

    return loss


# Why, read in the peer's code; the adapter and the unmodified model give the same p and the same loss.
_UNDERFLOW = (
    "p is carried as a product of λ and 1 − λ, and `RegularizationLoss` takes its logarithm. 1 − σ(z) is 0 from about"
    " z = 17 in float32 (37 in float64) on, σ(z) is 0 below about −88 (−710), and log p is −inf there"
)
_DIRECTION = "the KL is KL(prior ‖ p): `KLDivLoss(p.log(), p_g)` sums p_g·(log p_g − log p)"
CAUSES = {
    "H1": f"At moderate logits it agrees, but {_UNDERFLOW}.",
    "H2": f"The rule is that of H2 (λ_N = 1), but {_UNDERFLOW}.",
    "H10": f"As H1: {_UNDERFLOW}.",
    "P1": "The prior is cut off at N, neither normalised nor with its tail on N, and is computed in float32.",
    "L1": "Impossible steps are multiplied by 0, not left out, so that 0·NaN is NaN; with finite losses it agrees.",
    "L2": f"In place of KL(p ‖ prior), {_DIRECTION}.",
    "L4": f"The parts are added as they should be, but {_DIRECTION}.",
    "L5": f"The objective is another one: {_DIRECTION}.",
    "B3": "The sum over steps is kept in the dtype of p: with p in float32 and losses in float64, digits are lost.",
    "B4": "Arguments are not checked; what is raised comes from torch.",
    "B6": "`torch.bernoulli(lambda_n)` in the forward pass raises if one λ of the batch is NaN: one example ends all.",
}


def observations() -> list[str]:
    """What the table cannot show."""
    return [
        "`example_rec` and `example_reg` come from batches of one, because the peer returns batch means:"
        " B5 is judged on halting and on the gradients of `loss`."
    ]
