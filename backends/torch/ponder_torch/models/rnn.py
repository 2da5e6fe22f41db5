"""The RNN of the parity experiment (spec M8; paper app. B), and its steps at the speed of their matrix products.

The fast unroll has a gradient written by hand. It gives the numbers of one step after another, to rounding. Autograd
would keep a dozen nodes a step; here a step is one product and a few operations in place each way, in buffers that are
used again.
"""

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad

from ponder_ref.base import HaltRule
from ponder_ref.models.rnn import Rnn
from ponder_torch.models import CanonicalStep

Params = Mapping[str, torch.Tensor]
# Buffers of earlier unrolls are used again, as a system gives new pages slowly: so many, of so many bytes each.
KEPT, KEPT_BYTES = 4, 2**26


def rnn_project(params: Params, x: torch.Tensor) -> torch.Tensor:
    """x·W_x + b, `[...batch, hidden]`: the input's share of every step, computed once."""
    return x @ params["rnn.w_x"] + params["rnn.b"]


def rnn_transition(params: Params, projected: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """hₙ = tanh(x·W_x + b + hₙ₋₁·W_h), `[...batch, hidden]`."""
    return torch.tanh(projected + h @ params["rnn.w_h"])


def rnn_readout(params: Params, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prediction `[...]` (`[..., outputs]` for several) and halting logit `[...]` of states `[..., hidden]`."""
    weights = torch.cat([params["output.w"], params["halt.w"]], 1)
    both = h @ weights + torch.cat([params["output.b"], params["halt.b"]])  # one product for the two
    return (both[..., 0] if both.shape[-1] == 2 else both[..., :-1]), both[..., -1]


def rnn_initial_state(params: Params, projected: torch.Tensor) -> torch.Tensor:
    """h₀ = 0, of the projected input's shape."""
    return torch.zeros_like(projected)


class Step(CanonicalStep):
    """One step of the RNN; the input is `[...batch, inputs]`, the state `[...batch, hidden]`."""

    settings: Rnn

    def project(self, x: torch.Tensor) -> torch.Tensor:
        return rnn_project(self.params(), x)

    def initial_state(self, projected: torch.Tensor) -> torch.Tensor:
        return rnn_initial_state(self.params(), projected)

    def forward(self, projected: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        params = self.params()
        h = rnn_transition(params, projected, h)
        y_hat, z = rnn_readout(params, h)
        return y_hat, h, z

    def unroll(self, x: torch.Tensor, max_steps: int, rule: HaltRule | None) -> Any:
        """As `ponder_ref.runtime.contracts.StepNetwork` says; None under transforms, and for half precision."""
        params = self.params()
        w_h = params["rnn.w_h"]
        if _is_transformed(x, w_h) or x.ndim != 2 or w_h.dtype not in (torch.float32, torch.float64):
            return None
        weights = torch.cat([params["output.w"].T, params["halt.w"].T])  # `[out, in]`: thin products are faster so
        bias = torch.cat([params["output.b"], params["halt.b"]])
        found = _Unroll.apply(rnn_project(params, x), w_h, weights, bias, max_steps, rule)
        y_hat, z, state, lengths = found  # type: ignore[misc]
        return (y_hat[..., 0] if self.settings.outputs == 1 else y_hat), z, state, lengths


def _is_transformed(x: torch.Tensor, w: torch.Tensor) -> bool:
    """Whether somebody looks at the operations: a compiler, a transform of torch.func, a mode, a tensor of another
    type, forward mode or autocast."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()  # what autograd.Function asks itself
        or not {type(x), type(w)} <= {torch.Tensor, torch.nn.Parameter}
        or not _is_plain(x)
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled(w.device.type)
    )


def _is_plain(x: torch.Tensor) -> bool:
    """Whether it holds its numbers itself, and no mode (of fake tensors, say) stands between it and them."""
    wrapped = torch._is_functional_tensor(x) or is_functorch_wrapped_tensor(x)  # type: ignore[reportPrivateImportUsage]
    return not wrapped and torch._C._len_torch_dispatch_stack() == 0


class _Waiting:
    """A tensor that waits for its next use."""

    def __init__(self, kind: tuple, tensor: torch.Tensor):
        self.kind, self.tensor = kind, tensor


_WAITING: deque[_Waiting] = deque(maxlen=KEPT)


class _Buffer:
    """An uninitialised tensor that nothing outside this file ever sees; as the buffer is deleted it can be used again.

    An unroll's buffer belongs to its node of the graph. Nothing is written over that is still needed: neither by two
    forwards before a backward, nor where a graph is kept. Only plain tensors of the CPU wait: other devices have
    allocators of their own, and streams between which a tensor must not pass.
    """

    def __init__(self, shape: tuple[int, ...], like: torch.Tensor):
        self.kind = (shape, like.dtype)
        self.waits = type(like) is torch.Tensor and like.device.type == "cpu" and _is_plain(like)
        for held in list(_WAITING) if self.waits else ():
            if held.kind == self.kind:
                with contextlib.suppress(ValueError):  # another thread has just taken it
                    _WAITING.remove(held)
                    self.tensor = held.tensor
                    return
        self.tensor = like.new_empty(shape)

    def __del__(self):
        if self.waits and not self.tensor.is_inference() and self.tensor.nbytes <= KEPT_BYTES:
            _WAITING.append(_Waiting(self.kind, self.tensor))


def _tanh_(doubled: torch.Tensor, minus_one: torch.Tensor) -> torch.Tensor:
    """tanh(x) = −1 + 2σ(2x) of 2x, in place, rounded as numbers near 1 are; torch's own tanh takes thrice the time."""
    return torch.add(minus_one, doubled.sigmoid_(), alpha=2, out=doubled)


class _Unroll(torch.autograd.Function):
    """hₙ = tanh(p + hₙ₋₁·W_h) for n = 1..; ŷ `[N, batch, outputs]`, z `[N, batch]`, the state after step Nᵢ, Nᵢ.

    N is the number of steps that were run: fewer than max_steps if a rule has let all examples go.
    """

    @staticmethod
    def forward(ctx, projected, w_h, weights, bias, max_steps: int, rule: HaltRule | None):
        buffer = _Buffer((max_steps, *projected.shape), projected)
        rows, doubled, twice_w_h = buffer.tensor.unbind(), 2 * projected, 2 * w_h
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
        states = buffer.tensor[:count]
        ctx.buffer, ctx.count = buffer, count  # not saved as tensors: who hooks into that might keep them longer
        ctx.save_for_backward(projected, w_h, weights, bias, lengths)
        ctx.mark_non_differentiable(lengths)
        ctx.set_materialize_grads(False)  # or zeros would be made for the outputs without gradients
        both = torch.nn.functional.linear(states, weights, bias)
        picked = lengths - 1, torch.arange(len(lengths), device=w_h.device)
        state = rows[-1].clone() if rule is None else states[picked]
        # Cut here: the gradient of a slice outside would be padded with zeros, and the two added.
        return both[..., :-1].clone(), both[..., -1].clone(), state, lengths

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """dₙ = (gₙ·V + dₙ₊₁·W_hᵀ)·(1 − hₙ²); a weight's gradient is one large product, in which h₀ = 0 has no share."""
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            return _gradients_with_graph(ctx.saved_tensors, ctx.count, cotangents, ctx.needs_input_grad)
        _, w_h, weights, _, lengths = ctx.saved_tensors
        states = ctx.buffer.tensor[: ctx.count]
        hidden, last, count = states.shape[-1], len(states) - 1, states.shape[:2].numel()
        *heads, of_state, _ = cotangents
        parts = zip(heads, (len(weights) - 1, 1), strict=True)  # a head that the loss does not use has no gradient
        g = torch.cat([states.new_zeros(count, k) if x is None else x.reshape(count, k) for x, k in parts], 1)
        buffer = _Buffer(tuple(ctx.buffer.tensor.shape), states)
        d = buffer.tensor[: ctx.count]
        torch.mm(g, weights, out=d.view(-1, hidden))
        if of_state is not None:
            d[lengths - 1, torch.arange(len(lengths), device=d.device)] += of_state
        share, rows, back = torch.empty_like(states[0]), d.unbind(), w_h.T
        for n in range(last, -1, -1):
            if n < last:
                rows[n].addmm_(rows[n + 1], back)
            # As d − (d·h)·h: to begin with a 1 that is stretched takes thrice the time.
            rows[n].addcmul_(torch.mul(rows[n], states[n], out=share), states[n], value=-1)
        d_w_h = states[:-1].reshape(-1, hidden).T @ d[1:].reshape(-1, hidden)
        return d.sum(0), d_w_h, g.T @ states.reshape(-1, hidden), g.sum(0), None, None


def _gradients_with_graph(saved: Any, count: int, cotangents: Any, needed: Any) -> tuple[Any, ...]:
    """What `_Unroll.backward` gives, one step after another by autograd, so that it can be differentiated again."""
    *inputs, lengths = saved
    projected, w_h, weights, bias = inputs
    states = [torch.tanh(projected)]
    for _ in range(count - 1):
        states.append(torch.tanh(projected + states[-1] @ w_h))
    stacked = torch.stack(states)
    both = torch.nn.functional.linear(stacked, weights, bias)
    outputs = both[..., :-1], both[..., -1], stacked[lengths - 1, torch.arange(len(lengths), device=w_h.device)]
    used = [k for k, cotangent in enumerate(cotangents[:3]) if cotangent is not None]
    wanted = [x for x, wants in zip(inputs, needed, strict=False) if wants]
    grads = torch.autograd.grad(
        [outputs[k] for k in used],
        wanted,
        [cotangents[k] for k in used],
        create_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    found = iter(grads)
    return tuple(next(found) if wants else None for wants in needed)
