"""The fast unrolls of JAX: the state's gradient, second derivatives, and which steps they are for."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from net_cases import MODELS, STEPS, WAYS, inputs, parameters  # noqa: E402
from nets import make_net, run_with  # noqa: E402

import ponder_jax  # noqa: E402


@pytest.mark.parametrize("way", ["ponder", "epsilon"])
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_the_state_has_its_gradient(name: str, way: str, monkeypatch):
    """Of the Transformer the question's; alone, and together with the loss's share."""
    net = make_net("ponder_jax", MODELS[name], parameters(name), max_steps=STEPS[name], **WAYS[way])
    x, held = jax.tree.map(jnp.asarray, inputs(name)), jax.tree.map(jnp.asarray, parameters(name))

    def of(params, share):
        out = run_with(ponder_jax, net, params, x)
        state = out.state["h"][:, -1] if isinstance(out.state, dict) else out.state
        own = jnp.arange(1, len(out.halt_logits) + 1)[:, None] <= out.lengths
        return (state * jnp.arange(state.size).reshape(state.shape)).sum() + share * (out.halt_logits * own).sum()

    fast = [jax.value_and_grad(of)(held, share) for share in (0.0, 1.0)]
    monkeypatch.setattr(type(net.step), "unroll", lambda *args: None)
    for (value, slopes), share in zip(fast, (0.0, 1.0), strict=True):
        right, wanted = jax.value_and_grad(of)(held, share)
        np.testing.assert_allclose(value, right, rtol=1e-4)
        assert np.abs(wanted["embed.words" if name == "transformer" else "rnn.w_x"]).max() > 1
        for key, slope in slopes.items():
            np.testing.assert_allclose(slope, wanted[key], rtol=1e-3, atol=2e-3, err_msg=key)


@pytest.mark.parametrize("way", ["ponder", "epsilon"])
def test_the_fast_rnn_has_second_derivatives(way: str, monkeypatch):
    """In reverse mode; forward mode is refused by JAX in a sentence, and is there step by step."""
    net = make_net("ponder_jax", MODELS["rnn"], parameters("rnn"), max_steps=4, beta=0.3, **WAYS[way])
    x, held = jnp.asarray(inputs("rnn")), jax.tree.map(jnp.asarray, parameters("rnn"))

    def slope(params):
        """A sum over the gradient of a loss that uses the state."""

        def loss(params):
            out = run_with(ponder_jax, net, params, x)
            rec = net.loss(out, jnp.ones(len(x)), ponder_jax.binary_cross_entropy).loss
            return rec + (out.state**2).mean()

        return sum(jnp.sin(part).sum() for part in jax.tree.leaves(jax.grad(loss)(params)))

    value, slopes = jax.value_and_grad(slope)(held)
    third = jax.grad(lambda params: sum((part**2).sum() for part in jax.tree.leaves(jax.grad(slope)(params))))(held)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(slope, (held,), (held,))
    monkeypatch.setattr(type(net.step), "unroll", lambda *args: None)
    right, wanted = jax.value_and_grad(slope)(held)
    np.testing.assert_allclose(value, right, rtol=1e-5)
    for key in held:
        np.testing.assert_allclose(slopes[key], wanted[key], rtol=1e-3, atol=1e-5, err_msg=key)
    assert all(jnp.isfinite(part).all() for part in jax.tree.leaves(third))
    assert jnp.isfinite(jax.jvp(slope, (held,), (held,))[1])


@pytest.mark.parametrize("way", ["ponder", "epsilon"])
def test_the_state_of_pairs_has_its_gradient(way: str):
    """It is what the decoder made of the query after n = Nᵢ applications, by the standard's functions."""
    model, steps = MODELS["pairs"], STEPS["pairs"]
    net = make_net("ponder_jax", model, parameters("pairs"), max_steps=steps, **WAYS[way])
    x, held = jax.tree.map(jnp.asarray, inputs("pairs")), jax.tree.map(jnp.asarray, parameters("pairs"))
    lengths = net(x).lengths

    def by_functions(params):
        h, parts = ponder_jax.pairs_encode(params, x["images"], x["rows"]), []
        tokens = ponder_jax.pairs_query(params, x["images"], x["query"])
        for n in range(1, steps + 1):
            h = ponder_jax.pairs_transition(params, h, n, heads=model.heads)
            parts.append(ponder_jax.pairs_decode(params, h, tokens, n, heads=model.heads))
        return jnp.stack(parts)[lengths - 1, jnp.arange(len(lengths))]

    def weighted(run):
        return lambda params: (run(params) * jnp.sin(jnp.arange(model.embedding))).sum()

    slopes = jax.grad(weighted(lambda params: run_with(ponder_jax, net, params, x).state))(held)
    wanted = jax.grad(weighted(by_functions))(held)
    assert np.abs(wanted["encoder.q"]).max() > 1e-3
    for key, slope in slopes.items():
        np.testing.assert_allclose(slope, wanted[key], rtol=1e-3, atol=2e-4, err_msg=key)


def test_the_fast_unroll_is_for_the_steps_of_its_own_class():
    """A subclass that replaces a step or the start goes step by step; one that brings an unroll again is asked."""
    from ponder_jax.models.rnn import Step

    class Replaced(Step):
        def __call__(self, x, h):
            y_hat, h, z = super().__call__(x, h)
            return jnp.full_like(y_hat, 7.0), h, z

    class Elsewhere(Step):
        def initial_state(self, x):
            return jnp.ones_like(x)

    class Unrolled(Replaced):
        def unroll(self, x, max_steps, rule):
            y_hat, *rest = super().unroll(x, max_steps, rule)
            return jnp.full_like(y_hat, 8.0), *rest

    x = jnp.asarray(inputs("rnn"))
    nets = [ponder_jax.PonderNet(kind(MODELS["rnn"]), max_steps=3) for kind in (Step, Replaced, Elsewhere, Unrolled)]
    own, replaced, elsewhere, unrolled = (net(x).y_hat for net in nets)
    assert (replaced == 7).all() and (unrolled == 8).all() and not jnp.allclose(own, elsewhere)
    np.testing.assert_allclose(elsewhere[-1], nets[2].predict(x, policy="fixed").y_hat, atol=1e-5)
