"""Transforms of Flax and JAX inside and around a step: values, gradients and variables are those of a plain step."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from flax import nnx  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from ponder_jax import PonderNet, cross_entropy, stream  # noqa: E402

INPUTS, HIDDEN, CLASSES, LAYERS, STEPS = 3, 4, 3, 2, 5
KINDS = ("remat", "jit", "scan", "vmap", "cond")
WAYS = {
    "ponder": {},
    "normalize": {"remainder": "normalize"},
    "epsilon": {"epsilon": 0.4, "min_steps": 1},
    "epsilon, three steps at least": {"epsilon": 0.4, "min_steps": 3},
    "act": {"method": "act", "act_epsilon": 0.2, "tau": 0.1},
    "repeat": {"method": "repeat"},
    "once": {"method": "once"},
}


class Body(nnx.Module):
    """Stacked layers, computed plainly or by a transform of Flax; with batch statistics and dropout if asked for."""

    def __init__(self, kind: str, dropout: float = 0.0, norm: bool = False):
        keys = jax.random.split(jax.random.key(3), LAYERS)
        self.layers = nnx.vmap(lambda key: nnx.Linear(HIDDEN, HIDDEN, rngs=nnx.Rngs(key)))(keys)
        self.norm = nnx.BatchNorm(HIDDEN, rngs=nnx.Rngs(0)) if norm else None
        self.dropout = nnx.Dropout(dropout, rngs=nnx.Rngs(7))
        self.kind = kind

    def __call__(self, h):
        if self.kind == "remat":
            return nnx.remat(lambda own, h: own.plain(h))(self, h)
        if self.kind == "jit":
            return nnx.jit(lambda own, h: own.plain(h))(self, h)
        if self.kind in ("scan", "remat in scan", "jit in scan"):
            layer = lambda h, layer: jnp.tanh(layer(h))  # noqa: E731
            inner = {"scan": layer, "remat in scan": nnx.remat(layer), "jit in scan": nnx.jit(layer)}[self.kind]
            return self.rest(nnx.scan(inner, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(h, self.layers))
        if self.kind == "remat in cond":
            branches = nnx.remat(lambda own, h: own.plain(h)), lambda own, h: h
            return nnx.cond(h.sum() < jnp.inf, *branches, self, h)
        if self.kind == "vmap":
            return nnx.vmap(lambda own, h: own.plain(h), in_axes=(None, 0))(self, h)
        if self.kind == "cond":
            return nnx.cond(h.sum() < jnp.inf, lambda own, h: own.plain(h), lambda own, h: h, self, h)
        return self.plain(h)

    def plain(self, h):
        for k in range(LAYERS):
            h = jnp.tanh(h @ self.layers.kernel[k] + self.layers.bias[k])
        return self.rest(h)

    def rest(self, h):
        return self.dropout(h if self.norm is None else self.norm(h))


class Step(nnx.Module):
    """A recurrent step; its halting logit is shifted by the input's first entry, so that examples differ in N."""

    def __init__(self, kind: str, alone: bool = False, **options):
        rngs = nnx.Rngs(1)
        self.mix, self.body, self.alone = nnx.Linear(INPUTS, HIDDEN, rngs=rngs), Body(kind, **options), alone
        self.head, self.halt = nnx.Linear(HIDDEN, CLASSES, rngs=rngs), nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, *args):
        x, h = (args[0][0], args[0][1]) if self.alone else args
        h = self.body(h + self.mix(x))
        return self.head(h), (x, h) if self.alone else h, self.halt(h).squeeze(-1) + x[:, 0]


class Project(nnx.Module):
    def __init__(self, kind: str):
        self.first, self.body = nnx.Linear(INPUTS, HIDDEN, rngs=nnx.Rngs(5)), Body(kind)

    def __call__(self, x):
        return self.body(self.first(x))[:, :INPUTS]


class Encoder(Project):
    def __call__(self, x):
        return x, self.body(self.first(x))


def zeros(x):
    return jnp.zeros((x.shape[0], HIDDEN), x.dtype)


def build(kind: str, way: str = "ponder", *, encoder: bool = False, project: bool = False, **options) -> PonderNet:
    start = {"encoder": Encoder(kind)} if encoder else {"initial_state": zeros}
    if project:
        start["project"] = Project(kind)
    step = Step(kind, alone=encoder, **options)
    return PonderNet(step, **{"max_steps": STEPS, "beta": 0.3, **start, **WAYS[way]})


def inputs() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, INPUTS)).astype(np.float32)
    x[:, 0] = [-2.0, 0.0, 1.0, 3.0]
    return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, 4))


def loss(net: PonderNet, x, y):
    out = net(x)
    return net.loss(out, y, cross_entropy).loss, (out.y_hat, out.halt_logits, out.lengths)


gradients = nnx.value_and_grad(loss, has_aux=True)
compiled_gradients = nnx.jit(gradients)


@functools.cache
def plain(way: str, encoder: bool = False, project: bool = False):
    return gradients(build("plain", way, encoder=encoder, project=project), *inputs())


