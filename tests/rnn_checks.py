"""Checks of a backend's fast RNN and trainer, shared by the tests of both backends."""

from typing import Any

import numpy as np
from nets import make_net, make_trainer, run_with

from ponder_ref.base import Batch
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.settings import Halting, Optimiser

WAYS: dict[str, dict[str, Any]] = {
    "ponder": {},
    "normalize": {"remainder": "normalize"},
    "epsilon": {"epsilon": 0.3, "min_steps": 2},
    "epsilon, normalize": {"epsilon": 0.1, "remainder": "normalize"},
    "act": {"method": "act", "act_epsilon": 0.2},
    "repeat": {"method": "repeat"},
    "once": {"method": "once"},
}
STEPS = 6


def check_against_ponder(backend: Any, package: str, options: dict[str, Any], outputs: int) -> None:
    """Loss and gradients by every parameter and the input, float32."""
    model, rng = Rnn(inputs=5, hidden=7, outputs=outputs, output="binary"), np.random.default_rng(0)
    params = model.initial_parameters(1)
    params["halt.b"] += 0.5
    names = list(params)
    net = make_net(package, model, params, **{"max_steps": STEPS, "min_steps": 1, **options})
    x = rng.normal(size=(9, 5))
    targets = rng.integers(0, 2, (9,) if outputs == 1 else (9, outputs)).astype(float)
    prior = backend.geometric_log_prior(0.3, STEPS)
    arrays = [backend.from_numpy(value, "float32") for value in (*params.values(), x)]
    held = backend.from_numpy(targets, "float32")

    def loss_of(run):
        def loss(*values):
            *weights, x = values
            out = run(dict(zip(names, weights, strict=True)), x)
            kept = prior if options.get("method", "ponder") == "ponder" else None
            prices = {"beta": 0.1, "tau": 0.1}
            return backend.training_loss(out, held, backend.binary_cross_entropy, log_prior=kept, **prices).loss

        return loss

    def fast(params, x):
        return run_with(backend, net, params, x)

    def general(params, x):
        projected = backend.rnn_project(params, x)
        return backend.ponder(
            lambda p, h: backend.rnn_transition(params, p, h),
            projected,
            backend.rnn_initial_state(params, projected),
            max_steps=STEPS,
            readout=lambda h: backend.rnn_readout(params, h),
            **options,
        )

    out, want = (run(dict(zip(names, arrays, strict=False)), arrays[-1]) for run in (fast, general))
    assert np.array_equal(backend.to_numpy(out.lengths), backend.to_numpy(want.lengths))
    np.testing.assert_allclose(backend.to_numpy(out.state), backend.to_numpy(want.state), atol=2e-6)
    value, grads = gradients(backend, loss_of(fast), arrays)
    right, wanted = gradients(backend, loss_of(general), arrays)
    np.testing.assert_allclose(value, right, rtol=1e-6)
    for name, got, should in zip([*names, "x"], grads, wanted, strict=True):
        np.testing.assert_allclose(got, should, atol=2e-6, err_msg=name)


def gradients(backend: Any, fn: Any, arrays: list) -> tuple[np.ndarray, list[np.ndarray]]:
    """By the framework's ordinary means: torch's autograd functions are not for torch.func."""
    if backend.NAME == "torch":
        import torch

        leaves = [array.detach().requires_grad_() for array in arrays]
        value = fn(*leaves)
        grads = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    else:
        value, grads = backend.value_and_grad(fn, *arrays)
    return backend.to_numpy(value), [backend.to_numpy(grad) for grad in grads]


def check_state_is_kept(package: str) -> None:
    """Training is a function: the state that went in can be used again, and gives the same."""
    model = Rnn(inputs=4, hidden=3)
    optimiser = Optimiser(optimiser="muon", matrix_learning_rate=0.0)
    trainer = make_trainer(package, model, Halting(max_steps=3), optimiser)
    start = trainer.init(model.initial_parameters(0))
    before = trainer.dump(start)
    rng = np.random.default_rng(0)
    chunk = Batch(rng.normal(size=(2, 5, 4)).astype(np.float32), rng.integers(0, 2, (2, 5)), None, None)
    ends = [trainer.dump(trainer.train_steps(start, chunk)[0]) for _ in range(2)]
    for name, value in trainer.dump(start).items():
        assert np.array_equal(value, before[name]), name
        assert np.array_equal(ends[0][name], ends[1][name]), name
    assert np.array_equal(ends[0]["params.rnn.w_h"], before["params.rnn.w_h"])  # Muon's learning rate is 0, not Adam's
    assert not np.array_equal(ends[0]["params.rnn.b"], before["params.rnn.b"])
