"""A run's network in torch: loaded, used, saved and loaded again, and what is refused."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import pair_checks  # noqa: E402
import transformer_checks  # noqa: E402
from net_cases import MODELS, STEPS, WAYS, inputs, make_run, parameters  # noqa: E402

import ponder_ref  # noqa: E402
import ponder_torch  # noqa: E402
from ponder_ref.models._buckets import bucket_lengths  # noqa: E402
from ponder_ref.models._ut_act import ut_act  # noqa: E402
from ponder_ref.runtime.network import Leaf, Network  # noqa: E402
from ponder_ref.runtime.network import Own as OwnNetwork  # noqa: E402
from ponder_ref.runtime.settings import Halting, Optimiser  # noqa: E402
from ponder_torch import PonderNet, load, train  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def tensors(x: Any) -> Any:
    return {name: torch.from_numpy(part) for name, part in x.items()} if isinstance(x, dict) else torch.from_numpy(x)


def reference(name: str, options: dict[str, Any], example: int) -> Any:
    """Example number i by the NumPy reference, alone and step by step."""
    params, given = parameters(name), inputs(name, dropout=MODELS[name].kind != "rnn")
    if MODELS[name].kind == "rnn":
        projected = ponder_ref.rnn_project(params, given[example : example + 1])
        readout = {"readout": lambda h: ponder_ref.rnn_readout(params, h)}
        start = np.zeros_like(projected)
        step = lambda p, h: ponder_ref.rnn_transition(params, p, h)  # noqa: E731
        return ponder_ref.ponder(step, projected, start, max_steps=STEPS[name], **readout, **options)
    if MODELS[name].kind == "pairs":
        return pair_checks.alone(MODELS[name], params, given, example, options)
    for length in bucket_lengths(given):
        words = given[f"words.{length}"]
        if example < len(words):
            bits = given[f"dropout.{length}"][:, example]
            return transformer_checks.alone(MODELS[name], params, words[example], bits, options)
        example -= len(words)
    raise IndexError(example)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_the_network_that_was_trained(tmp_path: Path, name: str, way: str):
    """Its halting, and what it gives for every example, against the reference."""
    options = {"min_steps": 2, **WAYS[way]}
    net = load(make_run(train, tmp_path / "run", name, **options))
    assert net.settings == MODELS[name] and not net.training
    assert {key: getattr(net.halting, key) for key in options} == options and net.halting.max_steps == STEPS[name]
    out = net(tensors(inputs(name, dropout=MODELS[name].kind != "rnn")))
    for example, length in enumerate(out.lengths.tolist()):
        want = reference(name, {key: value for key, value in options.items() if key != "prior"}, example)
        assert length == int(want.lengths[0])
        for part in ("y_hat", "halt_logits"):
            got = getattr(out, part)[:length, example].detach().numpy()
            np.testing.assert_allclose(got, getattr(want, part)[:length, 0], atol=5e-5)
        if want.act is None:
            np.testing.assert_allclose(out.log_p[:length, example].detach(), want.log_p[:length, 0], atol=5e-5)
    assert len(set(out.lengths.tolist())) > 1 or way not in ("epsilon", "act")


def test_a_run_whose_rows_halt_by_themselves(tmp_path: Path):
    net = load(make_run(train, tmp_path / "run", "transformer", method="ut-act", act_epsilon=0.3))
    given = inputs("transformer")
    out, row = net(tensors(given)), 0
    for length in bucket_lengths(given):
        for words in given[f"words.{length}"]:
            rule: dict[str, Any] = {
                "heads": MODELS["transformer"].heads,
                "max_steps": STEPS["transformer"],
                "act_epsilon": 0.3,
            }
            want = ut_act(parameters("transformer"), words[words.any(-1)], **rule)
            assert int(out.lengths[row]) == want.steps.max()
            np.testing.assert_allclose(out.y_hat[-1, row].detach(), want.y_hat, atol=2e-5)
            row += 1
    with pytest.raises(ValueError, match=r'predict is for methods .* got a module with method "ut-act"'):
        net.predict(tensors(given))


def step_by_step(net: PonderNet) -> PonderNet:
    """The same network without its fast unroll."""
    slow = copy.deepcopy(net)
    slow.step.unroll = lambda *_: None  # type: ignore
    return slow


def value_and_gradients(net: PonderNet, x: Any) -> tuple[Any, Any, list[Any]]:
    """What a net gives; a number in which all its outputs have a share; its gradients."""
    out = net(x)
    weights = out.act.weights if out.act is not None else out.log_p.exp()
    share = torch.where(weights == 0, 0.0, weights).reshape(*weights.shape, *[1] * (out.y_hat.ndim - weights.ndim))
    total = (share * out.y_hat.square()).sum() + (0.0 if out.act is None else out.act.remainder.sum())
    if not isinstance(x, dict):
        total = total + out.state.square().sum()
    given = list(net.parameters())
    return out, total, list(torch.autograd.grad(total, given, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_the_fast_unroll_is_one_step_after_another(tmp_path: Path, name: str, way: str):
    net = load(make_run(train, tmp_path / "run", name, **WAYS[way])).double()
    x = tensors(inputs(name, dropout=MODELS[name].kind != "rnn"))
    x = {k: v.double() if v.is_floating_point() else v for k, v in x.items()} if isinstance(x, dict) else x.double()
    (out, total, grads), (want, right, wanted) = (value_and_gradients(one, x) for one in (net, step_by_step(net)))
    assert torch.equal(out.lengths, want.lengths)
    torch.testing.assert_close(total, right)
    for (parameter, _), got, should in zip(net.named_parameters(), grads, wanted, strict=True):
        torch.testing.assert_close(got, should, msg=lambda text, parameter=parameter: f"{parameter}: {text}")


@pytest.mark.parametrize("name", MODELS)
def test_examples_leave_alone(tmp_path: Path, name: str):
    """`predict` and `stream` sample the step that the logits give, whatever else is in the batch."""
    net = load(make_run(train, tmp_path / "run", name))
    x = tensors(inputs(name))
    out = net(x)
    count = out.halt_logits.shape[1]
    lambdas = torch.sigmoid(out.halt_logits)
    uniforms = ponder_torch.halting_uniforms(7, torch.arange(count), max_steps=STEPS[name])
    assert ((lambdas - uniforms).abs() > 1e-4).all()
    steps = ponder_torch.sample_steps(lambdas, uniforms)
    assert len(steps.unique()) > 1
    for slots in (None, 2, 1):
        found = net.predict(x, seed=7, slots=slots)
        assert torch.equal(found.steps, steps)
        torch.testing.assert_close(found.y_hat, out.y_hat[steps - 1, torch.arange(count)].detach(), atol=2e-5, rtol=0)
    if MODELS[name].kind == "transformer":
        x = net.start(x)[0]["words"]  # of one length
    examples = [{k: v[i] for k, v in x.items()} if isinstance(x, dict) else x[i] for i in range(count)]
    answers = list(ponder_torch.stream(net, examples, seed=7, slots=3, ordered=True))
    assert [answer.steps for answer in answers] == steps.tolist()
    for answer, want in zip(answers, found.y_hat, strict=True):
        torch.testing.assert_close(answer.y_hat, want, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_again(tmp_path: Path, name: str):
    net = load(make_run(train, tmp_path / "run", name, epsilon=0.3, beta=0.1))
    path = net.save(tmp_path / "saved")
    x = tensors(inputs(name))
    targets = torch.zeros(len(net(x).lengths), dtype=torch.int64)
    criterion = ponder_torch.binary_cross_entropy if name == "rnn" else ponder_torch.cross_entropy
    for again in (load(tmp_path / "saved"), load(path), load(net.save(tmp_path / "saved"))):  # over an earlier one
        assert again.halting == net.halting and again.settings == net.settings
        first, second = (one.loss(one(x), targets, criterion).loss for one in (net, again))
        assert torch.equal(first, second)


def test_a_parameter_that_is_not_trained_is_saved(tmp_path: Path):
    net = load(make_run(train, tmp_path / "run", "rnn"))
    net.step.get_parameter("rnn.w_x").requires_grad_(False)
    net.save(tmp_path / "saved")
    x = tensors(inputs("rnn"))
    assert torch.equal(load(tmp_path / "saved")(x).y_hat, net(x).y_hat)


def test_the_dtype_is_that_of_the_file(tmp_path: Path):
    net = load(make_run(train, tmp_path / "run", "rnn")).double()
    net.save(tmp_path / "saved")
    assert {p.dtype for p in load(tmp_path / "saved").parameters()} == {torch.float64}
    net = own_net().double().eval()
    net.save(tmp_path / "own")
    x = torch.randn(2, 4, dtype=torch.float64)
    assert torch.equal(load(tmp_path / "own", build=own_net)(x).y_hat, net(x).y_hat)
    net.step.norm.float()  # several dtypes: those it is built with
    net.save(tmp_path / "own")
    assert {p.dtype for p in load(tmp_path / "own", build=own_net).parameters()} == {torch.float32}


def test_the_shipped_network():
    """It answers as the reference does with its parameters."""
    net = load(ROOT / "tasks" / "babi" / "pretrained")
    rng = np.random.default_rng(0)
    words = rng.integers(1, net.settings.vocabulary, (3, 6, net.settings.tokens)).astype(np.int16)
    words[0, :2] = 0
    params = {name: x.detach().double().numpy() for name, x in net.step.named_parameters()}
    out = net(torch.from_numpy(words))
    for i, story in enumerate(words):
        want = story[story.any(-1)][None]
        h = ponder_ref.transformer_encode(params, want)
        for n in range(1, net.max_steps + 1):
            h = ponder_ref.transformer_transition(params, want, h, n, heads=net.settings.heads)
            y_hat, z = ponder_ref.transformer_readout(params, h)
            np.testing.assert_allclose(out.y_hat[n - 1, i].detach(), y_hat[0], atol=2e-4)
            np.testing.assert_allclose(out.halt_logits[n - 1, i].detach(), z[0], atol=2e-4)


class Own(torch.nn.Module):
    """A step network with a running statistic."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4 + width, width), torch.nn.BatchNorm1d(width)

    def forward(self, x: Any, h: Any) -> tuple[Any, Any, Any]:
        h = torch.tanh(self.norm(self.linear(torch.cat([x, h], 1))))
        return h[:, 0], h, h[:, 1]


