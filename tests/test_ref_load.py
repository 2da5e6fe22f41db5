"""Networks from files in NumPy alone: `ponder_ref.load` of what backends save, ship and train."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_pairs import XL
from train_pairs import make_inputs as make_pairs
from train_transformer import MODEL, make_inputs

import ponder_ref
from ponder_ref.models._ut_act import ut_act
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.models.rnn import Rnn
from ponder_ref.net import PonderNet
from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.network import Leaf, Network, Own
from ponder_ref.runtime.saved import network_of, write_saved
from ponder_ref.runtime.settings import Halting

SHIPPED = Path(__file__).resolve().parent.parent / "tasks" / "babi" / "pretrained"
RNN = Rnn(inputs=5, hidden=4)
PAIRS = PairTransformer(**{**XL.__dict__, "memory": "none"})
INPUTS = {
    "rnn": np.random.default_rng(0).normal(size=(6, 5)),
    "transformer": make_inputs(3),
    "pairs": make_pairs(3),
}


def saved(folder: Path, model, **halting) -> ponder_ref.PonderNet:
    """A network that was written and read again, with logits of halting that differ between examples."""
    params = model.initial_parameters(1)
    rng = np.random.default_rng(0)
    params["halt.w"] = params["halt.w"] * 3 + rng.normal(size=params["halt.w"].shape)
    write_saved(folder, Network(model, Halting(**{"max_steps": 4, **halting})), params, {})
    return ponder_ref.load(folder)


@pytest.mark.parametrize("model", [RNN, MODEL, PAIRS, XL], ids=["rnn", "transformer", "pairs", "xl"])
def test_every_network_answers_and_each_example_is_as_if_alone(model, tmp_path: Path):
    net, x = saved(tmp_path, model, epsilon=0.3), INPUTS[model.kind]
    out = net(x)
    assert len(set(out.lengths.tolist())) > 1, "no example of this test leaves early"
    answers = net.predict(x, policy="expected")
    np.testing.assert_array_equal(answers.steps, out.lengths)
    np.testing.assert_allclose(answers.y_hat, ponder_ref.expected_prediction(out.log_p, out.y_hat), atol=1e-12)
    sampled = net.predict(x, seed=5, trace=True)
    for i, n in enumerate(sampled.steps):
        m = min(int(n), int(out.lengths[i]))
        np.testing.assert_allclose(sampled.trace.y_hat[:m, i], out.y_hat[:m, i], atol=1e-12)
        np.testing.assert_allclose(sampled.trace.halt_logits[:m, i], out.halt_logits[:m, i], atol=1e-12)


def test_the_rnn_is_its_formula(tmp_path: Path):
    net, x = saved(tmp_path, RNN, max_steps=2, method="repeat"), INPUTS["rnn"]
    p = net.step.params
    h1 = np.tanh(x @ p["rnn.w_x"] + p["rnn.b"])
    h2 = np.tanh(x @ p["rnn.w_x"] + p["rnn.b"] + h1 @ p["rnn.w_h"])
    np.testing.assert_allclose(net(x).y_hat[-1], (h2 @ p["output.w"] + p["output.b"])[:, 0], atol=1e-12)
    np.testing.assert_allclose(net.predict(x).y_hat, net(x).y_hat[-1], atol=1e-12)


def test_words_are_a_bucket(tmp_path: Path):
    net, inputs = saved(tmp_path, MODEL), make_inputs(3)
    both, short = net(inputs), net(inputs["words.3"])
    np.testing.assert_allclose(both.y_hat[:, :4], short.y_hat, atol=1e-12)
    stream = ponder_ref.stream(net, iter(inputs["words.3"]), seed=3)
    answers = net.predict(inputs["words.3"], seed=3)
    for one, y_hat, steps in zip(stream, answers.y_hat, answers.steps, strict=True):
        np.testing.assert_allclose(one.y_hat, y_hat, atol=1e-12)
        assert one.steps == steps
    with pytest.raises(ValueError, match="no dropout"):
        net({**inputs, "dropout.3": np.zeros((4, 4, MODEL.heads, 3, 1), np.uint8)})


def test_rows_that_halt_by_themselves(tmp_path: Path):
    net, inputs = saved(tmp_path, MODEL, method="ut-act", act_epsilon=0.3), make_inputs(3)
    out, words = net(inputs), inputs["words.9"][1]
    want = ut_act(net.step.params, words[words.any(-1)], heads=MODEL.heads, max_steps=4, act_epsilon=0.3)
    np.testing.assert_allclose(out.y_hat[2, 5], want.y_hat, atol=1e-12)
    assert out.lengths[5] == want.steps.max() and out.act.remainder[5] == pytest.approx(want.cost, abs=1e-12)
    with pytest.raises(ValueError, match='got a module with method "ut-act"'):
        net.predict(inputs)
    with pytest.raises(ValueError, match="method must be one of"):
        saved(tmp_path, RNN, method="ut-act")


def test_the_shipped_network():
    net = ponder_ref.load(SHIPPED)
    assert net.step.settings.kind == "transformer" and net.method == "ponder"
    words = np.ones((2, 3, net.step.settings.tokens), np.int16)
    answers = net.predict(words, policy="expected")
    assert answers.y_hat.shape == (2, net.step.settings.outputs) and np.isfinite(answers.y_hat).all()
    np.testing.assert_array_equal(answers.y_hat[0], answers.y_hat[1])


def test_what_is_no_network_gets_a_sentence(tmp_path: Path):
    with pytest.raises(ValueError, match="holds no network"):
        ponder_ref.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        ponder_ref.load(tmp_path)
    params = RNN.initial_parameters(0)
    del params["rnn.b"]
    write_saved(tmp_path, Network(RNN, Halting()), params, {})
    with pytest.raises(ValueError, match=r"missing \['rnn.b'\]"):
        ponder_ref.load(tmp_path)
    own = Own("net.py:build", "", Leaf((3,), "float32"), 1, "binary")
    write_saved(tmp_path, Network(own, Halting()), {"w": np.zeros(3)}, {})
    with pytest.raises(ValueError, match=r"somebody's own \(net.py:build\)"):
        ponder_ref.load(tmp_path)


class Twice:
    """A step network with a method of halting of its own."""

    OWN_METHODS = ("twice",)

    def initial_state(self, x):
        return x

    def __call__(self, x, h):
        return h, h + x, h

    def unroll_by(self, method, x, *, max_steps, act_epsilon):
        return method, max_steps, act_epsilon


def test_a_step_network_names_its_own_methods():
    net = PonderNet(Twice(), Halting(method="twice", max_steps=3, act_epsilon=0.2))
    assert net.halting.method == "twice" and net(np.ones(2)) == ("twice", 3, 0.2)
    with pytest.raises(ValueError, match="method must be one of ponder, act, repeat, once, twice, got 'thrice'"):
        PonderNet(Twice(), Halting(method="thrice"))
    for word in ("", "two words", "a\n", " a", 3, None):
        with pytest.raises(ValueError, match="method must be a word, got"):
            Halting(method=word)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "changed", "said"),
    [
        (RNN, {"halting": {"max_steps": 5 * 10**8}}, r"max_steps must be an integer in 1\.\.65535, got 500000000"),
        (RNN, {"model": {"hidden": 10**9}}, "must have the shape"),
        (MODEL, {"model": {"layers": 10**8}}, r"layers must be an integer in 1\.\.1000, got 100000000"),
        (PAIRS, {"model": {"layers": 10**8}}, r"layers must be an integer in 1\.\.1000, got 100000000"),
        (MODEL, {"model": {"vocabulary": 10**12}}, "must have the shape"),
    ],
)
def test_a_small_file_asks_for_no_large_network(model, changed, said: str, tmp_path: Path):
    """What it describes must be what it holds: that is known before anything is made of it."""

    class Described(Network):
        def to_json(self):
            found = super().to_json()
            return {part: {**values, **changed.get(part, {})} for part, values in found.items()}

    write_saved(tmp_path, Described(model, Halting(max_steps=4)), model.initial_parameters(1), {})
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=said):
            ponder_ref.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def write_old(folder: Path, arrays, config, update: int = 3) -> Path:
    """A run's checkpoint of before they described their network."""
    about = {"spec": "1", "task": "parity", "config": config, "update": update}
    content = checkpoint.Checkpoint({f"params.{name}": x for name, x in arrays.items()}, about)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoints" / checkpoint.file_name(update)
    path.write_bytes(checkpoint.to_bytes(content))
    return path


