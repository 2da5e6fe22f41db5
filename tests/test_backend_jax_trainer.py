"""The trainer on JAX with networks of one's own: chance and running statistics, resuming, many answers, compiling."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402

from ponder_jax import PonderNet  # noqa: E402
from ponder_jax.infer import _predict  # noqa: E402
from ponder_jax.train import Trainer, make_trainer  # noqa: E402
from ponder_ref.base import Batch  # noqa: E402
from ponder_ref.models.rnn import Rnn  # noqa: E402
from ponder_ref.runtime.network import Network  # noqa: E402
from ponder_ref.runtime.settings import Halting, Optimiser  # noqa: E402

RNG = np.random.default_rng(0)


class Cell(nnx.Module):
    """A step with everything in it that a training has to carry: chance, statistics, layers in a list."""

    def __init__(self, rngs: nnx.Rngs, outputs: tuple[int, ...] = ()):
        self.norm, self.drop = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)])
        self.head = nnx.Linear(4, int(np.prod(outputs)) + 1, rngs=rngs)
        self.outputs = outputs

    def __call__(self, x, h):
        h = self.drop(self.norm(jnp.tanh(x + self.layers[1](nnx.relu(self.layers[0](h))))))
        out = self.head(h)
        return out[:, :-1].reshape(len(x), *self.outputs), h, out[:, -1]


def make_net(outputs: tuple[int, ...] = (), **options) -> PonderNet:
    rngs = nnx.Rngs(1)
    project = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs))
    start = {"project": project, "initial_state": jnp.zeros_like}
    return PonderNet(Cell(rngs, outputs), max_steps=3, **start, **options)


def chunks(count: int, answers: tuple[int, ...] = (), classes: int = 2) -> list[Batch]:
    shape = (count, 2, 8)
    x, y = RNG.normal(size=(*shape, 3)).astype(np.float32), RNG.integers(0, classes, (*shape, *answers))
    return [Batch(x[i], y[i], None, None) for i in range(count)]


def test_kill_and_resume_end_in_the_same_bytes():
    batches = chunks(4)
    trainer = Trainer(make_net(epsilon=0.1), Optimiser("muon", clip=1.0), output="binary")
    state, resumed = trainer.init(), Trainer(make_net(epsilon=0.1), Optimiser("muon", clip=1.0), output="binary")
    names = set(trainer.dump(state))
    assert {"rest.step.norm.mean", "rest.project.layers.1.var", "rest.step.drop.rngs.count"} <= names
    assert "v.step.layers.0.bias" in names and "v.step.layers.0.kernel" not in names  # Muon's
    middle = None
    for k, batch in enumerate(batches):
        state, metrics = trainer.train_steps(state, batch)
        assert np.isfinite(metrics["loss"]).all()
        if k == 1:
            middle = trainer.dump(state)
    other = resumed.load(middle)
    for batch in batches[2:]:
        other, _ = resumed.train_steps(other, batch)
    want, got = trainer.dump(state), resumed.dump(other)
    assert want.keys() == got.keys()
    for name, value in want.items():
        assert got[name].tobytes() == value.tobytes(), name
    assert (want["rest.step.norm.mean"] != middle["rest.step.norm.mean"]).any()
    assert want["rest.step.drop.rngs.count"] > middle["rest.step.drop.rngs.count"]


def test_the_net_that_was_given_is_left_alone():
    net = make_net()
    before = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(net, nnx.Not(nnx.RngKey))))
    trainer = Trainer(net, Optimiser(), output="binary")
    trainer.train_steps(trainer.init(), chunks(1)[0])
    after = nnx.to_pure_dict(nnx.state(net, nnx.Not(nnx.RngKey)))
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), before, after))
    assert net.step.drop.deterministic is False


def test_evaluation_is_without_chance_and_as_the_module_itself():
    trainer = Trainer(make_net(), Optimiser(), output="binary")
    state, _ = trainer.train_steps(trainer.init(), chunks(1)[0])
    x = RNG.normal(size=(8, 3)).astype(np.float32)
    first, again = trainer.unroll(state, x), trainer.unroll(state, x)
    np.testing.assert_array_equal(first[0], again[0])
    alone = np.concatenate([trainer.unroll(state, x[i : i + 1])[0] for i in range(8)], 1)
    np.testing.assert_allclose(first[0], alone, atol=1e-5)  # by the running statistics, not the batch's
    said = trainer.predict(state, x, policy="fixed", trace=True)
    assert type(said.y_hat) is np.ndarray and said.steps.tolist() == [3] * 8
    np.testing.assert_allclose(said.trace.y_hat, first[0], atol=1e-5)
    assert trainer.unroll(state, x, max_steps=5)[0].shape[:2] == (5, 8)


@pytest.mark.parametrize("output", ["binary", "classes"])
def test_an_example_is_right_if_all_its_answers_are(output: str):
    """Three answers each; the network is a table that says what it is asked."""

    def step(x, h):
        return x, h, jnp.full(len(x), 20.0)  # halts at once

    right = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]])
    said = right.copy()
    said[1, 2], said[2] = 1, 1 - said[2]  # one answer wrong, all wrong
    x = np.where(said == 1, 3.0, -3.0)
    x = (x if output == "binary" else np.stack([-x, x], -1)).astype(np.float32)
    net = PonderNet(step, max_steps=2, initial_state=lambda x: jnp.zeros(len(x)))
    trainer = Trainer(net, Optimiser(), output=output)
    _, metrics = trainer.train_steps(trainer.init(), Batch(x[None], right[None], None, None))
    assert metrics["accuracy"] == pytest.approx(0.5, abs=1e-6)


def test_many_classes_of_many_answers_are_trained():
    trainer = Trainer(make_net((2, 3)), Optimiser(learning_rate=1e-2), output="classes")
    state, metrics = trainer.train_steps(trainer.init(), chunks(1, (2,), 3)[0])
    assert np.isfinite(metrics["loss"]).all() and state.update == 2


def test_another_chunk_compiles_nothing():
    trainer = Trainer(make_net(), Optimiser(), output="binary")
    state, traced = trainer.init(), []
    own = trainer._loss
    trainer._loss = lambda *args: traced.append(1) or own(*args)
    for batch in chunks(3):
        state, _ = trainer.train_steps(state, batch)
    assert traced == [1]
    before = _predict._cache_size()
    for seed in range(3):
        trainer.predict(state, RNG.normal(size=(8, 3)).astype(np.float32), seed=seed)
    assert _predict._cache_size() == before + 1


def test_what_does_not_fit_gets_a_sentence():
    trainer = Trainer(make_net(), Optimiser(), output="binary")
    arrays = trainer.dump(trainer.init())
    with pytest.raises(ValueError, match=r"missing \['rest.step.drop.rngs.count'\]"):
        trainer.load({name: x for name, x in arrays.items() if name != "rest.step.drop.rngs.count"})
    with pytest.raises(ValueError, match=r"step\.head\.kernel"):
        trainer.load({**arrays, "params.step.head.kernel": np.zeros((1, 1))})
    with pytest.raises(ValueError, match="unknown"):
        trainer.init({"w": np.zeros(3)})
    with pytest.raises(ValueError, match="output must be one of"):
        Trainer(make_net(), Optimiser(), output="numbers")


def test_float64_is_a_choice_for_the_process():
    if jax.config.jax_enable_x64:
        pytest.skip("this process has chosen float64")
    with pytest.raises(ValueError, match="JAX_ENABLE_X64"):
        Trainer(make_net(), Optimiser(), output="binary", dtype="float64")
    model = Rnn(inputs=3, hidden=2)
    try:
        trainer = make_trainer(Network(model, Halting(max_steps=2)), Optimiser(), dtype="float64")
        state, metrics = trainer.train_steps(trainer.init(), chunks(1)[0])
        assert metrics["loss"].dtype == trainer.dump(state)["params.rnn.b"].dtype == np.float64
    finally:
        jax.config.update("jax_enable_x64", False)
