"""ponder-transformer 0.0.8 on trial: `ponder_transformer.ponder_transformer`.

What runs behind each function of the interface:

- `log_halting`: `calc_geometric(halt_logits.sigmoid(), dim = 1)`, the call of `PonderTransformer.forward`; then
  `.log()`.
- `log_halting_from_lambdas`: `calc_geometric(lambdas, dim = 1)`; then `.log()`.
- `geometric_log_prior`: `calc_geometric(torch.full((max_steps,), lambda_p))`, as in `forward`; then `.log()`.
  The peer has one rule: `remainder` makes no difference.
- `expected_loss`: the loss of `PonderTransformer.forward` in training, on each example as a batch of one, its
  weight of the KL set to 0.
- `kl_divergence`: the same, with step losses of 0 and a weight of 1.
- `weighted_mean`: `.mean()`.
- `ponder_loss`: the same forward pass on the whole batch.
- `value_and_grad`: torch's autograd.

The loss exists only inside `forward`, so `forward` is what runs, for sequences of one token. Given to it from
outside are p and the prior (as results of `calc_geometric`) and the step losses (as logits, with a
cross-entropy that takes their mean, which is `F.cross_entropy`'s reduction). Built by the adapter (see
`shared`): a prior for each example. Not offered: `remainder="normalize"`, `lengths` and `weights`, which the
peer does not have; it samples with torch's global generator, without seeds or example ids, so there is no
`draw_steps`.
"""

from functools import cache
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import torch
from torch import nn

from benchmarks.peers import shared
from benchmarks.peers.shared import from_numpy, to_numpy, value_and_grad, weighted_mean  # noqa: F401 (part of the interface)

peer = import_module("ponder_transformer.ponder_transformer")

NAME = "ponder-transformer"
DISTRIBUTION = "ponder-transformer"
DTYPES = ("float64", "float32")
OFFERED = (
    "log_halting",
    "log_halting_from_lambdas",
    "geometric_log_prior",
    "expected_loss",
    "kl_divergence",
    "weighted_mean",
    "ponder_loss",
)
NOT_OFFERED = shared.not_offered(OFFERED, "P2")


def _halting(lambdas: torch.Tensor) -> torch.Tensor:
    """p `[N, B]` of λ `[N, B]`."""
    return peer.calc_geometric(lambdas.T, dim=1).T


def log_halting(halt_logits, *, remainder="last", lengths=None):
    return shared.log_of(shared.halting(_halting, halt_logits.sigmoid(), remainder, lengths))


def log_halting_from_lambdas(lambdas, *, remainder="last", lengths=None):
    return shared.log_of(shared.halting(_halting, lambdas, remainder, lengths))


def geometric_log_prior(lambda_p, max_steps, *, remainder="normalize", dtype="float32"):
    return peer.calc_geometric(torch.full((max_steps,), lambda_p, dtype=getattr(torch, dtype))).log()


