"""Rows of weight 0 in JAX: no influence, whatever their predictions and targets are (M6)."""

import math

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from weight_checks import check_trainer  # noqa: E402

import ponder_jax  # noqa: E402
from ponder_jax import PonderNet, cross_entropy  # noqa: E402

WEIGHTS = np.array([1.0, 0.0, 2.0, 0.0], np.float32)
RNG = np.random.default_rng(0)
CLASSES, SCORES, HALTS = np.array([0, 1, 1, 0]), RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 4))
SCORES, HALTS, NUMBERS = (x.astype(np.float32) for x in (SCORES, HALTS, RNG.normal(size=(4, 2))))


def losses(criterion, targets, method: str, spoilt: float | None = None, weights=WEIGHTS):
    """Loss, losses per example and the gradients by prediction and by the criterion's parameter, as one vector."""
    dead = weights == 0
    y_hat = jnp.asarray(SCORES if spoilt is None else np.where(dead[:, None], np.float32(spoilt), SCORES))
    prior = ponder_jax.uniform_log_prior(3) if method == "ponder" else None
    options = {"log_prior": prior, "beta": 0.1, "tau": 0.1, "weights": jnp.asarray(weights)}

    def total(y_hat, scale):
        def step(n):
            return y_hat[n], n + 1, jnp.asarray(HALTS)[n]

        out = ponder_jax.ponder(step, None, jnp.int32(0), max_steps=3, method=method, act_epsilon=1e-6)
        parts = ponder_jax.training_loss(out, targets, lambda y, t: scale * criterion(y, t), **options)
        return parts.loss, parts

    (loss, parts), (grad, slope) = jax.value_and_grad(total, (0, 1), has_aux=True)(y_hat, jnp.float32(1.5))
    assert not grad[:, dead].any() and not parts.example_rec[dead].any() and not parts.example_reg[dead].any()
    return np.concatenate([np.ravel(part) for part in (loss, parts.example_rec, grad, slope)])


def relative(y_hat, targets):
    """Of a tree of targets; no number where a target is 0."""
    sizes, (numbers, shared) = targets["sizes"], targets["numbers"]
    return jnp.sqrt(abs((y_hat - numbers) / numbers)) * sizes[:, None] + shared.sum()


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS > 0], ids=["numbers", "mask"])
@pytest.mark.parametrize("method", ["ponder", "repeat", "act"])
def test_predictions_and_targets_of_weight_zero_have_no_influence(method: str, weights):
    dead = WEIGHTS == 0
    want = losses(cross_entropy, jnp.asarray(CLASSES), method, weights=weights)
    assert np.isfinite(want).all()
    for wrong, spoilt in ((-100, math.nan), (2, math.inf), (2**30, None)):
        got = losses(cross_entropy, jnp.asarray(np.where(dead, wrong, CLASSES)), method, spoilt, weights)
        np.testing.assert_array_equal(got, want)
    shared = jnp.ones(3)

    def tree(number: float):
        sizes, numbers = np.where(dead, number, 1.0), np.where(dead[:, None], number, NUMBERS)
        return {"sizes": jnp.asarray(sizes, jnp.float32), "numbers": [jnp.asarray(numbers, jnp.float32), shared]}

    want = losses(relative, tree(1.0), method, weights=weights)
    assert np.isfinite(want).all()
    for number, spoilt in ((math.nan, math.nan), (0.0, -math.inf), (-math.inf, 0.0)):
        np.testing.assert_array_equal(losses(relative, tree(number), method, spoilt, weights), want)


def test_per_token_weights():
    """Batch and tokens are both axes of the batch, where the logits have them; -100 is the target of padding."""
    net = PonderNet(lambda x, h: (h, h + x, x[..., 0]), max_steps=3, initial_state=jnp.zeros_like)
    x, mask = jnp.asarray(RNG.normal(size=(2, 3, 4))), np.array([[True, True, False], [True, False, False]])
    targets = jnp.array([[0, 3, -100], [2, -100, -100]])
    loss = net.loss(net(x), targets, cross_entropy, weights=jnp.asarray(mask)).loss
    np.testing.assert_allclose(loss, net.loss(net(x[mask]), targets[mask], cross_entropy).loss, rtol=1e-5)


def test_a_batch_without_any_weight_is_no_crash():
    net = PonderNet(lambda x, h: (h, h + x, x[:, 0]), max_steps=2, initial_state=jnp.zeros_like)
    parts = net.loss(net(jnp.ones((3, 2))), jnp.full(3, -100), cross_entropy, weights=jnp.zeros(3))
    assert jnp.isnan(parts.loss) and not parts.example_rec.any()


def test_compiled_and_mapped():
    """Nothing is looked at on the host: one program, and gradients per example of `vmap`."""
    targets = np.where(WEIGHTS == 0, -100, CLASSES)

    def total(y_hat, z, targets, weights):
        out = ponder_jax.ponder(lambda h: (y_hat, h, z), None, jnp.zeros(z.shape), max_steps=2)
        return ponder_jax.training_loss(out, targets, cross_entropy, weights=weights).loss

    given = [jnp.asarray(part) for part in (SCORES[0], HALTS[0], targets, WEIGHTS)]
    np.testing.assert_allclose(jax.jit(total)(*given), total(*given), rtol=1e-5)
    each = jax.vmap(jax.grad(total))(*given[:2], jnp.asarray(CLASSES), jnp.ones(4))
    assert each.shape == (4, 2) and np.isfinite(each).all()


def test_a_trainer_does_not_look_at_targets_of_weight_zero():
    check_trainer("ponder_jax")
