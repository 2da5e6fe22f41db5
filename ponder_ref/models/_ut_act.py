"""The Universal Transformer's own ACT: every row halts by itself (spec M9, "Halting row by row")."""

from typing import NamedTuple

import numpy as np

from ponder_ref.act import act_cost, act_halting, act_output
from ponder_ref.halting import log_sigmoid
from ponder_ref.models.transformer import layer_norm, transformer_encode, transformer_readout, transformer_transition


class RowHalting(NamedTuple):
    """Of one example: the answer `[outputs]`, Nₛ of its rows `[rows]`, and their mean cost Nₛ + Rₛ."""

    y_hat: np.ndarray
    steps: np.ndarray
    cost: np.ndarray


def ut_act(params, words, *, heads: int, max_steps: int, act_epsilon: float = 0.01, kept=None, dropout=0.0):
    """One example, `words` `[rows, tokens]` without padding; `kept` `[N, heads, rows, rows]` (M9)."""
    rows, h = len(words), transformer_encode(params, words)
    states, lambdas = [], []
    halted = np.full(rows, False)
    for n in range(1, max_steps + 1):
        mask = None if kept is None else kept[n - 1]
        after = transformer_transition(params, words, h, n, heads=heads, kept=mask, dropout=dropout)
        h = np.where(halted[:, None], h, after)
        z = (layer_norm(params, "final", h) @ params["halt.w"] + params["halt.b"])[:, 0]
        states.append(h)
        lambdas.append(np.exp(log_sigmoid(z)))
        halted = halted | (np.sum(lambdas, axis=0).real >= 1 - act_epsilon)
    halting = act_halting(np.stack(lambdas), epsilon=act_epsilon)
    mean = act_output(halting.weights, np.stack(states))
    cost = act_cost(halting.steps, halting.remainder, tau=1.0).mean()
    return RowHalting(transformer_readout(params, mean)[0], halting.steps, cost)