class _Block(nn.Module):
    """In the place of the transformer block: the n-th call hands out the n-th logits, `[B]`; the state stays."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.calls = iter(logits)

    def forward(self, x: torch.Tensor, mask=None):
        return x, next(self.calls)


class _Outputs(nn.Module):
    """In the place of the output layer: `[B, N, 1, 1]`, one token and one class."""

    def __init__(self, outputs: torch.Tensor):
        super().__init__()
        self.outputs = outputs

    def forward(self, hiddens: torch.Tensor) -> torch.Tensor:
        return self.outputs


@cache
def _transformer() -> nn.Module:
    return peer.PonderTransformer(num_tokens=2, dim=1, max_seq_len=1, causal=False, dim_head=1, heads=1)


def _mean_cross_entropy(outputs, labels, ignore_index):
    return outputs.mean()


FUNCTIONAL = SimpleNamespace(kl_div=torch.nn.functional.kl_div, cross_entropy=_mean_cross_entropy)


def _forward(p: torch.Tensor, step_losses: torch.Tensor, log_prior: torch.Tensor, weight) -> torch.Tensor:
    """`PonderTransformer.forward` in training: p and losses `[N, B]`, prior `[N]` or `[N, 1]`, weight of the KL."""
    model = _transformer().train()
    model.train_max_steps, model.ponder_kl_div_loss_weight = len(p), weight  # pyright: ignore
    model.block, model.to_logits = _Block(torch.zeros_like(p)), _Outputs(step_losses.T[:, :, None, None])
    given = [p.T, log_prior.detach().exp().reshape(-1)]
    with mock.patch.multiple(peer, calc_geometric=mock.Mock(side_effect=given), F=FUNCTIONAL):
        tokens = torch.ones(p.shape[1], 1, dtype=torch.int64)
        return model(tokens, labels=tokens)


def _rec(p: torch.Tensor, step_losses: torch.Tensor) -> torch.Tensor:
    return _forward(p, step_losses, torch.zeros_like(p[:, 0]), 0.0)


def _reg(p: torch.Tensor, log_prior: torch.Tensor) -> torch.Tensor:
    return _forward(p, torch.zeros_like(p), log_prior, 1.0)


expected_loss, kl_divergence, ponder_loss = shared.losses(_rec, _reg, _forward)


# Why, read in the peer's code; the adapter and the unmodified model give the same loss.
_NO_REMAINDER = "the mass left after N is dropped (p_N is λ_N·Π(1 − λ), and p sums to less than 1)"
_CLAMP = "`safe_cumprod` clamps 1 − λ at 1e-10, which is felt from about z = 17 in float32 (23 in float64) on"
_CARRIED = "the peer carries p and never takes its logarithm; the adapter does, and a p that has underflowed gives −inf"
_REC = "the cross-entropy is averaged over batch and steps before it meets p, which leaves mean(ℓ)·mean(p)"
_REG = "`F.kl_div(..., 'batchmean')` divides by the first axis of its input, the prior: by the steps, not by the batch"
CAUSES = {
    "H1": f"In the last step, shown here, {_NO_REMAINDER}. Earlier steps agree at moderate logits, but {_CLAMP}.",
    "H2": f"There is no remainder rule: {_NO_REMAINDER}. In the case shown, {_CARRIED}.",
    "H5": f"There is no remainder rule: {_NO_REMAINDER}. Besides, λ = 1 leaves 1e-10 instead of 0 for later steps.",
    "H9": f"There is no remainder rule: {_NO_REMAINDER}. So λ_N has a gradient.",
    "H10": f"Of saturated logits, {_CLAMP}. In the case shown, {_CARRIED}.",
    "P1": "The prior is cut off at N, neither normalised nor with its tail on N.",
    "L1": f"Losses are not weighed by p: {_REC}.",
    "L2": f"The direction is right, the scale is not: {_REG}. A prior of 0 counts as 1e-20.",
    "L4": f"L1 and L2 together: {_REC}; {_REG}.",
    "L5": f"The objective is another one: {_REC}; {_REG}; {_NO_REMAINDER}.",
    "B3": "The losses are computed in the network's own float32, whatever the dtype of their arguments.",
    "B4": "Arguments are not checked; what is raised comes from torch.",
    "B5": f"In a batch {_REC}, so that an example's gradient depends on the losses of its mates; and {_REG}.",
}


def observations() -> list[str]:
    """What the table cannot show, measured here."""
    steps = peer.PonderTransformer(
        num_tokens=2, dim=1, max_seq_len=1, ponder_lambda_p=0.2, ponder_epsilon=0.05
    ).train_max_steps
    torch.manual_seed(0)
    model = _transformer().eval()
    rows, logits = 20_000, torch.zeros(3, 20_000)
    model.train_max_steps = 3  # pyright: ignore
    model.block, model.to_logits = _Block(logits), _Outputs(torch.zeros(()))
    halted = model(torch.ones(rows, 1, dtype=torch.int64))[1]
    shares = ", ".join(f"{(halted == n).float().mean().item():.3f}" for n in range(3))
    return [
        "`example_rec` and `example_reg` come from batches of one, because the peer returns one number:"
        " B6 is judged on halting.",
        f"`train_max_steps` for λ_p = 0.2 and ε = 0.05 is {steps}, the number of steps at which Σp is below 1 − ε;"
        " the first step at which Σp exceeds it is 14 (H6, which is about logits and therefore not judged).",
        "At inference a step halts with probability pₙ instead of λₙ (`torch.rand_like(p) <= p`): with λ = 0.5 and"
        f" three steps, {rows} rows halted at steps 1, 2, 3 in shares {shares}; they should be 0.5, 0.25, 0.25 (S5, not"
        " judged for want of seeds and example ids).",
    ]
