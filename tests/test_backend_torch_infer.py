"""predict and stream in torch: what a user of them relies on, beyond what the judge asks (level infer)."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from infer_checks import (  # noqa: E402
    EXAMPLES,
    STEPS,
    WIDTH,
    check_failing_step,
    check_ids,
    check_lengths,
    check_module,
    check_shared_leaves,
    check_stream_of_module,
    inputs,
)
from stream_checks import (  # noqa: E402
    WRONG,
    check_bad_request,
    check_bad_value,
    check_few_buckets,
    check_first_of_two,
    check_reorder_buffer,
    check_silence,
)
from torch import nn  # noqa: E402

from ponder_torch import PonderNet, predict, stream, to_numpy  # noqa: E402
from ponder_torch.stream import Bucket  # noqa: E402


class Step(nn.Module):
    """A GRU with two heads; its halting logit is shifted by the input's first entry."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head, self.halt = nn.GRUCell(WIDTH, 6), nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.head(h), h, self.halt(h).squeeze(-1) + x[:, 0] - 1


def zeros(x):
    return x.new_zeros(len(x), 6)


def module(**options) -> PonderNet:
    return PonderNet(Step(), **{"max_steps": STEPS, "initial_state": zeros, **options})


def adding(x, h):
    """ŷ is n·x; it halts once n > 9 − x or so."""
    return h + x, h + x, torch.where(h + x > 20, 1e4, -1e4)


def summed(z):
    return SimpleNamespace(step=lambda x, h: (h + x, h + x, z(x)), start=lambda x: (x, x * 0), max_steps=STEPS)


def test_a_module_answers_as_its_unroll_would():
    check_module(module(), torch.from_numpy, to_numpy)


def test_with_an_encoder_the_step_sees_the_state_alone():
    torch.manual_seed(0)
    mix, encode = nn.Linear(6, 6), nn.Linear(WIDTH, 6)

    def step(h):
        h = torch.tanh(mix(h))
        return h, h, h[:, 0]

    check_module(PonderNet(step, max_steps=STEPS, encoder=encode), torch.from_numpy, to_numpy)


def test_each_row_is_computed_as_often_as_it_takes_steps():
    seen = []

    def step(x, h):
        seen.extend(x["id"].tolist())
        return h, h + 1, x["z"]

    x = {"id": torch.arange(EXAMPLES), "z": torch.linspace(-3, 1, EXAMPLES)}
    for slots in (1, 4, EXAMPLES):
        seen.clear()
        out = predict(step, x, torch.zeros(EXAMPLES), max_steps=40, seed=1, slots=slots)
        assert np.bincount(seen).tolist() == out.steps.tolist() and out.rows == len(seen) == int(out.steps.sum())
        assert (out.y_hat + 1 == out.steps).all() and int(out.steps.max()) == 40 > int(out.steps.min())


def test_the_projection_sees_each_example_of_a_stream_once():
    rows = []

    def project(x):
        rows.append(len(x))
        return x

    net = module(project=project)
    assert len(list(stream(net, inputs(), slots=8))) == EXAMPLES
    assert sum(rows) == EXAMPLES and max(rows) == 8


def test_a_stream_of_a_module_is_lazy_and_right():
    net = module()
    answers = check_stream_of_module(stream, net, to_numpy)
    want = net.predict(torch.from_numpy(inputs()), policy="quantile")
    assert [answer.steps for answer in answers] == want.steps.tolist()
    torch.testing.assert_close(torch.stack([answer.y_hat for answer in answers]), want.y_hat)
    assert torch.is_grad_enabled() and not answers[0].y_hat.requires_grad


def test_what_the_step_raises_is_passed_on():
    def z(x):
        if bool((x < 0).any()):
            raise FloatingPointError("a negative number")
        return x * 1e4

    check_failing_step(stream, summed(z), -1.0)


def test_examples_of_different_lengths():
    check_lengths(stream, summed(lambda x: x.sum(-1)), to_numpy)


