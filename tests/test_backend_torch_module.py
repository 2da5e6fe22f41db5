"""PonderNet as a torch module: what a user of it relies on, beyond what the judge asks of `ponder`."""

import copy
import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import ponder_torch  # noqa: E402
from ponder_torch import PonderNet, binary_cross_entropy, cross_entropy, squared_error  # noqa: E402


class Step(nn.Module):
    """A GRU with two heads that counts its calls; its halting logit is shifted by the input's first entry."""

    def __init__(self, shift: float = 0.0):
        super().__init__()
        self.cell, self.head, self.halt, self.calls = nn.GRUCell(4, 6), nn.Linear(6, 3), nn.Linear(6, 1), 0
        self.shift = shift

    def forward(self, x, h):
        self.calls += 1
        h = self.cell(x, h)
        return self.head(h), h, self.halt(h).squeeze(-1) + self.shift * x[:, 0]


class FromState(nn.Module):
    """A step of the state alone, a dict with another tree inside."""

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, state):
        h = torch.tanh(self.mix(state["h"]))
        y_hat, z = self.head(h).unbind(-1)
        return y_hat, {"h": h, "seen": (state["seen"][0] + 1,)}, z


def zeros(x):
    return x.new_zeros(len(x), 6)


@pytest.fixture
def data():
    torch.manual_seed(0)
    return torch.randn(5, 4), torch.randint(3, (5,))


