"""A trainer of the contract in NumPy, for tests: quick to start, right to the last bit, no framework.

The model is a logistic regression; step n multiplies its logit by n, and the halting logits are n − 2.
"""

import errno
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import ponder_ref
from ponder_ref import checks
from ponder_ref.base import Predicted
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting, Optimiser


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_at_call(name: str, variable: str, fail: Callable[[], None]) -> None:
    """With the variable set to n in the environment, `fail` is called as the function of os is the nth time."""
    count, original = int(os.environ.get(variable, "0")), getattr(os, name)

    def call(*arguments: Any) -> Any:
        nonlocal count
        count -= 1
        if count == 0:
            fail()
        return original(*arguments)

    if count:
        setattr(os, name, call)


fail_at_call("fsync", "TEST_KILL_FSYNC", die)
fail_at_call("replace", "TEST_KILL_REPLACE", die)
fail_at_call("unlink", "TEST_KILL_UNLINK", die)
fail_at_call("replace", "TEST_FULL_REPLACE", disk_is_full)


class State(NamedTuple):
    w: np.ndarray
    update: int


class Trainer:
    """Logistic regression by plain gradient descent.

    The environment has it misbehave: TEST_NAN_AT=update makes that loss NaN, TEST_SIGNAL_AT=update:number sends the
    process a signal there (TEST_SIGNALS=n of them), TEST_SIGNAL_AT_UNROLL=n:number at the nth batch of evaluations.
    """

    def __init__(self, inputs: int, halting: Halting, optimiser: Optimiser, dtype: str, grow: float = 1.0):
        self.inputs, self.halting, self.optimiser, self.dtype, self.grow = inputs, halting, optimiser, dtype, grow
        self.nan_at = int(os.environ.get("TEST_NAN_AT", "-1"))
        self.signal_at, self.signal = map(int, os.environ.get("TEST_SIGNAL_AT", "-1:0").split(":"))
        self.signals = int(os.environ.get("TEST_SIGNALS", "1"))
        self.unrolls, self.unroll_signal = map(int, os.environ.get("TEST_SIGNAL_AT_UNROLL", "0:0").split(":"))
        self.steps = 1 if halting.method == "once" else halting.max_steps

    def init(self, params: Mapping[str, np.ndarray] | None = None) -> State:
        if params is None:
            return State(np.zeros(self.inputs, self.dtype), 0)
        first = params["w"] if "w" in params else params["rnn.w_x"][:, 0]  # of a checkpoint, or of the model
        if first.shape != (self.inputs,):
            raise ValueError(f"w must have the shape {(self.inputs,)}, got {first.shape}")
        return State(first.astype(self.dtype), 0)

    def load(self, arrays: Mapping[str, np.ndarray]) -> State:
        if arrays["params.w"].shape != (self.inputs,):
            raise ValueError(f"params.w must have the shape {(self.inputs,)}, got {arrays['params.w'].shape}")
        return State(arrays["params.w"].astype(self.dtype), int(arrays["update"]))

    def dump(self, state: State) -> dict[str, np.ndarray]:
        return {"params.w": state.w.copy(), "update": np.array(state.update, np.int64)}

    def train_steps(self, state: State, chunk: Any) -> tuple[State, dict[str, np.ndarray]]:
        history: dict[str, list[float]] = {}
        w, update = state
        for x, t in zip(chunk.inputs, chunk.targets, strict=True):
            update += 1
            if update == self.signal_at:
                for _ in range(self.signals):
                    os.kill(os.getpid(), self.signal)
            y = self.grow * (x @ w)
            chance = 1 / (1 + np.exp(-y))
            loss = np.logaddexp(0, y).mean() - (t * y).mean() + (np.nan if update == self.nan_at else 0)
            grad = (x * (chance - t)[:, None]).mean(axis=0)
            w = (w - self.optimiser.learning_rate * grad).astype(self.dtype)
            values = {"loss": loss, "loss_rec": loss, "loss_reg": 0.0, "accuracy": ((y > 0) == t).mean()}
            values |= {"expected_steps": 2.0, "steps_run": self.steps, "grad_norm": np.linalg.norm(grad)}
            for name, value in values.items():
                history.setdefault(name, []).append(float(value))
        return State(w, update), {name: np.array(values) for name, values in history.items()}

    def unroll(self, state: State, inputs: np.ndarray, *, max_steps: int | None = None):
        self.unrolls -= 1
        if self.unrolls == 0:
            os.kill(os.getpid(), self.unroll_signal)
        n = np.arange(1, (max_steps or self.steps) + 1, dtype=np.float64)[:, None]
        y = self.grow * (inputs @ state.w)[None]
        return y * n, np.broadcast_to(y * 0 + n - 2, (len(n), len(inputs))).copy()

    def predict(self, state: State, inputs: np.ndarray, **options: Any) -> Predicted:
        checks.check_predictable(self.halting.method, options["policy"])

        def step(h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            n = h[:, :1] + 1
            return self.grow * (h[:, 1:] @ state.w) * n[:, 0], np.concatenate([n, h[:, 1:]], axis=1), n[:, 0] - 2

        start = np.concatenate([np.zeros((len(inputs), 1)), inputs], axis=1)
        return ponder_ref.predict(step, None, start, **options)


def make_trainer(
    network: Network, optimiser: Optimiser, *, dtype: str = "float32", threads: int | None = None, build: Any = None
) -> Trainer:
    """The contract's (`ponder_ref.runtime.contracts.MakesTrainer`); a network of one's own is a factor of the logit."""
    if not network.is_own:
        return Trainer(network.model.inputs, network.halting, optimiser, dtype)
    problem = network.model.problem(network.halting)
    return Trainer(*problem.inputs.shape, network.halting, optimiser, dtype, build(problem))