def test_under_inference_mode_and_with_a_compiled_step():
    net = module()
    x = torch.from_numpy(inputs())
    want = net.predict(x, seed=2, slots=8)
    with torch.inference_mode():
        assert torch.equal(net.predict(x, seed=2, slots=8).steps, want.steps)
    fast = torch.compile(net.step, backend="eager", dynamic=True)
    got = predict(fast, x, zeros(x), max_steps=STEPS, seed=2, slots=8)
    assert torch.equal(got.steps, want.steps)


def test_more_steps_than_in_training_and_the_module_s_own_settings():
    net = module(epsilon=0.3, min_steps=3, remainder="normalize")
    x = torch.from_numpy(inputs())
    assert int(net.predict(x, policy="fixed", max_steps=2 * STEPS).steps.min()) == 2 * STEPS
    own, unroll = net.predict(x, policy="expected"), net(x)
    assert torch.equal(own.steps, unroll.lengths) and int(own.steps.min()) == 3
    torch.testing.assert_close(own.y_hat, (unroll.log_p.exp()[..., None] * unroll.y_hat).sum(0))


@pytest.mark.parametrize(("method", "steps"), [("repeat", STEPS), ("once", 1)])
def test_baselines_take_their_fixed_number_of_steps(method: str, steps: int):
    net = module(method=method)
    x = torch.from_numpy(inputs())
    got = net.predict(x)
    assert set(got.steps.tolist()) == {steps}
    torch.testing.assert_close(got.y_hat, net(x).y_hat[-1])
    with pytest.raises(ValueError, match='policy must be "fixed"'):
        net.predict(x, policy="sample")


def test_bad_calls():
    with pytest.raises(ValueError, match='got a module with method "act"'):
        module(method="act").predict(torch.from_numpy(inputs()))
    with pytest.raises(ValueError, match=r"state must have the examples as the first axis.*got shape \(2,\)"):
        predict(adding, torch.zeros(3), torch.zeros(2), max_steps=3)
    turning = {torch.float32: torch.float64, torch.float64: torch.float32}
    with pytest.raises(ValueError, match="state must keep its dtype: float64 became float32"):
        predict(lambda x, h: (x, h.to(turning[h.dtype]), x), torch.zeros(40), torch.zeros(40), max_steps=3, slots=3)


def test_answers_of_steps_that_were_not_taken_are_never_computed():
    """The whole batch is given at once, and yet a quick example's row is gone while a slow one goes on."""
    x = torch.tensor([1.0, 25.0, 11.0])
    out = predict(adding, x, torch.zeros(3), max_steps=30, slots=3)
    assert out.steps.tolist() == [21, 1, 2] and out.rows == 24
    assert out.y_hat.tolist() == [21.0, 25.0, 22.0]


def test_small_rows_leave_by_eighths_and_their_answers_are_the_same():
    x = {"z": torch.linspace(-5, 1, 400)}
    for policy in ("sample", "expected"):
        options = {"max_steps": 40, "seed": 4, "policy": policy}
        runs = [predict(lambda x, h: (h, h + 1, x["z"]), x, torch.zeros(400), slots=s, **options) for s in (None, 400)]
        assert torch.equal(runs[0].steps, runs[1].steps) and torch.equal(runs[0].y_hat, runs[1].y_hat)
        assert runs[1].rows == int(runs[1].steps.sum()) < runs[0].rows <= runs[1].rows * 8 / 7


def test_a_stream_refuses_what_belongs_to_no_example():
    start = lambda x: (x, (x * 0, torch.ones(3)))  # noqa: E731
    step = lambda x, h: (h[0], (h[0] + x * h[1].sum(), h[1]), x - 2)  # noqa: E731
    check_shared_leaves(stream, SimpleNamespace(step=step, start=start, max_steps=STEPS))


def test_ids_of_a_stream_begin_anew():
    check_ids(stream, summed(lambda x: x - 1))


@pytest.mark.parametrize("slots", [None, 2, 6])
def test_a_state_that_begins_as_nothing_is_refused(slots: int | None):
    step = lambda x, h: (x, x if h is None else h + x, x - 3)  # noqa: E731
    with pytest.raises(ValueError, match="state must keep its structure: None became an array"):
        predict(step, torch.arange(6.0), None, max_steps=4, slots=slots)


