"""Rows of weight 0 in a training: what both backends' tests share."""

import numpy as np
from nets import make_trainer

from ponder_ref.base import Batch
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.settings import Halting, Optimiser

WEIGHTS = np.array([1.0, 0.0, 2.0, 0.0], np.float32)


def check_trainer(package: str) -> None:
    """Targets of weight 0 change no byte of a training, though they are no class or no number at all."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2, 4, 5)).astype(np.float32)
    cases = [
        (Rnn(inputs=5, hidden=4, outputs=3, output="classes"), rng.integers(0, 3, (2, 4)), (-100, 3)),
        (Rnn(inputs=5, hidden=4), rng.integers(0, 2, (2, 4)).astype(np.float32), (np.nan, np.inf)),
    ]
    for model, targets, wrong in cases:
        for name in ("ponder", "act", "repeat"):
            made = make_trainer(package, model, Halting(method=name, max_steps=3), Optimiser())

            def after(targets, made=made, model=model):
                state = made.init(model.initial_parameters(1))
                batch = Batch(inputs, targets, np.broadcast_to(WEIGHTS, (2, 4)), None)
                state, metrics = made.train_steps(state, batch)
                return {**made.dump(state), **metrics}

            want = after(targets)
            for number in wrong:
                got = after(np.where(WEIGHTS == 0, np.asarray(number, targets.dtype), targets))
                for key, value in want.items():
                    np.testing.assert_array_equal(got[key], value, err_msg=f"{name}: {key}")
