"""The fast unroll of each of the paper's networks against the same network step by step: shared by both backends."""

from typing import Any

import numpy as np
from load_checks import MODELS, STEPS, WAYS, first_parameters, make_inputs, to_backend, within
from nets import make_net, run_with
from rnn_checks import gradients

from ponder_ref.models._buckets import with_dropout
from ponder_ref.models._pair_inputs import with_masks


def check_unroll(backend: Any, monkeypatch: Any, kind: str, way: str, *, slopes: bool) -> None:
    """Predictions, logits, Nᵢ and the loss with its gradient, with dropout, in float32."""
    model = MODELS[kind]
    params = first_parameters(model)
    net = make_net(backend.__name__, model, params, **{"max_steps": STEPS, "beta": 0.1, "tau": 0.1, **WAYS[way]})
    inputs, masks = make_inputs(kind), {"transformer": with_dropout, "rnn": lambda model, x, *rest: x}
    x = to_backend(backend, masks.get(kind, with_masks)(model, inputs, 5, 0, STEPS))
    held = [backend.from_numpy(value, "float32") for value in params.values()]
    count = len(backend.to_numpy(net(x).lengths))
    classes = np.random.default_rng(2).integers(0, 2, count)
    criterion = backend.binary_cross_entropy if kind == "rnn" else backend.cross_entropy
    targets = backend.from_numpy(classes, "float32" if kind == "rnn" else "int32")

    def loss(*values):
        return net.loss(run_with(backend, net, dict(zip(params, values, strict=True)), x), targets, criterion).loss

    def told() -> tuple[dict[str, np.ndarray], Any]:
        out = net(x)
        lengths = backend.to_numpy(out.lengths)
        found = {name: backend.to_numpy(getattr(out, name)) for name in ("y_hat", "halt_logits", "lengths")}
        value = loss(*held) if not slopes else gradients(backend, loss, held)
        return {name: within(lengths, x) if x.ndim > 1 else x for name, x in found.items()}, value

    fast, fast_value = told()
    calls: list[int] = []
    monkeypatch.setattr(type(net.step), "unroll", lambda *args: calls.append(1))
    slow, slow_value = told()
    assert calls, "the unroll was not asked"
    np.testing.assert_array_equal(fast["lengths"], slow["lengths"])
    assert len(set(slow["lengths"].tolist())) > 1 or way not in ("epsilon", "act"), "no example leaves early"
    np.testing.assert_allclose(fast["y_hat"], slow["y_hat"], atol=3e-5)
    np.testing.assert_allclose(fast["halt_logits"], slow["halt_logits"], atol=3e-5)
    if not slopes:
        np.testing.assert_allclose(backend.to_numpy(fast_value), backend.to_numpy(slow_value), rtol=1e-5)
        return
    np.testing.assert_allclose(fast_value[0], slow_value[0], rtol=1e-5)
    for name, got, want in zip(params, fast_value[1], slow_value[1], strict=True):
        np.testing.assert_allclose(got, want, atol=3e-5, err_msg=name)
