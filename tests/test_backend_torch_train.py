"""The trainer in torch with networks of somebody's own: running statistics, chance, tied and fixed weights, answers."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import ponder_ref  # noqa: E402
import ponder_torch  # noqa: E402
from ponder_ref.base import Batch  # noqa: E402
from ponder_ref.runtime.network import Leaf, Network, Own  # noqa: E402
from ponder_ref.runtime.settings import Halting, Optimiser  # noqa: E402
from ponder_torch import PonderNet  # noqa: E402
from ponder_torch.train import Trainer, make_trainer  # noqa: E402

INPUTS, WIDTH = 4, 6


class Step(nn.Module):
    """With a running statistic that is replaced, batch norm, dropout, a fixed and an unused parameter."""

    def __init__(self, outputs: int = 1):
        super().__init__()
        self.outputs = outputs
        self.mix, self.heads = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, outputs + 1)
        self.norm, self.dropout = nn.BatchNorm1d(WIDTH), nn.Dropout(0.3)
        self.fixed = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x: Any, h: Any) -> tuple[Any, Any, Any]:
        if self.training:
            self.calls = self.calls + 1  # another tensor, not the same one changed
        h = torch.tanh(self.norm(self.dropout(self.mix(torch.cat([x, h], 1))))) * self.fixed
        out = self.heads(h)
        return (out[:, 0] if self.outputs == 1 else out[:, :-1]), h, out[:, -1]


def build(problem: Any) -> PonderNet:
    torch.manual_seed(problem.seed)
    step = Step(problem.outputs * int(np.prod(problem.answers)))
    project = nn.Linear(INPUTS, WIDTH)
    return PonderNet(step, project=project, initial_state=torch.zeros_like, **problem.halting)


def described(**changes: Any) -> Network:
    given = {"outputs": 1, "output": "binary", "seed": 3, "inputs": Leaf((INPUTS,), "float32"), **changes}
    return Network(Own(name="mine.py:build", sha256="", **given), Halting(max_steps=3, epsilon=0.1))


def chunk(first: int, count: int) -> Batch:
    rng = np.random.default_rng(first)
    x = rng.normal(size=(count, 8, INPUTS)).astype(np.float32)
    return Batch(x, (x[..., 0] > 0).astype(np.int64), np.ones((count, 8), np.float32), None)


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_killed_and_resumed(optimiser: str, dtype: str):
    """Equal bytes after a dump and a load in a new trainer, whatever was drawn before and between."""

    def trainer() -> Any:
        return make_trainer(described(), Optimiser(optimiser=optimiser, learning_rate=1e-2), dtype=dtype, build=build)

    one = trainer()
    state, _ = one.train_steps(one.init(), chunk(0, 2))
    middle = one.dump(state)
    one.unroll(state, chunk(9, 1).inputs[0])  # an evaluation changes nothing
    one.predict(state, chunk(9, 1).inputs[0])
    state, metrics = one.train_steps(state, chunk(2, 3))
    whole = one.dump(state)
    torch.manual_seed(99)
    other = trainer()
    state, again = other.train_steps(other.load(middle), chunk(2, 3))
    for name, value in other.dump(state).items():
        assert value.tobytes() == whole[name].tobytes() and value.dtype == whole[name].dtype, name
        assert value.dtype == dtype or name in ("update", "rest.step.calls", "rest.step.norm.num_batches_tracked")
    for name, value in metrics.items():
        assert np.array_equal(value, again[name]), name
    assert whole["rest.step.calls"] > middle["rest.step.calls"] > 0
    assert not np.array_equal(whole["rest.step.norm.running_mean"], middle["rest.step.norm.running_mean"])
    assert np.array_equal(whole["rest.step.fixed"], np.full(WIDTH, 0.5)) and "params.step.fixed" not in whole
    assert np.array_equal(whole["params.step.unused"], np.ones(2)) and "rest.step.scratch" not in whole
    assert ("v.step.mix.weight" in whole) == (optimiser == "adam") and "v.step.norm.weight" in whole
    assert not np.array_equal(whole["params.project.weight"], middle["params.project.weight"])


def test_chance_outside_is_left_alone():
    trainer = make_trainer(described(), Optimiser(), build=build)
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    trainer.train_steps(trainer.init(), chunk(0, 2))
    assert torch.equal(torch.rand(3), want)


def test_the_network_that_is_given_is_not_changed():
    net = build(described().model.problem(Halting(max_steps=3)))
    before = {name: x.clone() for name, x in net.state_dict().items()}
    trainer = Trainer(net, Optimiser(learning_rate=0.1), output="binary", dtype="float64")
    state, _ = trainer.train_steps(trainer.init(), chunk(0, 2))
    for name, x in net.state_dict().items():
        assert x.dtype == before[name].dtype and torch.equal(x, before[name]), name
    start = trainer.dump(trainer.init())
    assert np.array_equal(start["params.step.mix.weight"], before["step.mix.weight"].double().numpy())
    assert not np.array_equal(trainer.dump(state)["params.step.mix.weight"], start["params.step.mix.weight"])


def test_an_update_is_that_of_the_optimisers():
    """One update against torch's own gradients and the standard's functions; a linear layer is taken as [in, out]."""
    for chosen in ("adam", "muon"):
        net = PonderNet(Tied(), initial_state=torch.zeros_like, max_steps=2)
        trainer = Trainer(net, Optimiser(optimiser=chosen, learning_rate=0.1), output="binary")
        batch = chunk(0, 1)._replace(inputs=np.random.default_rng(0).normal(size=(1, 8, 3)).astype(np.float32))
        after = trainer.dump(trainer.train_steps(trainer.init(), batch)[0])
        targets, weights = (torch.from_numpy(part[0]) for part in (batch.targets, batch.weights))
        out = net(torch.from_numpy(batch.inputs[0]))
        net.loss(out, targets, ponder_torch.binary_cross_entropy, weights=weights).loss.backward()
        assert set(after) == {f"{p}.{n}" for p, n in wanted_names(chosen)} | {"update"}
        for name, p in net.named_parameters():
            value, grad = p.detach().numpy(), p.grad.numpy()
            nothing = np.zeros_like(value)
            if chosen == "muon" and name.endswith("weight"):
                given = value.T, grad.T, nothing.T
                want = ponder_ref.muon_update(*given, step=1, learning_rate=0.1).param.T
            else:
                want = ponder_ref.adam_update(value, grad, nothing, nothing, step=1, learning_rate=0.1).param
            np.testing.assert_allclose(after[f"params.{name}"], want, atol=2e-5, err_msg=f"{chosen}: {name}")


class Tied(nn.Module):
    """Two layers with the same weight, which is one parameter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3, bias=False), nn.Linear(3, 2)
        self.second.weight = self.first.weight

    def forward(self, x: Any, h: Any) -> tuple[Any, Any, Any]:
        h = torch.tanh(self.first(x) + self.second(h))
        y_hat, z = self.third(h).unbind(-1)
        return y_hat, h, z


