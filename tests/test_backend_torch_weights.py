"""Rows of weight 0 in torch: no influence, whatever their predictions and targets are (M6)."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from weight_checks import check_trainer  # noqa: E402

import ponder_torch  # noqa: E402
from ponder_torch import PonderNet, cross_entropy  # noqa: E402

WEIGHTS = torch.tensor([1.0, 0.0, 2.0, 0.0])
RNG = np.random.default_rng(0)
CLASSES, SCORES, HALTS = torch.tensor([0, 1, 1, 0]), RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 4))
NUMBERS = torch.tensor(RNG.normal(size=(4, 2)))


def losses(criterion, targets, method: str, spoilt: float | None = None, weights=WEIGHTS):
    """Loss, losses per example and the gradients by prediction and by the criterion's parameter, as one vector."""
    y_hat = torch.tensor(SCORES)
    if spoilt is not None:
        y_hat[:, weights == 0] = spoilt
    y_hat.requires_grad_()
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    z = torch.tensor(HALTS)
    steps = iter(range(3))

    def step(h):
        n = next(steps)
        return y_hat[n], h, z[n]

    out = ponder_torch.ponder(step, None, torch.zeros(4), max_steps=3, method=method, act_epsilon=1e-6)
    prior = ponder_torch.uniform_log_prior(3, dtype="float64") if method == "ponder" else None
    options = {"log_prior": prior, "beta": 0.1, "tau": 0.1, "weights": weights}
    parts = ponder_torch.training_loss(out, targets, lambda y, t: scale * criterion(y, t), **options)
    parts.loss.backward()
    dead = weights == 0
    assert not y_hat.grad[:, dead].any() and not parts.example_rec[dead].any() and not parts.example_reg[dead].any()
    return torch.cat([parts.loss[None], parts.example_rec, y_hat.grad.flatten(), scale.grad[None]]).detach()


def relative(y_hat, targets):
    """Of a tree of targets; no number where a target is 0."""
    sizes, (numbers, shared) = targets["sizes"], targets["numbers"]
    return ((y_hat - numbers) / numbers).abs().sqrt() * sizes[:, None] + shared.sum()


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS > 0], ids=["numbers", "mask"])
@pytest.mark.parametrize("method", ["ponder", "repeat", "act"])
def test_predictions_and_targets_of_weight_zero_have_no_influence(method: str, weights):
    dead = WEIGHTS == 0
    want = losses(cross_entropy, CLASSES, method, weights=weights)
    assert want.isfinite().all()
    for wrong, spoilt in ((-100, math.nan), (2, math.inf), (2**40, None)):
        got = losses(cross_entropy, torch.where(dead, wrong, CLASSES), method, spoilt, weights)
        assert torch.equal(got, want)
    shared = torch.ones(3)

    def tree(number: float):
        return {
            "sizes": torch.where(dead, number, torch.ones(4)),
            "numbers": [torch.where(dead[:, None], number, NUMBERS), shared],
        }

    want = losses(relative, tree(1.0), method, weights=weights)
    assert want.isfinite().all()
    for number, spoilt in ((math.nan, math.nan), (0.0, -math.inf), (-math.inf, 0.0)):
        assert torch.equal(losses(relative, tree(number), method, spoilt, weights), want)


def test_per_token_weights():
    """Batch and tokens are both axes of the batch, where the logits have them; -100 is the target of padding."""
    net = PonderNet(lambda x, h: (h, h + x, x[..., 0]), max_steps=3, initial_state=torch.zeros_like)
    x, mask = torch.tensor(RNG.normal(size=(2, 3, 4))), torch.tensor([[True, True, False], [True, False, False]])
    targets = torch.tensor([[0, 3, -100], [2, -100, -100]])
    loss = net.loss(net(x), targets, cross_entropy, weights=mask).loss
    picked = net.loss(net(x[mask]), targets[mask], cross_entropy).loss
    torch.testing.assert_close(loss, picked)


def test_a_batch_without_any_weight_is_no_crash():
    net = PonderNet(lambda x, h: (h, h + x, x[:, 0]), max_steps=2, initial_state=torch.zeros_like)
    parts = net.loss(net(torch.ones(3, 2)), torch.full((3,), -100), cross_entropy, weights=torch.zeros(3))
    assert parts.loss.isnan() and not parts.example_rec.any()


def test_compiled_and_mapped():
    """Nothing is looked at on the host: one graph without breaks, and gradients per example of `torch.func`."""
    targets, weights = torch.where(WEIGHTS == 0, -100, CLASSES), WEIGHTS.double()

    def total(y_hat, z, targets, weights):
        out = ponder_torch.ponder(lambda h: (y_hat, h, z), None, torch.zeros(z.shape), max_steps=2)
        return ponder_torch.training_loss(out, targets, cross_entropy, weights=weights).loss

    y_hat, z = torch.tensor(SCORES[0]), torch.tensor(HALTS[0])
    compiled = torch.compile(total, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(y_hat, z, targets, weights), total(y_hat, z, targets, weights))
    each = torch.func.vmap(torch.func.grad(total))(y_hat, z, CLASSES, torch.ones(4))
    assert each.shape == (4, 2) and each.isfinite().all()


def test_a_trainer_does_not_look_at_targets_of_weight_zero():
    check_trainer("ponder_torch")


def test_weights_that_are_no_tensor_are_refused_in_a_sentence():
    net = PonderNet(lambda x, h: (x, h, x[:, 0]), max_steps=2, initial_state=lambda x: x)
    with pytest.raises(ValueError, match=r"arrays must be torch tensors, got a ndarray: torch\.as_tensor makes one"):
        net.loss(
            net(torch.ones(4, 2)), torch.zeros(4, dtype=torch.int64), cross_entropy, weights=np.ones(4, np.float32)
        )
