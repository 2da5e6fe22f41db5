"""The Universal Transformer's own ACT: every row halts by itself (spec M9, "Halting row by row")."""

from collections.abc import Mapping

import torch

from ponder_ref.base import ActHalting, Pondered
from ponder_ref.models._attention import dropped_share
from ponder_ref.models.transformer import SURE, Transformer
from ponder_torch.act import act_output, act_weights
from ponder_torch.models.transformer import advance, begin, questions, read, rows_of


def ut_act_unroll(
    model: Transformer,
    params: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    max_steps: int,
    act_epsilon: float,
) -> Pondered:
    """The answer of the question's averaged state, the same at every n; Nᵢ is that of the row that halts last.

    `act.remainder` is the whole cost, the mean of Nₛ + Rₛ over the rows; `act.steps` is 0, the other weights tell Nᵢ.
    """
    buckets, h = begin(model, params, inputs, max_steps)
    present = torch.cat([~b.absent.flatten() for b in buckets])
    before, lengths = torch.zeros_like(h[:, 0]), torch.zeros(len(h), dtype=torch.int64, device=h.device)
    states, lambdas = [], []
    for n in range(1, max_steps + 1):
        running = present & (lengths == 0)
        after = advance(params, buckets, h, n, model.heads, dropped_share(model), last=n == max_steps)
        if n == max_steps:  # every row halts here, whatever its λ; only the question's state is asked for
            asked = questions(buckets, running[:, None])
            states.append(torch.where(asked, after, questions(buckets, h)))
            lambdas.append(torch.zeros_like(after[:, 0]))
            break
        h = torch.where(running[:, None], after, h)
        lam = torch.sigmoid(read(params, h)[1])
        halting = running & ((before + lam).detach() >= 1 - act_epsilon)
        before = before + torch.where(running & ~halting, lam, 0.0)
        lengths = torch.where(halting, n, lengths)
        states.append(questions(buckets, h))
        lambdas.append(questions(buckets, lam[:, None])[:, 0])
        if not bool((present & (lengths == 0)).any()):
            break
    lam = torch.stack(lambdas)
    lengths = torch.where(present, torch.where(lengths > 0, lengths, max_steps), 0)
    weights = act_weights(lam, questions(buckets, lengths[:, None])[:, 0]).weights
    state = act_output(weights, torch.stack(states))
    spent = torch.where(present, lengths + 1 - before, 0.0)
    cost = torch.cat([_sums(b.size, x) / _sums(b.size, y) for b, x, y in _zip(buckets, spent, present)])
    longest = torch.cat([x.view(b.size, -1).amax(1) for b, x, _ in _zip(buckets, lengths, present)])
    at_end = torch.arange(1, max_steps + 1, device=h.device)[:, None] == longest  # also of steps that were not run
    y_hat = read(params, state)[0].expand(max_steps, -1, -1)
    act = ActHalting(at_end.to(h.dtype), torch.zeros_like(longest), cost)
    return Pondered(y_hat, torch.where(at_end, SURE, -SURE).to(h.dtype), None, longest, state, act)


def _zip(buckets, *columns):
    return zip(buckets, *(rows_of(buckets, column) for column in columns), strict=True)


def _sums(count: int, x: torch.Tensor) -> torch.Tensor:
    return x.view(count, -1).sum(1)