def test_every_bad_file_gets_a_sentence(tmp_path: Path):
    good, changed = RNN.initial_parameters(0), RNN.initial_parameters(0)
    changed["halt.b"] = np.zeros(1, np.int64)
    for number, (arrays, config, said) in enumerate(
        (
            (changed, {}, "halt.b must have a floating dtype, got int64"),
            ({"rnn.w_x": good["rnn.w_x"]}, {}, "the parameters are not those of a network that has rnn.w_x"),
            ({**good, "rnn.w_x": np.zeros(3)}, {}, "the parameters are not those of a network that has rnn.w_x"),
            ({**good, "output.b": np.zeros(())}, {}, "the parameters are not those of a network that has rnn.w_x"),
            (good, {"min_steps": "2"}, "the description of the network is not whole"),
        )
    ):
        write_old(tmp_path / str(number), arrays, config)
        with pytest.raises(ValueError, match=said):
            ponder_ref.load(tmp_path / str(number))
    tree: Any = None
    for _ in range(400):
        tree = {"list": [tree]}
    values = Network(Own("net.py:build"), Halting()).to_json()
    values["model"]["inputs"] = tree
    with pytest.raises(ValueError, match=r"inputs must be a tree|not whole"):
        network_of({"network": values}, {})
    with pytest.raises(ValueError, match=r"cannot read .*: file name too long"):
        ponder_ref.load(tmp_path / ("x" * 5000))


def test_which_file_of_a_folder(tmp_path: Path):
    """A damaged newest checkpoint names the good one before it; of two networks none is chosen in silence."""
    params = RNN.initial_parameters(0)
    first, last = write_old(tmp_path, params, {}, 1), write_old(tmp_path, params, {}, 2)
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=f"{last.name} is not a whole .*; the one before it is good: load .*{first.name}"
    ):
        ponder_ref.load(tmp_path)
    assert ponder_ref.load(first).step.settings == RNN
    write_saved(tmp_path, Network(RNN, Halting()), params, {})
    with pytest.raises(ValueError, match=r"holds two networks, model\.safetensors and the checkpoints of a run: name"):
        ponder_ref.load(tmp_path)
