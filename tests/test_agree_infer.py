"""Serving on the two backends: equal steps, given equal λ, and else but for uniforms within the tolerance of λ."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

from infer_checks import near_ties  # noqa: E402

import ponder_jax  # noqa: E402
import ponder_ref  # noqa: E402
import ponder_torch  # noqa: E402
from ponder_ref.models.rnn import Rnn  # noqa: E402

EXAMPLES, STEPS, SEED = 500, 12, 21
BACKENDS = (ponder_torch, ponder_jax)


def table_steps(backend, policy: str, z: np.ndarray, slots: int) -> np.ndarray:
    """Steps of examples whose logits `[examples, STEPS]` are laid down: rows shifted by one at each step."""
    shift = backend.from_numpy(np.eye(STEPS, k=-1), "float32")

    def step(h):
        return h[..., 0], h @ shift, h[..., 0]

    state = backend.from_numpy(z, "float32")
    ids = backend.from_numpy(np.arange(EXAMPLES) * 7919, "uint32")
    options = {"max_steps": STEPS, "policy": policy, "seed": SEED, "example_ids": ids, "slots": slots}
    return np.asarray(backend.to_numpy(backend.predict(step, None, state, **options).steps))


def test_equal_lambdas_give_equal_steps():
    """λ of 0, ½ and 1 are exact on every backend."""
    rng = np.random.default_rng(0)
    z = rng.choice([-1e4, 0.0, 1e4], p=[0.6, 0.35, 0.05], size=(EXAMPLES, STEPS))
    lambdas = np.where(z == 0, 0.5, z > 0).T
    want = ponder_ref.draw_steps(lambdas, SEED, np.arange(EXAMPLES) * 7919)
    assert len(set(want)) == STEPS
    for backend in BACKENDS:
        for slots in (7, EXAMPLES):
            np.testing.assert_array_equal(table_steps(backend, "sample", z, slots), want)


def test_a_network_gives_equal_steps_but_for_ties():
    model = Rnn(inputs=8, hidden=16)
    params = model.initial_parameters(3)
    params["halt.b"] = params["halt.b"] - 1.5
    x = np.random.default_rng(1).normal(size=(EXAMPLES, 8))

    def pondered(backend, dtype: str, run: str):
        held = {name: backend.from_numpy(value, dtype) for name, value in params.items()}
        projected = backend.rnn_project(held, backend.from_numpy(x, dtype))
        state = backend.rnn_initial_state(held, projected)

        def step(p, h):
            h = backend.rnn_transition(held, p, h)
            y_hat, z = backend.rnn_readout(held, h)
            return y_hat, h, z

        if run == "ponder":
            return backend.ponder(step, projected, state, max_steps=STEPS)
        return backend.predict(step, projected, state, max_steps=STEPS, seed=SEED, slots=50)

    z = pondered(ponder_ref, "float64", "ponder").halt_logits
    lambdas = 1 / (1 + np.exp(-z))
    want = ponder_ref.draw_steps(lambdas, SEED, np.arange(EXAMPLES))
    clear = ~near_ties(lambdas, SEED, np.arange(EXAMPLES))
    assert len(set(want)) == STEPS and clear.sum() > 0.99 * EXAMPLES
    for backend in BACKENDS:
        steps = np.asarray(backend.to_numpy(pondered(backend, "float32", "predict").steps))
        np.testing.assert_array_equal(steps[clear], want[clear])