def same(got, want) -> None:
    assert jax.tree.structure(jax.tree.leaves(got)) == jax.tree.structure(jax.tree.leaves(want))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_transform_inside_the_step_changes_no_value_and_no_gradient(kind: str, way: str):
    net, (x, y) = build(kind, way), inputs()
    same(loss(net, x, y), plain(way)[0])
    same(compiled_gradients(net, x, y), plain(way))
    if kind in ("remat", "scan"):
        same(gradients(net, x, y), plain(way))
    if way == "epsilon":
        assert len(set(np.asarray(net(x).lengths).tolist())) > 1


@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
@pytest.mark.parametrize("kind", ["remat in scan", "jit in scan", "remat in cond"])
def test_transforms_may_be_composed(kind: str, way: str):
    same(compiled_gradients(build(kind, way), *inputs()), plain(way))


@pytest.mark.parametrize("kind", ["plain", "remat"])
def test_an_input_may_hold_what_is_no_array(kind: str):
    class Told(nnx.Module):
        def __init__(self):
            self.own = Step(kind)

        def __call__(self, x, h):
            numbers, mode = x
            assert mode == "train"
            return self.own(numbers, h)

    x, _ = inputs()
    net = PonderNet(Told(), max_steps=STEPS, initial_state=lambda x: zeros(x[0]))
    same(net((x, "train")).y_hat, build("plain")(x).y_hat)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
def test_encoders_and_projections_may_be_transformed_too(kind: str, way: str):
    for options in ({"encoder": True}, {"project": True}):
        same(compiled_gradients(build(kind, way, **options), *inputs()), plain(way, **options))


@pytest.mark.parametrize("way", ["ponder", "epsilon", "act", "once"])
@pytest.mark.parametrize("kind", ["remat", "jit"])
def test_statistics_and_counts_come_back(kind: str, way: str):
    """What a step changes in itself is written back, as without a transform: statistics of a batch, random counts."""
    x, y = inputs()
    nets = [build(name, way, norm=True, dropout=0.2) for name in (kind, "plain")]
    before = nnx.state(nets[0], nnx.Not(nnx.Param))
    before = jax.tree.map(jnp.copy, before)
    for net in nets:
        compiled_gradients(net, x, y)
        net(x)
    states = [nnx.state(net, nnx.Not(nnx.Param)) for net in nets]
    same(*states)
    moved = [not np.array_equal(a, b) for a, b in zip(raw(before), raw(states[0]), strict=True)]
    assert sum(moved) == 3  # mean, variance and the count of the random numbers


def raw(state) -> list[np.ndarray]:
    leaves = jax.tree.leaves(state)
    return [
        np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves
    ]


@pytest.mark.parametrize("kind", ["plain", *KINDS])
def test_predict_and_stream_answer_as_a_plain_step(kind: str):
    x, _ = inputs()
    nets = [build(name) for name in (kind, "plain")]
    for net in nets:
        net.eval()
    for policy in ("quantile", "expected"):
        got, want = (net.predict(x, policy=policy, slots=2) for net in nets)
        same((got.y_hat, got.steps), (want.y_hat, want.steps))
    got, want = ([a.y_hat for a in stream(net, list(x), policy="quantile", slots=2, ordered=True)] for net in nets)
    same(got, want)
    same(nnx.jit(lambda net, x: net.predict(x, policy="quantile"))(nets[0], x).y_hat, np.stack(want))