def wanted_names(chosen: str) -> list[tuple[str, str]]:
    names = [f"step.{name}" for name in ("first.weight", "first.bias", "third.weight", "third.bias")]
    parts = [("params", name) for name in names] + [("m", name) for name in names]
    return parts + [("v", name) for name in names if chosen == "adam" or name.endswith("bias")]


@pytest.mark.parametrize("output", ["binary", "classes"])
@pytest.mark.parametrize("method", ["ponder", "act", "once"])
def test_an_example_is_right_if_all_its_answers_are(output: str, method: str):
    """Accuracy of answers `[2, 3]` against a count by hand, with and without weights."""
    rng, classes = np.random.default_rng(1), 4
    shape = (5, 2, 3) if output == "binary" else (5, 2, 3, classes)
    scores, halts = torch.from_numpy(rng.normal(size=(3, *shape)).astype(np.float32)), rng.normal(size=(3, 5))
    scale, logits = nn.Parameter(torch.ones(())), torch.from_numpy(halts.astype(np.float32))

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = scale

        def forward(self, x: Any, n: Any) -> tuple[Any, Any, Any]:
            at = n.long(), torch.arange(5)
            return scores[at] * self.scale, n + 1, logits[at] * self.scale

    net = PonderNet(Given(), initial_state=lambda x: torch.zeros(5), max_steps=3, method=method)
    targets = rng.integers(0, 2 if output == "binary" else classes, (1, 5, 2, 3))
    right_at = rng.integers(0, 3, 5)  # a step at which all answers of an example are right
    picked = scores[right_at, np.arange(5)].numpy()
    targets[0, :3] = (picked > 0)[:3] if output == "binary" else picked.argmax(-1)[:3]
    weights = rng.random((1, 5)).astype(np.float32)
    trainer = Trainer(net, Optimiser(learning_rate=0.0), output=output)
    _, metrics = trainer.train_steps(trainer.init(), Batch(np.zeros((1, 5, 1), np.float32), targets, weights, None))
    out = net(torch.zeros(5, 1))
    y_hat = out.y_hat.detach().numpy()
    if out.act is not None:
        y_hat = np.einsum("nb,nb...->b...", out.act.weights.detach().numpy(), y_hat)[None]
    found = (y_hat > 0) == targets if output == "binary" else y_hat.argmax(-1) == targets
    per_example = found.reshape(*found.shape[:2], -1).all(-1)
    chance = np.ones((1, 5)) if out.act is not None else out.log_p.exp().detach().numpy()
    want = ((per_example * chance).sum(0) * weights[0]).sum() / weights.sum()
    np.testing.assert_allclose(metrics["accuracy"], [want], rtol=1e-5)
    assert want > 0 or method != "ponder"