def test_the_step_is_called_n_times_and_the_projection_once(data):
    class Project(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    step, project = Step(), Project(4, 4)
    out = PonderNet(step, max_steps=7, initial_state=zeros, project=project)(data[0])
    assert (step.calls, project.calls) == (7, 1)
    assert out.y_hat.shape == (7, 5, 3) and out.log_p.shape == (7, 5)


@pytest.mark.parametrize(("method", "calls"), [("once", 1), ("repeat", 7), ("ponder", 7)])
def test_baselines_run_in_the_same_wrapper(method: str, calls: int, data):
    step = Step()
    net = PonderNet(step, max_steps=7, initial_state=zeros, method=method)
    out = net(data[0])
    parts = net.loss(out, data[1], cross_entropy)
    assert step.calls == calls
    if method != "ponder":
        expected = nn.functional.cross_entropy(out.y_hat[-1], data[1])
        torch.testing.assert_close(parts.loss, expected)


def test_act_trains_its_halting_unit(data):
    net = PonderNet(Step(), max_steps=7, initial_state=zeros, method="act", tau=0.1)
    out = net(data[0])
    torch.testing.assert_close(out.act.weights.sum(0), torch.ones(5))
    net.loss(out, data[1], cross_entropy).loss.backward()
    assert net.step.halt.weight.grad.abs().max() > 0


def test_epsilon_stops_the_unroll_and_keeps_the_numbers(data):
    step = Step(shift=8.0)
    net = PonderNet(step, max_steps=12, initial_state=zeros, epsilon=0.05)
    x = data[0].clone()
    x[:, 0] = 1.0  # they halt at once, so the minimum of two steps is what they take
    assert len(net(x).log_p) == 2 and step.calls == 2
    x[2, 0] = -1.0  # one example goes on to the limit
    mixed = net(x)
    assert len(mixed.log_p) == 12 and mixed.lengths.tolist() == [2, 2, 12, 2, 2]
    alone = net(x[:1])
    torch.testing.assert_close(mixed.log_p[:2, 0], alone.log_p[:, 0])
    torch.testing.assert_close(net(x, epsilon=None).y_hat[:2], mixed.y_hat[:2])


def test_a_state_that_explodes_after_its_end_does_no_harm():
    """A linear step that overflows where it is not wanted: the gradient stays finite (M2)."""
    weight = torch.tensor(1e15, requires_grad=True)

    def step(x, h):
        h = h * weight * x
        return h, h, torch.where(x > 0, 30.0, -30.0) + 0 * h

    net = PonderNet(step, max_steps=6, initial_state=torch.ones_like, epsilon=0.05)
    x = torch.tensor([1.0, -1e-15])
    out = net(x)
    assert out.lengths.tolist() == [2, 6]
    safe = net.loss(out, torch.zeros(2), lambda y, t: torch.tanh(y) + t)
    (slope,) = torch.autograd.grad(safe.loss, weight)
    assert torch.isfinite(slope)


def test_encoder_and_state_trees(data):
    torch.manual_seed(1)
    encode = nn.Linear(4, 6)
    net = PonderNet(FromState(), max_steps=4, encoder=lambda x: {"h": encode(x), "seen": (torch.zeros(5),)})
    out = net(data[0])
    assert out.state["seen"][0].tolist() == [4.0] * 5
    net.loss(out, torch.ones(5), binary_cross_entropy).loss.backward()
    assert encode.weight.grad.abs().max() > 0


@pytest.mark.parametrize("epsilon", [None, 0.05])
@pytest.mark.parametrize("readout", [False, True])
def test_a_state_keeps_its_kind_and_its_numbers(epsilon: float | None, readout: bool):
    """An ordered dict stays one, and a Python number in it is shared by the batch."""
    torch.manual_seed(0)

    def move(x, state):
        return OrderedDict(h=torch.tanh(state["h"] + x), count=state["count"] + 1)

    def read(state):
        return state["h"], state["h"] + 2.0

    def step(x, state):
        y_hat, z = read(move(x, state))
        return y_hat, move(x, state), z

    ways = {"max_steps": 4, "epsilon": epsilon, "min_steps": 2}
    start = OrderedDict(h=torch.zeros(3), count=0)
    x = torch.tensor([1.0, 2.0, -1.0])
    out = ponder_torch.ponder(move if readout else step, x, start, readout=read if readout else None, **ways)
    assert type(out.state) is OrderedDict and out.state["count"] == len(out.halt_logits)


@pytest.mark.parametrize("options", [{"epsilon": 0.05}, {"readout": lambda state: (state.h, state.h)}])
def test_tensors_hidden_in_an_object_are_refused(options: dict[str, Any]):
    """In a dataclass no tensor would be kept for an example that has halted."""

    @dataclasses.dataclass
    class Hidden:
        h: torch.Tensor

    def step(x, state):
        new = Hidden(state.h + x)
        return new if "readout" in options else (new.h, new, new.h)

    with pytest.raises(ValueError, match=r"state must be a tree .* got a Hidden in it"):
        ponder_torch.ponder(step, torch.ones(2), Hidden(torch.zeros(2)), max_steps=3, **options)


def test_the_prior_is_made_once(data, monkeypatch: pytest.MonkeyPatch):
    from ponder_ref import priors

    made, make = [], priors.geometric_log_prior
    monkeypatch.setattr(
        priors, "geometric_log_prior", lambda *args, **kwargs: made.append(args) or make(*args, **kwargs)
    )
    net = PonderNet(Step(), max_steps=4, initial_state=zeros, lambda_p=0.2345)
    losses = [net.loss(net(data[0]), data[1], cross_entropy).loss for _ in range(3)]
    assert made == [(0.2345, 4)] and losses[0] == losses[2]
    assert net.double().log_prior_over(4, torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


def test_no_class():
    for target in (-1, 3):
        with pytest.raises(RuntimeError):
            cross_entropy(torch.zeros(1, 3), torch.tensor([target]))


def test_any_loss_of_one_value_an_example(data):
    net = PonderNet(Step(), max_steps=4, initial_state=zeros)
    out = net(data[0])
    own = net.loss(out, data[1], lambda y, t: nn.functional.cross_entropy(y, t, reduction="none"))
    torch.testing.assert_close(own.loss, net.loss(out, data[1], cross_entropy).loss)
    several = net.loss(out, torch.zeros(5, 3), squared_error)
    torch.testing.assert_close(several.example_rec, (out.log_p.exp() * (out.y_hat**2).mean(-1)).sum(0))


def test_weights_leave_padding_out(data):
    net = PonderNet(Step(), max_steps=4, initial_state=zeros)
    x, y = data
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    padded = net.loss(net(x), y, cross_entropy, weights=weights)
    torch.testing.assert_close(padded.loss, net.loss(net(x[:3]), y[:3], cross_entropy).loss)


def test_more_steps_than_in_training_and_other_priors(data):
    prior = ponder_torch.uniform_log_prior(4)
    net = PonderNet(Step(), max_steps=4, initial_state=zeros, log_prior=prior)
    assert net(data[0], max_steps=9).y_hat.shape[0] == 9
    kl = net.loss(net(data[0]), data[1], cross_entropy).example_reg
    torch.testing.assert_close(kl, ponder_torch.kl_divergence(net(data[0]).log_p, prior))
    with pytest.raises(ValueError, match="log_prior has 4 steps"):
        net.loss(net(data[0], max_steps=9), data[1], cross_entropy)


def test_a_plain_loop_learns():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = (x[:, 0] * x[:, 1] > 0).long()
    net = PonderNet(Step(), max_steps=5, initial_state=zeros, epsilon=0.05)
    optimizer = torch.optim.Adam(net.parameters(), 2e-2)
    first = net.loss(net(x), y, cross_entropy).loss.item()
    for _ in range(150):
        optimizer.zero_grad()
        net.loss(net(x), y, cross_entropy).loss.backward()
        optimizer.step()
    assert net.loss(net(x), y, cross_entropy).loss.item() < first / 3


def test_a_module_like_any_other(data):
    net = PonderNet(Step(), max_steps=3, initial_state=zeros)
    twin = PonderNet(Step(), max_steps=3, initial_state=zeros)
    twin.load_state_dict(net.state_dict())
    torch.testing.assert_close(twin(data[0]).log_p, copy.deepcopy(net)(data[0]).log_p)
    assert net.double()(data[0].double()).log_p.dtype == torch.float64
    half = net.to(torch.bfloat16)(data[0].bfloat16())
    assert half.log_p.dtype == torch.float32 and half.y_hat.dtype == torch.bfloat16
    assert "max_steps=3" in repr(net)


def test_compiled_as_one_graph(data):
    net = PonderNet(Step(), max_steps=3, initial_state=zeros)
    fast = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(data[0]).log_p, net(data[0]).log_p)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "one of initial_state and encoder must be given, got neither"),
        ({"initial_state": zeros, "encoder": zeros}, "got both"),
        ({"initial_state": 3}, "initial_state must be a function of the input, got int"),
        ({"initial_state": zeros, "max_steps": 0}, "max_steps must be an integer"),
        ({"initial_state": zeros, "epsilon": 0}, "epsilon must be a number"),
        ({"initial_state": zeros, "lambda_p": 0}, "lambda_p must be a number"),
        ({"initial_state": zeros, "method": "guess"}, "method must be one of"),
        ({"initial_state": zeros, "min_steps": 9}, "min_steps must be an integer in 1..3"),
        ({"initial_state": zeros, "log_prior": torch.zeros(4)}, r"log_prior must have the shape \(3,\)"),
        ({"initial_state": zeros, "log_prior": torch.zeros(3)}, "log_prior must be .* got a sum of 3"),
        (
            {"initial_state": zeros, "log_prior": torch.zeros(3) - np.nan},
            "log_prior must be .* got a sum of nan",
        ),
        (
            {"initial_state": zeros, "log_prior": torch.zeros(3) + np.inf},
            "log_prior must be .* got a sum of inf",
        ),
    ],
)
def test_bad_arguments(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        PonderNet(Step(), **{"max_steps": 3, **options})


def test_a_halting_logit_with_an_axis_too_many(data):
    def step(x, h):
        return x, h, x[:, :1]

    with pytest.raises(ValueError, match="halt_logit must have one number an example"):
        PonderNet(step, max_steps=3, initial_state=zeros)(data[0])


def test_a_criterion_that_stretches_is_refused():
    """Predictions `[batch, 1]` against targets `[batch]` would be compared each with each."""
    x = torch.ones(3)
    net = PonderNet(lambda x, h: (x[:, None], h, x), max_steps=2, initial_state=torch.zeros_like)
    with pytest.raises(ValueError, match=r"criterion must give one value an example.*\(3, 3\)"):
        net.loss(net(x), x, lambda y_hat, targets: (y_hat - targets) ** 2)


def test_a_step_that_returns_too_little_is_told_so():
    net = PonderNet(lambda x, h: (x, h), max_steps=2, initial_state=torch.zeros_like)
    with pytest.raises(ValueError, match=r"step must return \(y_hat, state, halt_logit\), got 2 things"):
        net(torch.ones(3))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "uint8", "int8"])
