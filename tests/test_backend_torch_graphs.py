"""The fast unroll of the RNN in torch keeps its graph whole: graphs that are kept, forgotten, copied, transformed."""

import copy
import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nets import make_net  # noqa: E402

import ponder_torch  # noqa: E402
from ponder_ref.models.rnn import Rnn  # noqa: E402

MODEL, STEPS = Rnn(inputs=5, hidden=7), 6
RNG = np.random.default_rng(0)
X, OTHER = (torch.from_numpy(RNG.normal(size=(9, 5))) for _ in range(2))


@pytest.fixture(params=[{}, {"epsilon": 0.3}, {"method": "act", "act_epsilon": 0.3}], ids=["ponder", "epsilon", "act"])
def net(request: Any) -> ponder_torch.PonderNet:
    params = MODEL.initial_parameters(1)
    params["halt.b"] += 0.5
    return make_net("ponder_torch", MODEL, params, max_steps=STEPS, **request.param).double()


def loss_of(net: Any, x: Any) -> Any:
    return net.loss(net(x), torch.ones(len(x)), ponder_torch.binary_cross_entropy).loss


def gradients(net: Any, loss: Any, **options: Any) -> list[Any]:
    return list(torch.autograd.grad(loss, list(net.parameters()), **options))


def wanted(net: Any, x: Any) -> list[Any]:
    """The gradients by ordinary means, one step after another."""
    slow = copy.deepcopy(net)
    slow.step.unroll = lambda *_: None
    return gradients(slow, loss_of(slow, x), allow_unused=True, materialize_grads=True)


def assert_same(got: list[Any], want: list[Any]) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_two_forwards_before_a_backward(net):
    first, second = loss_of(net, X), loss_of(net, OTHER)
    assert_same(gradients(net, first), wanted(net, X))
    third = loss_of(net, OTHER)
    assert_same(gradients(net, second), wanted(net, OTHER))
    assert_same(gradients(net, third), wanted(net, OTHER))


def test_a_graph_that_is_kept(net):
    loss = loss_of(net, X)
    assert_same(gradients(net, loss, retain_graph=True), wanted(net, X))
    gradients(net, loss_of(net, OTHER))
    with torch.no_grad():
        net(OTHER)
    assert_same(gradients(net, loss, retain_graph=True), wanted(net, X))
    assert_same(gradients(net, loss), wanted(net, X))


def test_forwards_without_a_backward(net):
    for _ in range(3):
        loss_of(net, OTHER)
    with torch.inference_mode():
        inside = net(OTHER)
    with torch.no_grad():
        outside = net(OTHER)
    assert torch.equal(inside.y_hat, outside.y_hat) and torch.equal(inside.state, outside.state)
    kept = outside.y_hat.clone(), outside.state.clone()
    for _ in range(3):
        assert_same(gradients(net, loss_of(net, X)), wanted(net, X))
    assert torch.equal(outside.y_hat, kept[0]) and torch.equal(outside.state, kept[1])


def test_buffers_are_used_again():
    """What a training keeps between its updates does not grow; an ended graph leaves its buffer to the next."""
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(1), max_steps=STEPS)
    x = torch.randn(64, 5)
    sizes = set()
    for _ in range(4):
        gradients(net, loss_of(net, x))
        gc.collect()
        held = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.shape == (STEPS, 64, 7)]
        sizes.add(len({one.data_ptr() for one in held}))
    assert len(sizes) == 1


def test_a_gradient_of_a_gradient(net):
    """A price of the slope by the input, and its gradients: as one step after another gives them."""

    def steep(net: Any) -> list[Any]:
        x = X.clone().requires_grad_()
        loss = loss_of(net, x)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return gradients(net, loss + slope.square().sum(), allow_unused=True, materialize_grads=True)

    slow = copy.deepcopy(net)
    slow.step.unroll = lambda *_: None
    assert_same(steep(net), steep(slow))


def test_checkpointed(net):
    from torch.utils.checkpoint import checkpoint

    loss = checkpoint(loss_of, net, X, use_reentrant=False)
    loss_of(net, OTHER)
    assert_same(gradients(net, loss), wanted(net, X))


