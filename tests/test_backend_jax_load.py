"""Networks in files on JAX, through public names: runs, saved and shipped networks, one's own; the fast unrolls."""

from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402
from load_checks import KINDS, MODELS, STEPS, WAYS, check_run, first_parameters, make_inputs  # noqa: E402
from nets import make_net  # noqa: E402
from unroll_checks import check_unroll  # noqa: E402

import ponder_jax  # noqa: E402
from ponder_ref.runtime.network import Leaf, Network, Own  # noqa: E402
from ponder_ref.runtime.saved import write_saved  # noqa: E402
from ponder_ref.runtime.settings import Halting  # noqa: E402

SHIPPED = Path(__file__).resolve().parent.parent / "tasks" / "babi" / "pretrained"
OWN = Own("mine.py:build", "00", Leaf((3,), "float32"), 1, "binary")


@pytest.mark.parametrize(("kind", "way"), KINDS)
def test_a_run_is_loaded_as_what_was_trained(kind: str, way: str, tmp_path: Path):
    check_run("ponder_jax", tmp_path, kind, way)


@pytest.mark.parametrize(("kind", "way"), [pair for pair in KINDS if pair[1] not in ("ut-act", "poisson")])
def test_the_fast_unroll_is_step_by_step(kind: str, way: str, monkeypatch):
    """Reverse mode does not go through the decoder's loop, step by step: there the values are compared alone."""
    check_unroll(ponder_jax, monkeypatch, kind, way, slopes=kind in ("rnn", "transformer"))


@pytest.mark.parametrize("kind", MODELS)
def test_a_stream_is_predict(kind: str):
    """Examples at different steps in the slots, fewer of them than examples."""
    net = make_net("ponder_jax", MODELS[kind], first_parameters(MODELS[kind]), max_steps=STEPS)
    inputs = make_inputs(kind)
    inputs = {"words.9": inputs["words.9"]} if kind == "transformer" else inputs
    want = net.predict(inputs, seed=3, slots=2)
    count = len(want.steps)
    assert len(set(want.steps.tolist())) > 1
    examples = [jax.tree.map(lambda leaf, i=i: leaf[i], inputs) for i in range(count)]
    got = list(ponder_jax.stream(net, examples, seed=3, slots=2, ordered=True))
    np.testing.assert_array_equal([one.steps for one in got], want.steps)
    np.testing.assert_allclose(np.stack([one.y_hat for one in got]), want.y_hat, atol=1e-5)


def test_the_shipped_network_answers():
    net = ponder_jax.load(SHIPPED)
    words = jnp.ones((2, 3, net.step.settings.tokens), jnp.int16)
    want = ponder_jax.expected_prediction(net(words).log_p, net(words).y_hat)
    said = net.predict(words, policy="expected", epsilon=1e-6)
    np.testing.assert_allclose(said.y_hat, want, atol=1e-3)
    assert net.halting.prior == "geometric"


class Mine(nnx.Module):
    """A step with dropout and a running mean, which is no parameter."""

    def __init__(self, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)])
        self.norm, self.drop = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x, h):
        h = self.drop(self.norm(jnp.tanh(self.layers[0](x) + self.layers[1](h))))
        y_hat, z = self.head(h).T
        return y_hat, h, z


def build(problem):
    rngs = nnx.Rngs(problem.seed)
    return ponder_jax.PonderNet(Mine(rngs), initial_state=lambda x: jnp.zeros((len(x), 4)), **problem.halting)


def test_a_network_of_ones_own(tmp_path: Path):
    halting = Halting(max_steps=3, beta=0.3)
    net = build(OWN.problem(halting))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    net(x)  # in training mode: statistics and counts of random numbers go on
    net.save(tmp_path)
    with pytest.raises(ValueError, match="build must be given, the function that makes this network"):
        ponder_jax.load(tmp_path)
    again = ponder_jax.load(tmp_path, build=build)
    net.eval()
    np.testing.assert_array_equal(again(x).y_hat, net(x).y_hat)
    assert again.halting == halting
    for one in (net, again):
        one.train()
    np.testing.assert_array_equal(again(x).y_hat, net(x).y_hat)  # the same random numbers
    again.save(tmp_path / "again")  # its description goes on
    with pytest.raises(ValueError, match="must return a PonderNet"):
        ponder_jax.load(tmp_path / "again", build=lambda problem: problem)

    def wider(problem):
        made = build(problem)
        made.step.head = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
        return made

    with pytest.raises(ValueError, match=r"step.head.bias must have the shape \(3,\)"):
        ponder_jax.load(tmp_path, build=wider)


def test_what_a_run_noted_of_ones_own_network_is_kept(tmp_path: Path):
    from ponder_jax.models import net_of

    net_of(Network(OWN, Halting(max_steps=2)), build).save(tmp_path)
    seen = []
    ponder_jax.load(tmp_path, build=lambda problem: seen.append(problem) or build(problem))
    assert seen == [OWN.problem(Halting(max_steps=2))]


def test_bad_files_get_a_sentence(tmp_path: Path):
    rnn = MODELS["rnn"]
    net = make_net("ponder_jax", rnn, rnn.initial_parameters(0), max_steps=2)
    with pytest.raises(ValueError, match="holds no network"):
        ponder_jax.load(tmp_path / "nowhere")
    file = net.save(tmp_path)
    with pytest.raises(ValueError, match="build must not be given"):
        ponder_jax.load(file, build=build)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        ponder_jax.load(tmp_path)
    write_saved(tmp_path, Network(rnn, Halting()), MODELS["transformer"].initial_parameters(0), {})
    with pytest.raises(ValueError, match="params must have the names of the model"):
        ponder_jax.load(tmp_path)
    write_saved(tmp_path, Network(rnn, Halting(method="ut-act")), rnn.initial_parameters(0), {})
    with pytest.raises(ValueError, match="method must be one of"):
        ponder_jax.load(tmp_path)
    own_prior = ponder_jax.PonderNet(net.step, max_steps=2, log_prior=ponder_jax.uniform_log_prior(2))
    with pytest.raises(ValueError, match="log_prior has none"):
        own_prior.save(tmp_path)


def test_every_way_has_its_prior():
    """The named prior is that of the standard's functions."""
    rnn = MODELS["rnn"]
    nets = {
        name: make_net("ponder_jax", rnn, rnn.initial_parameters(0), max_steps=4, prior=name)
        for name in ("geometric", "uniform", "poisson")
    }
    x, targets = jnp.asarray(make_inputs("rnn")), jnp.zeros(6)
    made = (
        ponder_jax.geometric_log_prior(0.2, 4),
        ponder_jax.uniform_log_prior(4),
        ponder_jax.poisson_log_prior(4.0, 4),
    )
    for net, prior in zip(nets.values(), made, strict=True):
        out = net(x)
        want = ponder_jax.pondering_loss(out, targets, ponder_jax.binary_cross_entropy, log_prior=prior, beta=0.01)
        assert net.loss(out, targets, ponder_jax.binary_cross_entropy).loss == pytest.approx(float(want.loss), rel=1e-6)
    with pytest.raises(ValueError, match="prior must be one of"):
        ponder_jax.PonderNet(nets["uniform"].step, max_steps=4, prior="flat")
    with pytest.raises(ValueError, match="lambda_p"):
        ponder_jax.PonderNet(nets["uniform"].step, max_steps=4, prior="poisson", lambda_p=1.0)
    assert set(WAYS) > {"poisson"}
