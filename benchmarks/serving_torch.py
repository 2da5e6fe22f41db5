"""Contenders of `python -m benchmarks inference` in torch: fixed N, the whole batch's usual exit, predict; peers."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import ponder_torch
from benchmarks.shared import import_or_skip

Result = tuple[int, np.ndarray]  # rows given to the step network, and the steps of each example


class RnnStep(nn.Module):
    """The parity RNN; its halting logits are given, and the head that would make them is computed all the same."""

    def __init__(self, width: int):
        super().__init__()
        self.recurrent, self.heads = nn.Linear(width, width, bias=False), nn.Linear(width, 2)

    def forward(self, x, h):
        h = torch.tanh(x["x"] + self.recurrent(h))
        y_hat, z = self.heads(h).unbind(-1)
        return y_hat, h, x["z"] + 0 * z


class TransformerStep(nn.Module):
    """A pre-norm transformer block that sees its input at every step; mean of the tokens for the heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, 2)

    def forward(self, x, h):
        h = h + x["x"]
        q, k, v = self.qkv(self.norm_1(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        h = h + self.mix(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = h + self.down(functional.gelu(self.up(self.norm_2(h))))
        y_hat, z = self.out(h.mean(1)).unbind(-1)
        return y_hat, h, x["z"] + 0 * z


class Runs:
    """Runs of one network: a number of steps to a result. Warm-up is a run of one step."""

    def __init__(self, network: str, data: np.ndarray, width: int, slots: int, seed: int, limit: int):
        del limit  # of the steps, for whom compiles
        torch.manual_seed(0)
        self.step = RnnStep(width) if network == "rnn" else TransformerStep(width, max(1, width // 32))
        self.x, self.slots, self.seed = torch.from_numpy(data), slots, seed

    def _inputs(self, logit: float) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        return {"x": self.x, "z": torch.full((len(self.x),), logit)}, torch.zeros_like(self.x)

    def _batches(
        self, logit: float, batch: int | None
    ) -> Iterator[tuple[slice, dict[str, torch.Tensor], torch.Tensor]]:
        """Batch after batch: where it is, its input and state."""
        x, h = self._inputs(logit)
        for begin in range(0, len(h), batch or self.slots):
            part = slice(begin, begin + (batch or self.slots))
            yield part, {name: leaf[part] for name, leaf in x.items()}, h[part]

    @torch.inference_mode()
    def fixed(self, logit: float, steps: int, batch: int | None = None) -> Result:
        """All steps of all examples, by batches."""
        for _, some, state in self._batches(logit, batch):
            for _ in range(steps):
                _, state, _ = self.step(some, state)
        return len(self.x) * steps, np.full(len(self.x), steps)

    @torch.inference_mode()
    def whole_batch(self, logit: float, steps: int, batch: int | None = None) -> Result:
        """By batches, each of which is left when all of its examples have halted."""
        taken, rows = [], 0
        uniforms = ponder_torch.halting_uniforms(self.seed, torch.arange(len(self.x)), max_steps=steps)
        for part, some, state in self._batches(logit, batch):
            u, answer = uniforms[:, part], torch.zeros(len(state))
            halted = torch.zeros(len(state), dtype=torch.int64)
            for n in range(1, steps + 1):
                y_hat, state, z = self.step(some, state)
                rows += len(state)
                now = (halted == 0) & ((u[n - 1] < torch.sigmoid(z)) | (n == steps))
                answer, halted = torch.where(now, y_hat, answer), torch.where(now, n, halted)
                if bool((halted > 0).all()):
                    break
            taken.append(halted.numpy())
        return rows, np.concatenate(taken)

    def predict(self, logit: float, steps: int, slots: int | None) -> Result:
        out = ponder_torch.predict(self.step, *self._inputs(logit), max_steps=steps, seed=self.seed, slots=slots)
        return out.rows, out.steps.numpy()


def _counted(module: nn.Module) -> list[int]:
    """The rows that a module is given, call by call."""
    rows: list[int] = []
    module.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    return rows


def _certain(layer: nn.Linear, logit: float) -> None:
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(logit)


def labml(data: np.ndarray, width: int, slots: int) -> Callable[[float, int], int]:
    """labml-nn's own model and exit (`is_halt`): the batch leaves together."""
    peer = import_or_skip("labml_nn.adaptive_computation.ponder_net", "pip install --no-deps labml-nn==0.5.1")
    x = torch.from_numpy(data)

    @torch.inference_mode()
    def run(logit: float, steps: int) -> int:
        torch.manual_seed(0)
        net = peer.ParityPonderGRU(x.shape[-1], width, steps)
        net.is_halt = True
        _certain(net.lambda_layer, logit)
        counted = _counted(net.gru)
        for begin in range(0, len(x), slots):
            net(x[begin : begin + slots])
        return sum(counted)

    return run


def ponder_transformer(data: np.ndarray, width: int, slots: int) -> Callable[[float, int], int]:
    """ponder-transformer's own model and evaluation: the batch leaves together, and draws with pₙ, not with λₙ."""
    peer = import_or_skip("ponder_transformer", "pip install --no-deps ponder-transformer==0.0.8 and einops")
    count, tokens = data.shape[:2]

    @torch.inference_mode()
    def run(logit: float, steps: int) -> int:
        torch.manual_seed(0)
        options = {"dim": width, "max_seq_len": tokens, "dim_head": 32, "heads": max(1, width // 32), "causal": False}
        net = peer.PonderTransformer(num_tokens=16, **options).eval()
        net.train_max_steps = steps
        _certain(net.block.to_halt_logits[0], logit)
        counted = _counted(net.block)
        for begin in range(0, count, slots):
            net(torch.zeros(min(slots, count - begin), tokens, dtype=torch.int64))
        return sum(counted)

    return run
