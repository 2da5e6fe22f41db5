"""A network of somebody's own in torch, for `--model`: what is drawn or counted in it must survive a resume."""

import torch
from torch import nn

from ponder_torch import PonderNet


class Cell(nn.Module):
    """A GRU with dropout, running statistics and a weight that is not trained; it takes its input as one vector."""

    def __init__(self, problem, width: int = 24):
        super().__init__()
        size, self.problem = int(torch.Size(problem.inputs.shape).numel()), problem
        self.norm, self.cell, self.drop = nn.BatchNorm1d(size), nn.GRUCell(size, width), nn.Dropout(0.1)
        self.heads = nn.Linear(width, problem.outputs + 1)
        self.shift = nn.Parameter(torch.randn(size), requires_grad=False)

    def initial_state(self, x):
        return self.heads.weight.new_zeros(len(x), self.heads.in_features)

    def forward(self, x, h):
        h = self.cell(self.norm(x.flatten(1).to(h.dtype)) + self.shift, h)
        out = self.heads(self.drop(h))
        y_hat = out[:, 0] if self.problem.output == "binary" else out[:, :-1]
        return y_hat, h, out[:, -1]


def build(problem) -> PonderNet:
    torch.manual_seed(problem.seed)
    return PonderNet(Cell(problem), **problem.halting)


def wrong(problem) -> PonderNet:
    """One that answers with two numbers where one is asked."""
    net = Cell(problem)
    forward = net.forward
    net.forward = lambda x, h: (torch.stack([forward(x, h)[0]] * 2, -1), *forward(x, h)[1:])
    return PonderNet(net, **problem.halting)


def other(problem) -> PonderNet:
    """One that does not ponder as the command line says."""
    return PonderNet(Cell(problem), **{**problem.halting, "max_steps": 3})
