"""Networks in files, by a backend's public names: what the tests of both backends and of their agreement share."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from nets import make_trainer
from train_pairs import MODEL as PAIRS
from train_pairs import XL
from train_pairs import make_chunk as pair_chunk
from train_pairs import make_inputs as make_pairs
from train_transformer import MODEL as TRANSFORMER
from train_transformer import make_chunk as word_chunk
from train_transformer import make_inputs as make_words

from ponder_ref.base import SPEC_VERSION, Batch
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting, Optimiser

RNN = Rnn(inputs=5, hidden=7)
MODELS: dict[str, Any] = {"rnn": RNN, "transformer": TRANSFORMER, "pairs": PAIRS, "xl": XL}
WAYS: dict[str, dict[str, Any]] = {
    "ponder": {},
    "epsilon": {"epsilon": 0.3, "remainder": "normalize"},
    "poisson": {"prior": "poisson"},
    "act": {"method": "act", "act_epsilon": 0.3},
    "repeat": {"method": "repeat"},
    "once": {"method": "once"},
    "ut-act": {"method": "ut-act", "act_epsilon": 0.3},
}
KINDS = [(kind, way) for kind in MODELS for way in WAYS if way != "ut-act" or kind == "transformer"]
STEPS = 4


def make_inputs(kind: str, dtype: str = "float32") -> Any:
    """A batch without dropout."""
    if kind == "transformer":
        return make_words(3)
    if kind == "rnn":
        return np.random.default_rng(0).normal(size=(6, 5)).astype(dtype)
    return {name: x.astype(dtype) if x.dtype == np.float64 else x for name, x in make_pairs(3).items()}


def make_chunk(kind: str) -> Batch:
    """Two updates' batches."""
    if kind == "transformer":
        return word_chunk(0, 2, MODELS[kind])
    if kind == "rnn":
        rng = np.random.default_rng(1)
        return Batch(rng.normal(size=(2, 6, 5)), rng.integers(0, 2, (2, 6)), None, None)
    chunk = pair_chunk(0, 2)
    return chunk._replace(inputs={name: x for name, x in chunk.inputs.items() if not name.startswith("dropout")})


def first_parameters(model: Any) -> dict[str, np.ndarray]:
    """Initial parameters with logits of halting that differ between examples and steps."""
    rng, params = np.random.default_rng(0), model.initial_parameters(1)
    params["halt.w"] = params["halt.w"] * 3 + rng.normal(size=params["halt.w"].shape)
    return params


def make_run(package: str, folder: Path, kind: str, way: str, dtype: str = "float32") -> tuple[Any, Any]:
    """Two updates of a network in the folder of a run; the trainer and its state."""
    model, halting = MODELS[kind], Halting(**{"max_steps": STEPS, **WAYS[way]})
    trainer = make_trainer(package, model, halting, Optimiser("muon"), dtype=dtype, threads=1)
    state, _ = trainer.train_steps(trainer.init(first_parameters(model)), make_chunk(kind))
    about = {"spec": SPEC_VERSION, "task": "test", "update": 2, "network": Network(model, halting).to_json()}
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint.save(folder / "checkpoints", checkpoint.Checkpoint(trainer.dump(state), about), 2)
    return trainer, state


def to_backend(backend: Any, tree: Any) -> Any:
    """NumPy arrays as the backend's."""
    if isinstance(tree, dict):
        return {name: to_backend(backend, x) for name, x in tree.items()}
    return backend.from_numpy(tree, tree.dtype.name) if backend.NAME != "reference" else tree


def within(lengths: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The first max Nᵢ steps of an array `[n, batch, ...]`, 0 beyond each example's own: that is nobody's answer."""
    x = x[: lengths.max()]
    own = np.arange(1, len(x) + 1)[:, None] <= lengths
    return np.where(own.reshape(*own.shape, *[1] * (x.ndim - 2)), x, 0)


def answers_of(backend: Any, net: Any, kind: str, way: str, dtype: str = "float32") -> dict[str, np.ndarray]:
    """What a network says of a batch, by name: all that it gives, and its predictions by all policies it has."""
    x = to_backend(backend, make_inputs(kind, dtype))
    out = net(x)
    found = {"halt_logits": out.halt_logits, "lengths": out.lengths, "y_hat": out.y_hat}
    if out.act is None:
        found["log_p"] = out.log_p
    else:
        found |= {"weights": out.act.weights, "remainder": out.act.remainder}
    if way not in ("act", "ut-act"):
        for policy in ("sample", "quantile", "expected") if "method" not in WAYS[way] else ("fixed",):
            said = net.predict(x, policy=policy, seed=3)
            found |= {f"{policy}.y_hat": said.y_hat, f"{policy}.steps": said.steps}
    arrays = {name: backend.to_numpy(value) for name, value in found.items()}
    by_step = {name: within(arrays["lengths"], x) for name, x in arrays.items() if x.ndim > 1 and "." not in name}
    return arrays | by_step


def check_run(package: str, folder: Path, kind: str, way: str) -> None:
    """A run's folder is loaded as the network that was trained: its unroll, its answers; saved again it is the same."""
    backend = import_module(package)
    trainer, state = make_run(package, folder, kind, way)
    net = backend.load(folder)
    assert net.halting == Halting(**{"max_steps": STEPS, **WAYS[way]})
    inputs = make_inputs(kind)
    got, want = answers_of(backend, net, kind, way), trainer.unroll(state, inputs)
    if way in ("repeat", "ponder"):
        np.testing.assert_allclose(got["y_hat"], want[0], atol=1e-5)
        np.testing.assert_allclose(got["halt_logits"], want[1], atol=1e-5)
    if way not in ("act", "ut-act"):
        said = trainer.predict(state, inputs, seed=3)
        first = "fixed" if "method" in WAYS[way] else "sample"
        np.testing.assert_array_equal(said.steps, got[f"{first}.steps"])
        np.testing.assert_allclose(said.y_hat, got[f"{first}.y_hat"], atol=1e-5)
    net.save(folder / "saved")
    again = answers_of(backend, backend.load(folder / "saved"), kind, way)
    for name, value in got.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)