def test_functions_of_the_parameters():
    """`torch.func` has gradients, per example too, and forward mode; a call with other parameters changes nothing."""
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(1), max_steps=STEPS).double()
    held = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params: Any, x: Any) -> Any:
        out = torch.func.functional_call(net, params, (x,))
        return net.loss(out, torch.ones(len(x)), ponder_torch.binary_cross_entropy).loss

    want = wanted(net, X)
    assert_same(list(torch.func.grad(loss)(held, X).values()), want)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(held, X[:, None])
    assert_same([part.mean(0) for part in each.values()], want)
    _, slope = torch.func.jvp(lambda x: loss(held, x), (X,), (torch.ones_like(X),))
    near = 1e-6
    torch.testing.assert_close(slope, (loss(held, X + near) - loss(held, X - near)) / (2 * near), rtol=1e-6, atol=0)
    doubled = {name: 2 * value for name, value in held.items()}
    assert not torch.equal(loss(doubled, X), loss(held, X)) and torch.equal(loss(held, X), loss_of(net, X))


def test_compiled_and_exported():
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(1), max_steps=STEPS)
    x = X.float()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x).y_hat, net(x).y_hat)
    want = gradients(net, loss_of(net, x))
    got = gradients(net, net.loss(compiled(x), torch.ones(9), ponder_torch.binary_cross_entropy).loss)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


def test_half_precision_copies_and_other_axes():
    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(1), max_steps=STEPS)
    want = net(X.float())
    out = copy.deepcopy(net).to(torch.bfloat16)(X.bfloat16())
    assert out.y_hat.dtype == torch.bfloat16
    torch.testing.assert_close(out.y_hat.float(), want.y_hat, atol=0.1, rtol=0.1)
    torch.testing.assert_close(net(X.float().reshape(3, 3, 5)).y_hat, want.y_hat.reshape(STEPS, 3, 3))
    torch.testing.assert_close(net(X.float()[0]).y_hat, want.y_hat[:, 0])
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(net(X.float()).y_hat.float(), want.y_hat, atol=0.1, rtol=0.1)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.step.get_parameter("rnn.w_h").zero_()
    assert torch.equal(net(X.float()).y_hat, want.y_hat) and not torch.equal(other(X.float()).y_hat, want.y_hat)


def test_modes_and_other_tensors_leave_nothing_behind():
    """After fake tensors, a trace, or a type of somebody's own a net gives plain tensors with its numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    class Named(torch.Tensor):
        pass

    net = make_net("ponder_torch", MODEL, MODEL.initial_parameters(1), max_steps=STEPS).double()
    want, grads = net(X).y_hat, wanted(net, X)
    with torch.no_grad():  # torch warns of what its own fake tensors do with gradients
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert net(mode.from_tensor(X)).y_hat.shape == want.shape
        assert net(mode.from_tensor(X)).y_hat.shape == want.shape  # a fake tensor that left its mode
        assert type(net(X).y_hat) is torch.Tensor
    torch.testing.assert_close(net(X.as_subclass(Named)).y_hat.as_subclass(torch.Tensor), want)
    torch.testing.assert_close(make_fx(lambda x: net(x).y_hat)(X)(OTHER), net(OTHER).y_hat)
    loss = loss_of(net, X)
    with FlopCounterMode(display=False) as counted:
        assert_same(gradients(net, loss), grads)
        net(X)
    assert counted.get_total_flops() > 0
    for _ in range(3):
        out = net(X)
        assert type(out.y_hat) is torch.Tensor and torch.equal(out.y_hat, want)
        assert_same(gradients(net, loss_of(net, X)), grads)


def test_a_replaced_step_and_hooks_are_not_passed_over():
    """The fast unroll is for the steps of the class that wrote it: `net(x)` is then step by step, as `predict` is."""
    from ponder_torch.models.rnn import Step as Rnn

    class Other(Rnn):
        def forward(self, projected, h):
            y_hat, h, z = super().forward(projected, h)
            return y_hat + 7.0, h, z

    class Start(Rnn):
        def initial_state(self, projected):
            return super().initial_state(projected) + 1.0

    x, plain = X.float(), ponder_torch.PonderNet(Rnn(MODEL), max_steps=STEPS)
    want = plain(x)
    torch.testing.assert_close(ponder_torch.PonderNet(Other(MODEL), max_steps=STEPS)(x).y_hat, want.y_hat + 7.0)
    net = ponder_torch.PonderNet(Start(MODEL), max_steps=STEPS)
    torch.testing.assert_close(net(x).y_hat[-1], net.predict(x, policy="fixed").y_hat)
    calls = []
    hook = plain.step.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr]
    torch.testing.assert_close(plain(x).y_hat, want.y_hat)
    assert len(calls) == STEPS
    hook.remove()
    plain(x)
    assert len(calls) == STEPS
    replaced = copy.deepcopy(plain)
    replaced.step.forward = lambda p, h: (p[:, 0] * 0, h, h[:, 0])  # type: ignore[union-attr]
    assert (replaced(x).y_hat == 0).all()