def test_lengths_of_any_integer_dtype(dtype: str):
    z, lengths = torch.zeros(4, 2), torch.tensor([2, 4])
    got = ponder_torch.log_halting(z, lengths=lengths.to(getattr(torch, dtype)))
    assert torch.equal(got, ponder_torch.log_halting(z, lengths=lengths))


def test_arrays_of_another_framework_are_refused():
    with pytest.raises(ValueError, match="arrays must be torch tensors, got a ndarray"):
        ponder_torch.log_halting(np.zeros((3, 2)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_priors_that_are_taken(dtype: torch.dtype):
    """Rounded ones, ones that exclude steps, and those whose values are not there to be looked at."""
    for prior in (torch.full((3,), 1 / 3).log(), torch.tensor([0.5, 0.5, 0.0]).log(), torch.empty(3, device="meta")):
        PonderNet(Step(), max_steps=3, initial_state=zeros, log_prior=prior.to(dtype))

    def kept(prior):
        return PonderNet(torch.add, max_steps=3, initial_state=zeros, log_prior=prior).log_prior * 2

    assert torch.func.vmap(kept)(torch.zeros(2, 3, dtype=dtype)).shape == (2, 3)


def test_a_prior_keeps_its_precision_where_the_net_is_cast():
    prior = ponder_torch.geometric_log_prior(0.2, 20)
    net = PonderNet(Step(), max_steps=20, initial_state=zeros, log_prior=prior)
    logits = torch.zeros(1, dtype=torch.bfloat16)
    for cast in (net.bfloat16(), net.double(), net.half(), net.to(torch.float32)):
        assert torch.equal(cast.log_prior_over(20, logits), prior)
    assert net.log_prior_over(20, logits.double()).dtype == torch.float64
    assert net.to("meta").log_prior.device.type == "meta"  # it moves like any buffer


class Unrolled(Step):
    """A step that gives what a test says for all its steps."""

    def initial_state(self, x):
        return zeros(x)

    def unroll(self, x, max_steps, rule):
        return self.given

    def forward(self, x, h):
        return super().forward(x, h)


@pytest.mark.parametrize(
    ("y_hat", "z", "lengths", "said"),
    [
        ((3, 6, 3), (3, 5), (5,), r"y_hat must begin with the shape \(3, 5\) of halt_logits, got shape \(3, 6, 3\)"),
        ((3, 6, 3), (3, 6), (5,), r"lengths must have the shape \(6,\) of the batch, got \(5,\)"),
        ((4, 6, 3), (4, 6), (6,), r"unroll must return 1 to 3 steps, got halt_logits \(4, 6\)"),
        ((0, 6, 3), (0, 6), (6,), r"must not have an empty batch"),
    ],
)
def test_what_a_fast_unroll_gives_is_checked(y_hat, z, lengths, said: str):
    net = PonderNet(Unrolled(), max_steps=3)
    net.step.given = torch.zeros(y_hat), torch.zeros(z), None, torch.ones(lengths, dtype=torch.int64)
    with pytest.raises(ValueError, match=said):
        net(torch.zeros(6, 4))


def test_no_steps_are_refused_for_every_step_too(data):
    net = PonderNet(Step(), max_steps=3, initial_state=zeros)
    for call in (lambda x: net(x, max_steps=0), lambda x: net.every_step(x, 0)):
        with pytest.raises(ValueError, match="max_steps must be an integer of at least 1, got 0"):
            call(torch.zeros(6, 4))


def test_a_prior_that_is_given_needs_no_name():
    prior = torch.full((3,), 1 / 3).log()
    net = PonderNet(Step(), max_steps=3, initial_state=zeros, log_prior=prior, prior="poisson", lambda_p=1.0)
    assert torch.equal(net.log_prior_over(3, torch.zeros(1)), prior)
