"""The parity task (paper §3.1 and app. B; spec/annex/tasks.md): is the number of ones odd?

    python -m tasks.parity --preset smoke --backend jax --out runs/smoke

An input has `bits` entries, of which a random number are +1 or −1 with equal chance and the rest 0. The target is 1 if
the number of +1 is odd.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ponder_ref.base import Batch
from ponder_ref.models.rnn import Rnn
from tasks.batches import STREAMS, example_ids, ranks, words
from tasks.contracts import Task
from tasks.parity.settings import PRESETS, ParityConfig


def make_inputs(random: np.ndarray, bits: int, ones: tuple[int, int | np.ndarray], positions: str) -> np.ndarray:
    """Inputs `[..., bits]` in {−1, 0, 1}, int8, from words `[..., 1 + bits]` uint32 (spec annex/tasks.md, "Examples").

    The first word of an example gives k, the number of non-zeros, in the range `ones`, whose upper end may be an array
    that goes with the words. Word i of the others gives entry i its sign (lowest bit) and its rank: the k entries of
    lowest rank are the non-zeros.
    """
    low, high = ones
    numbers = np.asarray(high - low + 1, np.uint64)
    count = low + ((random[..., :1].astype(np.uint64) * numbers) >> np.uint64(32)).astype(np.int64)
    entries = random[..., 1:]
    if positions == "prefix":
        chosen = np.arange(bits) < count
    else:
        rank = ranks(entries)  # no two are equal, so that exactly k are chosen
        chosen = rank <= np.take_along_axis(np.sort(rank, axis=-1), count - 1, axis=-1)
    signs = (entries.astype(np.int8) & np.int8(1)) * np.int8(2) - np.int8(1)
    return signs * chosen


def turn_one(inputs: np.ndarray, random: np.ndarray) -> np.ndarray:
    """The inputs with one sign turned, that of the non-zero of lowest rank: as likely as they are, of other parity."""
    rank = np.where(inputs != 0, ranks(random[..., 1:]), np.uint64(2**32))  # above every rank
    turned = np.arange(inputs.shape[-1]) == rank.argmin(axis=-1)[..., None]
    return np.where(turned, -inputs, inputs)


def targets_of(inputs: np.ndarray) -> np.ndarray:
    """1 where the number of +1 entries is odd, `[...]` for inputs `[..., bits]` (spec annex/tasks.md, "Examples").

    >>> int(targets_of(np.array([1, -1])))
    1
    """
    return (inputs == 1).sum(axis=-1) % 2


class Parity(Task[ParityConfig]):
    """The task as `tasks.command` wants it: config, presets, model and batches."""

    NAME = "parity"
    TITLE = "PonderNet on the parity task: is the number of ones odd?"
    GROUP = "non-zeros"
    GUESS = 0.5
    EVALUATION_FLAGS = ("max_steps", "eval_ones")  # those that an evaluation may change
    Config = ParityConfig
    PRESETS = PRESETS
    EXAMPLES = (
        "python -m tasks.parity --preset smoke --backend jax --out runs/smoke",
        "python -m tasks.parity --out runs/ponder                       a few minutes, learns visibly",
        "python -m tasks.parity --method act --tau 0.002 --out runs/act",
        "python -m tasks.parity --out runs/ponder --resume --backend torch",
        "python -m tasks.parity --evaluate runs/ponder --max-steps 40 --examples 10000 --draws 16",
        "python -m tasks.parity --preset fast --bits 96 --train-ones 1-48 --eval-ones 49-96 --out runs/beyond",
        "python -m tasks.figures runs --out figures                      figure 1 of the paper from these runs",
    )

    def model(self) -> Rnn:
        return Rnn(kind="rnn", inputs=self.config.bits, hidden=self.config.hidden, outputs=1, output="binary")

    def initial_parameters(self) -> dict[str, np.ndarray]:
        names = ("input_scale", "input_connections", "recurrent_scale", "bias_scale")
        scales = {name: getattr(self.config, name) for name in names}
        return self.model().initial_parameters(self.config.seed, **scales)

    def splits(self, stage: str) -> tuple[str, ...]:
        """The splits that "valid" or "test" stands for."""
        return (stage,) if self.config.eval_ones in (None, self.config.ones("train")) else (stage, f"{stage}-beyond")

    def describe(self, split: str) -> str:
        low, high = self.config.ones(split)
        return f"{low}-{high} non-zeros of {self.config.bits}, {self.config.positions}"

    def batches(self, split: str, indices: Sequence[int] | range) -> Batch:
        """The batches of these indices, stacked: inputs `[K, B, bits]` float32, targets and ids `[K, B]` int64.

        In training the index is the update's number less one. Ids count through the split.
        """
        c = self.config
        ids = example_ids(split, indices, c.batch_size)
        random = words(c.seed, STREAMS[split], indices, ids.shape[1] * (1 + c.bits)).reshape(*ids.shape, 1 + c.bits)
        ones = c.ones(split)[0], c.most_ones(split, indices)[:, None, None]
        inputs = make_inputs(random, c.bits, ones, c.positions)
        if split == "train" and c.twins == "on":
            pairs = ids.shape[1] // 2 * 2  # in a batch of odd size the last example is alone
            inputs[:, 1:pairs:2] = turn_one(inputs[:, :pairs:2], random[:, :pairs:2])
        return Batch(inputs.astype(np.float32), targets_of(inputs).astype(np.int64), None, ids)

    @classmethod
    def asked(cls, config: ParityConfig) -> dict[str, Any]:
        span = None if config.train_ones == (1, config.bits) else config.train_ones  # the whole range is the default
        asked = {"bits": config.bits, "positions": config.positions, "train_ones": span}
        return {**asked, "eval_ones": config.eval_ones}

    @classmethod
    def trained_to(cls, config: ParityConfig) -> int | None:
        trained, beyond = config.train_ones, config.eval_ones
        return trained[1] if trained is not None and beyond is not None and beyond[1] > trained[1] else None

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        """The number of non-zeros of each example."""
        return np.count_nonzero(inputs, axis=-1)
