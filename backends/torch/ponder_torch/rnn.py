"""The parity RNN unrolled at the speed of its matrix products: M8 with a gradient written by hand.

The same numbers as `ponder` with `rnn_transition` and `rnn_readout`, to rounding. Autograd would keep a dozen
nodes a step; here a step is one product and one tanh each way, in memory that is taken once.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ponder_ref.interface import LeavingRule


def rnn_unroll(
    params: Mapping[str, torch.Tensor], projected: torch.Tensor, max_steps: int, rule: LeavingRule | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions `[N, batch, outputs]`, logits `[N, batch]`, last states (no gradient) and Nᵢ, of `[batch, hidden]`.

    N is the number of steps that were run: fewer than max_steps if a rule has let all examples go.
    """
    weights = torch.cat([params["output.w"].T, params["halt.w"].T])  # `[out, in]`, by which thin products are faster
    bias = torch.cat([params["output.b"], params["halt.b"]])
    states, lengths = _Unroll.apply(projected, params["rnn.w_h"], weights[-1], bias[-1], max_steps, rule)
    both = torch.nn.functional.linear(states.flatten(0, 1), weights, bias).unflatten(0, states.shape[:2])
    last = states.detach()[lengths - 1, torch.arange(len(projected), device=projected.device)]
    return both[..., :-1], both[..., -1], last, lengths


class _Unroll(torch.autograd.Function):
    """hₙ = tanh(p + hₙ₋₁·W_h) for n = 1.., `[N, batch, hidden]`, and Nᵢ."""

    @staticmethod
    def forward(ctx, projected, w_h, halt_w, halt_b, max_steps: int, rule: LeavingRule | None):
        states = projected.new_empty(max_steps + 1, *projected.shape)
        states[0] = 0
        total = torch.zeros_like(projected[:, 0])
        lengths = torch.zeros(len(projected), dtype=torch.int64, device=projected.device)
        count = max_steps
        for n in range(1, max_steps + 1):
            torch.addmm(projected, states[n - 1], w_h, out=states[n]).tanh_()
            if rule is None:
                continue
            total = total + rule.add(torch.addmv(halt_b, states[n], halt_w))
            if n >= rule.min_steps:
                lengths = torch.where((lengths == 0) & rule.enough(total), n, lengths)
                if n < max_steps and bool((lengths > 0).all()):
                    count = n
                    break
        lengths = torch.where(lengths > 0, lengths, max_steps)
        ctx.save_for_backward(states[: count + 1], w_h)
        ctx.mark_non_differentiable(lengths)
        return states[1 : count + 1], lengths

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """dₙ = (gₙ + dₙ₊₁·W_hᵀ)·(1 − hₙ²); the weights' gradient is one large product, in which h₀ = 0 has no share."""
        states, w_h = ctx.saved_tensors
        g, hidden = cotangents[0], states.shape[-1]
        slope = torch.addcmul(states.new_ones(()), states[1:], states[1:], value=-1)
        d = torch.empty_like(slope)
        torch.mul(g[-1], slope[-1], out=d[-1])
        for n in range(len(d) - 2, -1, -1):
            torch.addmm(g[n], d[n + 1], w_h.T, out=d[n]).mul_(slope[n])
        d_w_h = states[1:-1].reshape(-1, hidden).T @ d[1:].reshape(-1, hidden)
        return d.sum(0), d_w_h, None, None, None, None