def test_predictions_are_those_of_the_network():
    trainer = make_trainer(described(), Optimiser(), build=build)
    state, _ = trainer.train_steps(trainer.init(), chunk(0, 3))
    x = chunk(5, 1).inputs[0]
    y_hat, z = trainer.unroll(state, x)
    out = trainer.predict(state, x, policy="fixed", trace=True, example_ids=np.arange(8))
    assert y_hat.shape == (3, 8) and all(isinstance(part, np.ndarray) for part in (out.y_hat, out.steps, out.log_p))
    np.testing.assert_array_equal(out.trace.halt_logits, z)
    np.testing.assert_array_equal(out.y_hat, y_hat[-1])
    longer, _ = trainer.unroll(state, x, max_steps=5)  # ε has no say, and there may be more steps than in training
    assert longer.shape == (5, 8)


def test_what_is_refused():
    net = build(described().model.problem(Halting(max_steps=3)))
    with pytest.raises(ValueError, match="output must be one of binary, classes"):
        Trainer(net, Optimiser(), output="numbers")
    with pytest.raises(ValueError, match="dtype must be"):
        Trainer(net, Optimiser(), output="binary", dtype="float16")
    fixed = PonderNet(lambda x, h: (h, h, h), initial_state=torch.zeros_like, max_steps=2)
    with pytest.raises(ValueError, match="the network must have parameters to train"):
        Trainer(fixed, Optimiser(), output="binary")
    trainer = Trainer(net, Optimiser(), output="binary")
    arrays = trainer.dump(trainer.init())
    for broken, said in (
        ({k: v for k, v in arrays.items() if k != "rest.step.calls"}, "step.calls"),
        ({**arrays, "rest.more": np.zeros(1)}, "more"),
        ({k: v for k, v in arrays.items() if k != "m.step.unused"}, "m.step.unused"),
        ({**arrays, "params.step.unused": np.zeros(3, np.float32)}, "params.step.unused must have the shape"),
    ):
        with pytest.raises(ValueError, match=said):
            trainer.load(broken)
    with pytest.raises(ValueError, match="missing"):
        trainer.init({})