def own_net(problem: Any = None, width: int = 3) -> PonderNet:
    halting = {"max_steps": 4} if problem is None else problem.halting
    return PonderNet(Own(width), initial_state=lambda x: x.new_zeros(len(x), width), **halting)


def test_a_network_of_ones_own_needs_its_code(tmp_path: Path):
    net = own_net()
    net(torch.randn(8, 4))  # moves the statistics
    net.eval().save(tmp_path)
    again = load(tmp_path, build=own_net)
    x = torch.randn(2, 4)
    assert torch.equal(again(x).y_hat, net(x).y_hat) and again.halting == net.halting
    again.save(tmp_path)
    told = []
    assert torch.equal(load(tmp_path, build=lambda p: told.append(p) or own_net(p))(x).y_hat, net(x).y_hat)
    assert (told[0].inputs, told[0].outputs, told[0].output, told[0].answers) == (None,) * 4  # it had no task
    for build, said in (
        (None, r"build must be given, the function that makes this network \(Own\)"),
        (lambda problem: problem, "build must return a PonderNet of ponder_torch, got Problem"),
        (lambda problem: own_net(problem, 5), r"does not fit the network: step.linear.weight must have the shape"),
        (lambda problem: PonderNet(lambda x, h: (h, h, h), max_steps=4, initial_state=lambda x: x), "missing"),
        (
            lambda problem: PonderNet(Own(), initial_state=torch.zeros_like, **{**problem.halting, "max_steps": 3}),
            "build must return a PonderNet with max_steps 4, as the network is described, got 3: it should be Ponder",
        ),
        (
            lambda problem: PonderNet(Own(), initial_state=torch.zeros_like, max_steps=4, method="repeat"),
            "build must return a PonderNet with method 'ponder', as the network is described, got 'repeat'",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            load(tmp_path, build=build)
    described = Network(OwnNetwork("a.py:build", "", Leaf((4,), "float32"), 1, "binary"), Halting(max_steps=5))
    with pytest.raises(ValueError, match="PonderNet with max_steps 5, as the network is described, got 4"):
        train.make_trainer(described, Optimiser(), build=lambda problem: own_net())


def test_what_is_refused(tmp_path: Path):
    folder = make_run(train, tmp_path / "run", "rnn")
    with pytest.raises(ValueError, match="build must not be given for a network of the paper, here 'rnn'"):
        load(folder, build=own_net)
    with pytest.raises(ValueError, match="holds no network"):
        load(tmp_path / "nowhere")
    (file,) = (folder / "checkpoints").iterdir()
    content = file.read_bytes()
    for broken in (content[:-1], content[:-4] + b"\0\0\0\1", b"", b"words"):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match=r"update-00000000\.safetensors"):
            load(folder)
    prior = ponder_torch.uniform_log_prior(4)
    for step in (ponder_torch.models.step_of(MODELS["rnn"]), Own()):
        start = torch.zeros_like if isinstance(step, Own) else None
        net = PonderNet(step, initial_state=start, max_steps=4, log_prior=prior)
        with pytest.raises(ValueError, match="saved with the name of its prior, and log_prior has none"):
            net.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_without_what_reads_files():
    """A network is built, trained and used where neither safetensors nor msgspec is installed."""
    code = """
import sys
sys.modules["msgspec"] = sys.modules["safetensors"] = None
import numpy as np
import torch
import ponder_torch
from ponder_ref.base import Batch
from ponder_ref.runtime.settings import Optimiser
from ponder_torch.train import Trainer
class Step(torch.nn.Linear):
    def forward(self, x, h):
        h = super().forward(x + h)
        return h[:, 0], h, h[:, 1]
net = ponder_torch.PonderNet(Step(2, 2), max_steps=2, initial_state=torch.zeros_like)
trainer = Trainer(net, Optimiser(), output="binary")
batch = Batch(np.ones((1, 3, 2), np.float32), np.ones((1, 3)), None, None)
print(trainer.dump(trainer.train_steps(trainer.init(), batch)[0])["update"], len(net.predict(torch.ones(3, 2)).steps))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["1", "3"], done.stderr


def test_only_the_networks_of_the_paper_are_taken_for_them(tmp_path: Path):
    """Settings of the same kind, or a class that is derived, do not make a step network one of the paper."""

    class Alike(Own):
        settings = MODELS["rnn"]

        def initial_state(self, x):
            return x.new_zeros(len(x), 3)

    class Derived(ponder_torch.models.rnn.Step):
        def forward(self, projected, h):
            y_hat, h, z = super().forward(projected, h)
            return 2 * y_hat, h, z

    x = torch.randn(2, 4)
    for step, given in ((Alike(), x), (Derived(MODELS["rnn"]), tensors(inputs("rnn")))):
        net = PonderNet(step, max_steps=3).eval()
        assert net.settings is None and net.network.is_own
        net.save(tmp_path)
        again = load(tmp_path, build=lambda p, step=step: PonderNet(copy.deepcopy(step), **p.halting))
        assert torch.equal(again(given).y_hat, net(given).y_hat)
        assert all(name.startswith("step.") for name in train.Trainer(net, Optimiser(), output="binary").params)
