"""The parity RNN unrolled at the speed of its matrix products: M8 with a gradient written by hand.

The same numbers as `ponder` with `rnn_transition` and `rnn_readout`, to rounding. Autograd would keep a dozen
nodes a step; here a step is one product and a few operations in place each way, in memory that may be kept.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ponder_ref.base import LeavingRule


class Memory:
    """Buffers for states and their gradients, kept from update to update: a system gives new pages slowly.

    What an unroll left in them is written over by the next.
    """

    def __init__(self):
        self.kept: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """An uninitialised tensor of the shape, dtype and device; the one taken before under that name, if it fits."""
        held = self.kept.get(name)
        if held is None or held.shape != shape or held.dtype != like.dtype or held.device != like.device:
            held = self.kept[name] = like.new_empty(shape)
        return held


def rnn_unroll(
    params: Mapping[str, torch.Tensor],
    projected: torch.Tensor,
    max_steps: int,
    rule: LeavingRule | None,
    memory: Memory | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, last states (no gradient) and Nᵢ, of `[batch, hidden]`.

    N is the number of steps that were run: fewer than max_steps if a rule has let all examples go.
    """
    memory = memory or Memory()
    weights = torch.cat([params["output.w"].T, params["halt.w"].T])  # `[out, in]`, by which thin products are faster
    bias = torch.cat([params["output.b"], params["halt.b"]])
    y_hat, z, states, lengths = _Unroll.apply(projected, params["rnn.w_h"], weights, bias, max_steps, rule, memory)
    last = states[-1] if rule is None else states[lengths - 1, torch.arange(len(projected), device=projected.device)]
    return y_hat, z, last, lengths


def _tanh_(doubled: torch.Tensor, minus_one: torch.Tensor) -> torch.Tensor:
    """tanh(x) = −1 + 2σ(2x) of 2x, in place, rounded as numbers near 1 are; torch's own tanh takes thrice the time."""
    return torch.add(minus_one, doubled.sigmoid_(), alpha=2, out=doubled)


class _Unroll(torch.autograd.Function):
    """hₙ = tanh(p + hₙ₋₁·W_h) for n = 1..; ŷ `[N, batch, outputs]`, z `[N, batch]`, states, Nᵢ."""

    @staticmethod
    def forward(ctx, projected, w_h, weights, bias, max_steps: int, rule: LeavingRule | None, memory: Memory):
        states = memory.take("states", (max_steps, *projected.shape), projected)
        rows, doubled, twice_w_h = states.unbind(), 2 * projected, 2 * w_h
        total, lengths = projected.new_zeros(len(projected)), torch.zeros_like(projected[:, 0], dtype=torch.int64)
        count, minus_one = max_steps, projected.new_full((), -1)
        for n, h in enumerate(rows, 1):
            _tanh_(h.copy_(doubled) if n == 1 else torch.addmm(doubled, rows[n - 2], twice_w_h, out=h), minus_one)
            if rule is None:
                continue
            total = total + rule.add(torch.addmv(bias[-1], h, weights[-1]))
            if n >= rule.min_steps:
                lengths = torch.where((lengths == 0) & rule.enough(total), n, lengths)
                if n < max_steps and bool((lengths > 0).all()):
                    count = n
                    break
        lengths = torch.where(lengths > 0, lengths, max_steps)
        states = states[:count].detach()
        ctx.save_for_backward(states, w_h, weights)
        ctx.mark_non_differentiable(states, lengths)
        ctx.set_materialize_grads(False)  # or zeros of all states would be made for the outputs without gradients
        ctx.memory = memory
        both = torch.nn.functional.linear(states, weights, bias)
        # Cut here: the gradient of a slice outside would be padded with zeros, and the two added.
        return both[..., :-1].clone(), both[..., -1].clone(), states, lengths

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """dₙ = (gₙ·V + dₙ₊₁·W_hᵀ)·(1 − hₙ²); a weight's gradient is one large product, in which h₀ = 0 has no share."""
        states, w_h, weights = ctx.saved_tensors
        hidden, last, count = states.shape[-1], len(states) - 1, states.shape[:2].numel()
        sizes = (len(weights) - 1, 1)  # a head that the loss does not use has no gradient
        parts = zip(cotangents, sizes, strict=False)
        g = torch.cat([states.new_zeros(count, k) if x is None else x.reshape(count, k) for x, k in parts], 1)
        d = ctx.memory.take("gradients", states.shape, states)
        torch.mm(g, weights, out=d.view(-1, hidden))
        share, rows, back = torch.empty_like(states[0]), d.unbind(), w_h.T
        for n in range(last, -1, -1):
            if n < last:
                rows[n].addmm_(rows[n + 1], back)
            # As d − (d·h)·h: to begin with a 1 that is stretched takes thrice the time.
            rows[n].addcmul_(torch.mul(rows[n], states[n], out=share), states[n], value=-1)
        d_w_h = states[:-1].reshape(-1, hidden).T @ d[1:].reshape(-1, hidden)
        return d.sum(0), d_w_h, g.T @ states.reshape(-1, hidden), g.sum(0), None, None, None