def test_a_state_in_the_dtype_of_the_step_whatever_the_slots():
    """h₀ is cast before the first step, for all examples: under autocast, say."""
    step = lambda x, h: (h.float() + x, (h.float() / 3 + x).bfloat16(), x - 2)  # noqa: E731
    x = torch.arange(6.0)
    answers = [predict(step, x, x / 7, max_steps=5, slots=slots, seed=1) for slots in (1, 2, 6, None)]
    assert all(torch.equal(one.y_hat, answers[0].y_hat) and torch.equal(one.steps, answers[0].steps) for one in answers)


def test_a_step_that_works_in_place_and_changes_the_dtype():
    step = lambda x, h: (h.add_(x), h.half(), x - 1e4)  # noqa: E731
    out = predict(step, torch.ones(3), torch.zeros(3), max_steps=3, policy="fixed")
    assert out.y_hat.tolist() == [3, 3, 3] and out.rows == 9


def test_ids_may_be_numpys_and_no_examples_are_named():
    model = summed(lambda x: x - 1)
    x = torch.arange(4.0)
    given = predict(model.step, x, x * 0, max_steps=4, example_ids=np.arange(4))
    assert torch.equal(given.steps, predict(model.step, x, x * 0, max_steps=4).steps)
    with pytest.raises(ValueError, match=r"x must have at least one example, got shape \(0,\)"):
        predict(model.step, x[:0], x[:0], max_steps=4)


def linear() -> SimpleNamespace:
    """A step of inputs with three numbers; the first decides how soon an example halts."""
    w = torch.linspace(-1, 1, 9).reshape(3, 3)

    def step(x, h):
        h = h + x @ w
        return h, h, h[:, 0]

    return SimpleNamespace(step=step, start=lambda x: (x, x @ w * 0), max_steps=STEPS)


@pytest.mark.parametrize("wrong", WRONG)
def test_examples_before_a_bad_request_are_answered(wrong: str):
    check_bad_request(stream, linear(), WRONG[wrong])


def test_the_first_of_two_bad_requests_is_named():
    check_first_of_two(stream, linear())


def test_a_slow_example_does_not_fill_the_memory_with_those_behind_it():
    check_reorder_buffer(stream, summed(lambda x: x))


def test_shapes_that_come_no_more_are_forgotten():
    check_few_buckets(stream, summed(lambda x: x[:, 0]), Bucket)


def test_an_idle_stream_rests(monkeypatch: pytest.MonkeyPatch):
    check_silence(stream, summed(lambda x: x), monkeypatch)


def test_examples_beside_a_bad_value_are_answered():
    def z(x):
        if bool((x > 1e6).any()):
            raise FloatingPointError("too large a number")
        return x

    check_bad_value(stream, summed(z))


def test_the_unroll_refuses_a_state_that_loses_rows():
    x = torch.ones(4, 2)
    for options in ({}, {"epsilon": 0.1}, {"method": "act"}):
        net = PonderNet(lambda x, h: (x, h[:1], x[:, 0]), max_steps=3, initial_state=zeros, **options)
        with pytest.raises(ValueError, match=r"state must keep its rows: shape \(4, 6\) became \(1, 6\)"):
            net(x)
    again = PonderNet(
        lambda x, h: (x, {"n": h["n"] + 1, "h": h["h"]}, x[:, 0]),
        max_steps=3,
        initial_state=lambda x: {"h": zeros(x), "n": torch.zeros(())},
    )
    assert again(x).state["n"] == 3  # the order of a dict is of no meaning


@pytest.mark.parametrize("batch", [1, 2, 4, 6])
def test_a_history_that_grows_along_its_first_axis_is_no_loss_of_rows(batch: int):
    """Also where it has just as many entries as the batch has examples."""
    net = PonderNet(
        lambda x, h: (x, torch.cat([h, x[None]]), x[:, 0]),
        max_steps=6,
        initial_state=lambda x: x.new_zeros(1, *x.shape),
    )
    assert net(torch.ones(batch, 2)).state.shape == (7, batch, 2)
