"""Exit policies and priors in torch are entries of tables: a new one is used by its name everywhere."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from nets import make_net  # noqa: E402

import ponder_torch  # noqa: E402
from ponder_ref import exits as names  # noqa: E402
from ponder_ref import priors  # noqa: E402
from ponder_ref.models.rnn import Rnn  # noqa: E402
from ponder_torch import exits  # noqa: E402

MODEL = Rnn(inputs=3, hidden=4)


class Second(exits.Fixed):
    """An example leaves after its second step, or by chance after its first if its id is even."""

    @staticmethod
    def prepare(rule, ids):
        return ids % 2 == 0

    def start(self, kept, ids, prepared):
        even = self.prepare(self.rule, ids) if prepared is None else prepared
        self.even = np.concatenate([getattr(self, "even", np.zeros(0, bool))[kept], even])

    def decide(self, n, ids, z):
        assert np.array_equal(self.even, ids % 2 == 0)
        return (n == 2) | self.even


def test_every_policy_has_a_class():
    assert tuple(exits.POLICIES) == names.POLICIES


def test_a_new_policy_is_one_entry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(names, "POLICIES", (*names.POLICIES, "second"))
    monkeypatch.setitem(exits.POLICIES, "second", Second)
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(0), max_steps=4)
    x = torch.randn(7, 3)
    for slots in (None, 2):
        out = net.predict(x, policy="second", slots=slots)
        assert out.steps.tolist() == [1, 2, 1, 2, 1, 2, 1]
    answers = ponder_torch.stream(net, x, policy="second", slots=3, ordered=True)
    assert [answer.steps for answer in answers] == out.steps.tolist()


@pytest.mark.parametrize("prior", priors.PRIORS)
def test_every_prior_is_one_of_the_reference(prior: str):
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(0), max_steps=4, prior=prior, lambda_p=0.3)
    want = priors.named_log_prior(prior, 0.3, 4)
    np.testing.assert_array_equal(net.log_prior_over(4, torch.zeros(1)).numpy(), want)
    out = net(torch.randn(5, 3))
    got = net.loss(out, torch.ones(5), ponder_torch.binary_cross_entropy).loss_reg
    kl = ponder_torch.kl_divergence(out.log_p, torch.from_numpy(want)).mean()
    torch.testing.assert_close(got, kl)


def test_a_new_prior_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def rising(lambda_p: float, max_steps: int, *, dtype: str) -> np.ndarray:
        weights = np.arange(1, max_steps + 1)
        return np.log(weights / weights.sum()).astype(dtype)

    monkeypatch.setitem(priors.PRIORS, "rising", rising)
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(0), max_steps=4, prior="rising")
    net.save(tmp_path)
    again = ponder_torch.load(tmp_path)
    assert again.halting.prior == "rising"
    np.testing.assert_allclose(again.log_prior_over(4, torch.zeros(1)).exp(), np.arange(1, 5) / 10, rtol=1e-6)
    with pytest.raises(ValueError, match="prior must be one of geometric, uniform, poisson, rising, got 'none'"):
        make_net("ponder_torch", MODEL, MODEL.initial_parameters(0), max_steps=4, prior="none")
