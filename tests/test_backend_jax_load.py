"""Networks in files on JAX, through public names: runs, saved and shipped networks, one's own; the fast unrolls."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from net_cases import MODELS, STEPS, WAYS, inputs, make_run, parameters  # noqa: E402
from nets import make_net, run_with  # noqa: E402

import ponder_jax  # noqa: E402
import ponder_ref  # noqa: E402
from ponder_jax import train  # noqa: E402
from ponder_ref.runtime.network import Leaf, Network, Own  # noqa: E402
from ponder_ref.runtime.saved import read_saved, write_saved  # noqa: E402
from ponder_ref.runtime.settings import Halting, Optimiser  # noqa: E402

SHIPPED = Path(__file__).resolve().parent.parent / "tasks" / "babi" / "pretrained"
OWN = Own("mine.py:build", "00", Leaf((3,), "float32"), 1, "binary")
CASES = [(name, way) for name in MODELS for way in WAYS] + [("transformer", "ut-act")]
ROWS = {"method": "ut-act", "act_epsilon": 0.3}
LOADS = (ponder_jax.load, ponder_ref.load)


def within(lengths: np.ndarray, x: jax.Array) -> np.ndarray:
    """The first max Nᵢ steps of `[n, batch, ...]`, 0 beyond each example's own: that is nobody's answer."""
    found = np.asarray(x)[: lengths.max()]
    own = np.arange(1, len(found) + 1)[:, None] <= lengths
    return np.where(own.reshape(*own.shape, *[1] * (found.ndim - 2)), found, 0)


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_run_is_the_network_that_was_trained(name: str, way: str, tmp_path: Path):
    """All that it gives and its answers, against the reference; saved and loaded again it is the same."""
    options = WAYS.get(way, ROWS)
    net, want = (load(make_run(train, tmp_path / str(k), name, **options)) for k, load in enumerate(LOADS))
    assert net.settings == MODELS[name] and net.halting == want.halting
    out, right = net(inputs(name)), want(inputs(name))
    np.testing.assert_array_equal(out.lengths, right.lengths)
    assert len(set(right.lengths.tolist())) > 1 or way not in ("epsilon", "act"), "no example leaves early"
    parts = {"y_hat": (out.y_hat, right.y_hat), "halt_logits": (out.halt_logits, right.halt_logits)}
    parts |= {"act": (out.act.weights, right.act.weights)} if out.act else {"log_p": (out.log_p, right.log_p)}
    for part, pair in parts.items():
        got, should = (within(right.lengths, x) for x in pair)
        np.testing.assert_allclose(got, should, atol=5e-5, err_msg=part)
    net.save(tmp_path / "saved")
    again = ponder_jax.load(tmp_path / "saved")
    np.testing.assert_array_equal(again(inputs(name)).y_hat, out.y_hat)
    assert again.halting == net.halting


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("policy", ["sample", "expected"])
def test_examples_leave_alone(name: str, policy: str, tmp_path: Path):
    """`predict` with slots for few and `stream`, in which examples are at different steps, against the reference."""
    folder = make_run(train, tmp_path, name, epsilon=0.2)
    net, want = (load(folder) for load in LOADS)
    x = inputs(name)
    x = {"words.9": np.pad(x["words.3"], ((0, 0), (6, 0), (0, 0)))} if name == "transformer" else x
    right = want.predict(x, policy=policy, seed=7)
    count = len(right.steps)
    assert len(set(right.steps.tolist())) > 1
    found = net.predict(x, policy=policy, seed=7, slots=2)
    examples = [jax.tree.map(lambda leaf, i=i: leaf[i], x) for i in range(count)]
    answers = list(ponder_jax.stream(net, examples, policy=policy, seed=7, slots=3, ordered=True))
    for steps, y_hat in ((found.steps, found.y_hat), zip(*((one.steps, one.y_hat) for one in answers), strict=True)):
        np.testing.assert_array_equal(steps, right.steps)
        np.testing.assert_allclose(np.stack(y_hat), right.y_hat, atol=5e-5)


@pytest.mark.parametrize(("name", "way"), [case for case in CASES if case[1] not in ("ut-act", "epsilon, normalize")])
def test_the_fast_unroll_is_step_by_step(name: str, way: str, monkeypatch):
    """With dropout: predictions, logits, Nᵢ, the loss and its gradient.

    Reverse mode does not go through the decoder of pairs step by step: there the gradient is not compared.
    """
    model, params = MODELS[name], parameters(name)
    net = make_net("ponder_jax", model, params, max_steps=STEPS[name], beta=0.1, tau=0.1, **WAYS[way])
    x = jax.tree.map(jnp.asarray, inputs(name, dropout=model.kind != "rnn"))
    held = {key: jnp.asarray(value, jnp.float32) for key, value in params.items()}
    count = len(net(x).lengths)
    classes = jnp.asarray(np.random.default_rng(2).integers(0, 2, count))
    criterion = ponder_jax.binary_cross_entropy if model.output == "binary" else ponder_jax.cross_entropy

    def loss(params):
        return net.loss(run_with(ponder_jax, net, params, x), classes, criterion).loss

    def told():
        out, value = net(x), jax.value_and_grad(loss)(held) if model.kind != "pairs" else (loss(held), {})
        lengths = np.asarray(out.lengths)
        return (lengths, within(lengths, out.y_hat), within(lengths, out.halt_logits)), *value

    fast, value, slopes = told()
    calls: list[int] = []
    monkeypatch.setattr(type(net.step), "unroll", lambda *args: calls.append(1))
    slow, right, wanted = told()
    assert calls, "the unroll was not asked"
    np.testing.assert_array_equal(fast[0], slow[0])
    for got, should in zip(fast[1:], slow[1:], strict=True):
        np.testing.assert_allclose(got, should, atol=3e-5)
    np.testing.assert_allclose(value, right, rtol=1e-5)
    for key, slope in slopes.items():
        np.testing.assert_allclose(slope, wanted[key], atol=5e-5, err_msg=key)


@pytest.mark.parametrize("name", ["rnn", "transformer", "pairs, xl"])
def test_inside_shard_map(name: str):
    """Loss and gradient where examples leave early: loops keep the types that a mesh gives their arrays."""
    model = MODELS[name]
    net = make_net("ponder_jax", model, parameters(name), max_steps=STEPS[name], epsilon=0.3)
    x = inputs(name)
    x = jax.tree.map(jnp.asarray, {"words.3": x["words.3"]} if name == "transformer" else x)
    targets = jnp.zeros(len(jax.tree.leaves(x)[0]), jnp.float32 if model.output == "binary" else jnp.int32)
    criterion = ponder_jax.binary_cross_entropy if model.output == "binary" else ponder_jax.cross_entropy
    graph, params = nnx.split(net)

    def loss(params, x, targets):
        merged = nnx.merge(graph, params)
        return merged.loss(merged(x), targets, criterion).loss

    def sharded(params, x, targets):
        return jax.value_and_grad(lambda params: jax.lax.pmean(loss(params, x, targets), "d"))(params)

    specs = {"in_specs": (P(), P("d"), P("d")), "out_specs": (P(), P())}
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    value, slopes = jax.jit(jax.shard_map(sharded, mesh=mesh, **specs))(params, x, targets)
    right, wanted = jax.jit(jax.value_and_grad(loss))(params, x, targets)
    np.testing.assert_allclose(value, right, rtol=1e-6)
    for got, should in zip(jax.tree.leaves(slopes), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, should, atol=1e-6)


def test_what_a_trainer_evaluates_is_what_is_loaded(tmp_path: Path):
    """All steps, whatever halts; and the answers."""
    network = Network(MODELS["rnn"], Halting(max_steps=4, epsilon=0.3))
    trainer = train.make_trainer(network, Optimiser())
    state, net = trainer.init(parameters("rnn")), ponder_jax.load(make_run(train, tmp_path, "rnn", epsilon=0.3))
    y_hat, z = trainer.unroll(state, inputs("rnn"))
    out = net(inputs("rnn"), epsilon=None)
    np.testing.assert_allclose(y_hat, out.y_hat, atol=1e-6)
    np.testing.assert_allclose(z, out.halt_logits, atol=1e-6)
    said, want = trainer.predict(state, inputs("rnn"), seed=3), net.predict(inputs("rnn"), seed=3)
    np.testing.assert_array_equal(said.steps, want.steps)
    np.testing.assert_allclose(said.y_hat, want.y_hat, atol=1e-6)


def test_the_shipped_network_answers():
    net, want = (load(SHIPPED) for load in LOADS)
    words = np.ones((2, 3, net.step.settings.tokens), np.int16)
    words[1, 0] = 0
    said, right = (one.predict(words, policy="expected") for one in (net, want))
    np.testing.assert_array_equal(said.steps, right.steps)
    np.testing.assert_allclose(said.y_hat, right.y_hat, atol=1e-3)


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
    told = []
    again = ponder_jax.load(tmp_path, build=lambda problem: told.append(problem) or build(problem))
    assert told == [Own("Mine", answers=None).problem(halting)] and told[0].outputs is None  # it had no task
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
    for other in ({"max_steps": 2}, {"method": "repeat"}):
        (name,) = other
        with pytest.raises(ValueError, match=f"build must return a PonderNet with {name} .*, as the network is descr"):
            ponder_jax.load(tmp_path, build=lambda problem, o=other: build(OWN.problem(replace(halting, **o))))


def test_float64_is_loaded_as_it_is_or_refused(tmp_path: Path):
    net = build(OWN.problem(Halting(max_steps=3)))
    saved = read_saved(net.save(tmp_path))
    params = {name: x.astype(np.float64) for name, x in saved.params.items()}
    write_saved(tmp_path / "own", saved.network, params, saved.rest)
    write_saved(tmp_path / "rnn", Network(MODELS["rnn"], Halting(max_steps=3)), MODELS["rnn"].initial_parameters(0), {})
    cases = {"own": build, "rnn": None}
    for name, made in cases.items():
        with pytest.raises(ValueError, match="holds float64, for which JAX needs JAX_ENABLE_X64=1"):
            ponder_jax.load(tmp_path / name, build=made)
    with jax.enable_x64(True):
        for name, made in cases.items():
            params = nnx.state(ponder_jax.load(tmp_path / name, build=made), nnx.Param)
            assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype("float64")}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_saved(dtype: str, tmp_path: Path):
    """As float32, so that every backend reads it; what was built in half precision is so again."""

    def halved(problem):
        net = build(problem)
        graph, params, rest = nnx.split(net, nnx.Param, ...)
        return nnx.merge(graph, jax.tree.map(lambda x: x.astype(dtype), params), rest)

    def same(net, other, kind):
        pairs = zip(*(jax.tree.leaves(nnx.state(each, nnx.Param)) for each in (net, other)), strict=True)
        assert all((x == y).all() and y.dtype == kind for x, y in pairs)

    net = halved(OWN.problem(Halting(max_steps=3)))
    net.save(tmp_path / "own")
    same(net, ponder_jax.load(tmp_path / "own", build=halved), dtype)
    same(net, ponder_jax.load(tmp_path / "own", build=build), "float32")
    graph, params = nnx.split(make_net("ponder_jax", MODELS["rnn"], parameters("rnn"), max_steps=2))
    net = nnx.merge(graph, jax.tree.map(lambda x: x.astype(dtype), params))
    net.save(tmp_path / "rnn")
    same(net, ponder_jax.load(tmp_path / "rnn"), "float32")
    assert ponder_ref.load(tmp_path / "rnn")(inputs("rnn")).y_hat.shape == (2, 9)


@pytest.mark.parametrize("settings", [SimpleNamespace(kind="rnn"), MODELS["rnn"]])
def test_a_step_with_settings_of_its_own_is_not_of_the_paper(settings, tmp_path: Path):
    class Named(Mine):
        def __init__(self):
            super().__init__(nnx.Rngs(0))
            self.settings = settings

        def initial_state(self, x):
            return jnp.zeros((len(x), 4))

    net = ponder_jax.PonderNet(Named(), max_steps=2)
    assert net.settings is None
    net.save(tmp_path)
    ponder_jax.load(tmp_path, build=lambda problem: ponder_jax.PonderNet(Named(), **problem.halting))
    train.Trainer(net, Optimiser(optimiser="muon"), output="binary").init()


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
    with pytest.raises(ValueError, match="must have the names of the model"):
        ponder_jax.load(tmp_path)
    write_saved(tmp_path, Network(rnn, Halting(method="ut-act")), rnn.initial_parameters(0), {})
    with pytest.raises(ValueError, match="method must be one of"):
        ponder_jax.load(tmp_path)
    prior = ponder_jax.uniform_log_prior(2)
    own_prior = ponder_jax.PonderNet(net.step, max_steps=2, log_prior=prior)
    of_ones_own = ponder_jax.PonderNet(Mine(nnx.Rngs(0)), initial_state=lambda x: x, max_steps=2, log_prior=prior)
    for each in (own_prior, of_ones_own):
        with pytest.raises(ValueError, match="log_prior has none"):
            each.save(tmp_path / "prior")
    assert not (tmp_path / "prior").exists()


def test_every_way_has_its_prior():
    """The named prior is that of the standard's functions."""
    rnn = MODELS["rnn"]
    nets = {
        name: make_net("ponder_jax", rnn, rnn.initial_parameters(0), max_steps=4, prior=name)
        for name in ("geometric", "uniform", "poisson")
    }
    x, targets = jnp.asarray(inputs("rnn")), jnp.zeros(9)
    made = (
        ponder_jax.geometric_log_prior(0.2, 4),
        ponder_jax.uniform_log_prior(4),
        ponder_jax.poisson_log_prior(4.0, 4),
    )
    for net, prior in zip(nets.values(), made, strict=True):
        out = net(x)
        want = ponder_jax.training_loss(out, targets, ponder_jax.binary_cross_entropy, log_prior=prior, beta=0.01)
        assert net.loss(out, targets, ponder_jax.binary_cross_entropy).loss == pytest.approx(float(want.loss), rel=1e-6)
    with pytest.raises(ValueError, match="prior must be one of"):
        ponder_jax.PonderNet(nets["uniform"].step, max_steps=4, prior="flat")
    with pytest.raises(ValueError, match="lambda_p"):
        ponder_jax.PonderNet(nets["uniform"].step, max_steps=4, prior="poisson", lambda_p=1.0)
