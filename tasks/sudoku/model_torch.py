"""A step network for Sudoku in torch: each step, the cells of a row, a column and a box tell each other what they hold.

`python -m tasks.sudoku --backend torch` trains it; `ponder_torch.load(RUN, build=build)` returns it trained.
"""

import torch
from torch import nn

from ponder_ref.runtime.network import Problem
from ponder_torch import PonderNet
from tasks.sudoku.puzzles import peers

WIDTH = 48  # numbers in a cell's state


class Step(nn.Module):
    """One round of messages. x and h are `[B, cells, WIDTH]`: the clues as vectors, and the state of each cell.

    Each cell sees its state, its clue, and the sum of the messages of the other cells in its row, column and box.
    """

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.clues = nn.Embedding(size + 1, WIDTH)  # 0 is a blank
        self.norm = nn.LayerNorm(WIDTH)
        self.message = nn.Linear(WIDTH, WIDTH)
        self.think = nn.Linear(5 * WIDTH, 2 * WIDTH)
        self.update = nn.Linear(2 * WIDTH, WIDTH)
        self.answer = nn.Linear(WIDTH, size)
        self.halt = nn.Linear(2 * WIDTH, 1)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """The cells, `[B, cells]` integers 0..size, as vectors."""
        return self.clues(x.long())

    def initial_state(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits of the digits `[B, cells, size]`, the next state, and one halting logit per puzzle `[B]`."""
        state = self.norm(h)
        connected = torch.as_tensor(peers(self.size), dtype=h.dtype, device=h.device)
        heard = torch.einsum("ucd,bdk->bcuk", connected, torch.tanh(self.message(state + x)))
        thought = torch.relu(self.think(torch.cat([state, x, heard.flatten(2)], dim=-1)))
        h = h + self.update(thought)
        return self.answer(h), h, self.halt(thought).mean(dim=(1, 2))


def build(problem: Problem) -> PonderNet:
    """The network of a run: `problem.outputs` digits per cell."""
    torch.manual_seed(problem.seed)
    return PonderNet(Step(problem.outputs), **problem.halting)