@pytest.mark.parametrize("kind", ["plain", "scan"])  # with the others Flax itself refuses this, without a PonderNet too
@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
def test_variables_that_do_not_change_may_be_closed_over(kind: str, way: str):
    """`rest` belongs to the trace around the scan: what a step does not touch is not written."""
    x, y = inputs()
    graph, params, rest = nnx.split(build(kind, way), nnx.Param, ...)
    assert jax.tree.leaves(rest)

    def body(params, _):
        value, grads = jax.value_and_grad(lambda params: loss(nnx.merge(graph, params, rest), x, y)[0])(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    same(jax.lax.scan(body, params, None, length=2)[1][0], plain(way)[0][0])


def test_variables_that_do_change_may_not_be_closed_over():
    """As for a plain module of Flax: the update would be lost."""
    graph, params, rest = nnx.split(build("plain", dropout=0.2), nnx.Param, ...)
    with pytest.raises(Exception, match="Cannot mutate RngCount"):
        jax.lax.scan(lambda p, x: (p, nnx.merge(graph, p, rest)(x).log_p), params, inputs()[0][None])


@pytest.mark.parametrize("inner", [lambda fn: fn, nnx.jit, nnx.remat])
def test_what_a_step_writes_to_a_parameter_is_dropped(inner):
    """Parameters are the optimiser's: every step begins with them as they are, and so they stay."""

    class Drifting(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.ones(()))

        def __call__(self, x, h):
            def body(own, h):
                own.w[...] = own.w[...] * 0.5
                return h * own.w[...]

            h = inner(body)(self, h)
            return h, h, x

    net = PonderNet(Drifting(), max_steps=3, initial_state=jnp.ones_like)
    same(net(jnp.zeros(2)).y_hat, jnp.array([0.5, 0.25, 0.125])[:, None] * jnp.ones(2))
    same(net.step.w[...], jnp.ones(()))


@pytest.mark.parametrize("way", ["ponder", "epsilon", "act"])
def test_weight_norm_works_in_a_step(way: str):
    """It writes to the kernel in every call, always the same: by hand the kernel is that of the normalised layer."""

    class Normed(nnx.Module):
        def __init__(self, by_hand: bool):
            layer = nnx.Linear(HIDDEN, HIDDEN, rngs=nnx.Rngs(2))
            if by_hand:
                norm = jnp.sqrt((layer.kernel[...] ** 2).sum(0) + 1e-12)  # the layer's own ε
                layer.kernel[...] = layer.kernel[...] / norm
            self.layer = layer if by_hand else nnx.WeightNorm(layer, rngs=nnx.Rngs(3))
            self.halt = nnx.Linear(HIDDEN, 1, rngs=nnx.Rngs(4))

        def __call__(self, x, h):
            h = jnp.tanh(self.layer(h) + x[:, :1])
            return h, h, self.halt(h).squeeze(-1)

    settings = {"max_steps": STEPS, "initial_state": lambda x: jnp.ones((len(x), HIDDEN)), **WAYS[way]}
    x, _ = inputs()
    got, want = (PonderNet(Normed(by_hand), **settings)(x) for by_hand in (False, True))
    same((got.y_hat, got.halt_logits, got.lengths), (want.y_hat, want.halt_logits, want.lengths))


class Varying(nnx.Module):
    """A step with a state of its own (a count of calls), for `shard_map`."""

    def __init__(self):
        self.inner, self.calls = Step("plain"), nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x, h):
        self.calls[...] += 1
        return self.inner(x, h)


def sharded(fn, mesh: Mesh, out_specs):
    return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=(P(), P("d"), P("d")), out_specs=out_specs))


@pytest.mark.parametrize("way", WAYS)
def test_shard_map(way: str):
    """Zeros as h₀ vary over no axis of the mesh, what the step returns does: the loop is given one type."""
    check_shard_map(way, 1)


def check_shard_map(way: str, devices: int) -> None:
    mesh = Mesh(np.array(jax.devices()[:devices]), ("d",))
    x, y = inputs()
    graph, params, rest = nnx.split(
        PonderNet(Varying(), **{"max_steps": STEPS, "beta": 0.3, "initial_state": zeros, **WAYS[way]}), nnx.Param, ...
    )

    def update(params, x, y):
        def mean(params):
            net = nnx.merge(graph, params, rest, copy=True)
            value, (y_hat, _, lengths) = loss(net, x, y)
            return jax.lax.pmean(value, "d"), (y_hat, lengths, net.step.calls[...])

        (value, aux), grads = jax.value_and_grad(mean, has_aux=True)(params)
        return value, grads, *aux

    value, grads, y_hat, lengths, calls = sharded(update, mesh, (P(), P(), P(None, "d"), P("d"), P()))(params, x, y)
    (want, (want_y, _, want_lengths)), want_grads = plain(way)
    same((value, lengths), (want, want_lengths))
    same(grads["step"]["inner"], want_grads["step"])
    assert int(calls) == int(want_lengths.max())  # shared by all devices, and left as in the whole batch
    used = np.arange(1, len(want_y) + 1)[:, None] <= np.asarray(want_lengths)
    same(np.where(used[..., None], y_hat, 0), np.where(used[..., None], want_y, 0))


@pytest.mark.parametrize("policy", ["sample", "quantile", "fixed", "expected"])
def test_predict_in_shard_map(policy: str):
    check_predict_in_shard_map(policy, 1)


def check_predict_in_shard_map(policy: str, devices: int) -> None:
    mesh = Mesh(np.array(jax.devices()[:devices]), ("d",))
    x, _ = inputs()
    ids = jnp.arange(len(x))
    net = build("plain")
    net.eval()
    graph, variables = nnx.split(net)

    def answer(variables, x, ids):
        out = nnx.merge(graph, variables, copy=True).predict(x, policy=policy, example_ids=ids, trace=True, slots=1)
        return out.y_hat, out.steps, out.expected

    got = sharded(answer, mesh, (P("d"), P("d"), P("d")))(variables, x, ids)
    want = net.predict(x, policy=policy, example_ids=ids, trace=True)
    same(got, (want.y_hat, want.steps, want.expected))


def test_two_devices():
    """Two examples per device: those that have halted wait for the others, but in `predict` no device waits."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "import test_backend_jax_transforms as own\n"
    code += "for way in ('ponder', 'epsilon', 'act'):\n    own.check_shard_map(way, 2)\n"
    code += "own.check_predict_in_shard_map('quantile', 2)\nprint('as on one device')"
    # Devices that wait for each other in vain are a failure, however busy the machine is.
    flags = "--xla_force_host_platform_device_count=2 --xla_cpu_collective_call_terminate_timeout_seconds=600"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "as on one device" in done.stdout
