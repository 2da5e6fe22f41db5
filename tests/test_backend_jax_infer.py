"""predict and stream in JAX: what a user of them relies on, beyond what the judge asks (level infer)."""

from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402
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
    check_few_buckets,
    check_first_of_two,
    check_reorder_buffer,
    check_silence,
)

from ponder_jax import PonderNet, predict, stream, to_numpy  # noqa: E402
from ponder_jax.stream import Bucket  # noqa: E402


class Step(nnx.Module):
    """A GRU with two heads and dropout; its halting logit is shifted by the input's first entry."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.cell = nnx.GRUCell(WIDTH, 6, rngs=rngs)
        self.head, self.halt = nnx.Linear(6, 3, rngs=rngs), nnx.Linear(6, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, h):
        h, _ = self.cell(h, x)
        h = self.dropout(h)
        return self.head(h), h, self.halt(h).squeeze(-1) + x[:, 0] - 1


def zeros(x):
    return jnp.zeros((len(x), 6), x.dtype)


def module(**options) -> PonderNet:
    net = PonderNet(Step(), **{"max_steps": STEPS, "initial_state": zeros, **options})
    net.eval()
    return net


def summed(z):
    return SimpleNamespace(step=lambda x, h: (h + x, h + x, z(x)), start=lambda x: (x, x * 0), max_steps=STEPS)


def test_a_module_answers_as_its_unroll_would():
    check_module(module(), jnp.asarray, to_numpy)


def test_with_an_encoder_the_step_sees_the_state_alone():
    class FromState(nnx.Module):
        def __init__(self):
            self.mix = nnx.Linear(6, 6, rngs=nnx.Rngs(2))

        def __call__(self, h):
            h = jnp.tanh(self.mix(h))
            return h, h, h[:, 0]

    encode = nnx.Linear(WIDTH, 6, rngs=nnx.Rngs(3))
    check_module(PonderNet(FromState(), max_steps=STEPS, encoder=encode), jnp.asarray, to_numpy)


def test_nothing_is_compiled_again_for_another_seed_or_limit_or_after_an_update():
    traces = []

    def step(params, x, h):
        traces.append(1)
        return h + params, h + 1, x

    x = jnp.linspace(-3, 1, EXAMPLES)
    own = jax.tree_util.Partial(step, jnp.float32(0.0))
    first = predict(own, x, jnp.zeros(EXAMPLES), max_steps=40, seed=1, slots=5)
    traced = len(traces)
    for seed, draw, limit in ((2, 0, 40), (2**64 - 1, 7, 40), (1, 0, 12)):
        predict(own, x, jnp.zeros(EXAMPLES), max_steps=limit, seed=seed, draw=draw, slots=5)
    other = jax.tree_util.Partial(step, jnp.float32(0.5))
    second = predict(other, x, jnp.zeros(EXAMPLES), max_steps=40, seed=1, slots=5)
    assert len(traces) == traced > 0
    np.testing.assert_array_equal(second.y_hat, first.y_hat + 0.5)


def test_rows_are_the_steps_taken_and_few_idle_ones():
    x, step = jnp.linspace(-3, 1, 200), lambda x, h: (h, h + 1, x)
    out = predict(step, x, jnp.zeros(200), max_steps=40, seed=1, slots=32)
    needed = int(out.steps.sum())
    np.testing.assert_array_equal(out.y_hat + 1, out.steps)
    assert needed <= int(out.rows) < needed + 32 * 40 * 0.75  # the last quarter has narrower slots


def test_a_module_that_has_learnt_answers_anew():
    net, x = module(), jnp.asarray(inputs())
    before = net.predict(x, policy="fixed", slots=5)
    net.step.head.bias[...] = net.step.head.bias[...] + 1
    np.testing.assert_allclose(net.predict(x, policy="fixed", slots=5).y_hat, before.y_hat + 1, rtol=1e-5)


def test_a_stream_of_a_module_is_lazy_and_right():
    net = module()
    answers = check_stream_of_module(stream, net, to_numpy)
    want = net.predict(jnp.asarray(inputs()), policy="quantile")
    np.testing.assert_array_equal([answer.steps for answer in answers], want.steps)
    np.testing.assert_allclose(np.stack([answer.y_hat for answer in answers]), want.y_hat, rtol=1e-4, atol=1e-5)


def test_what_the_model_raises_is_passed_on():
    """Compiled code raises nothing; the model's own `start` may, when it meets a shape that it does not know."""

    def start(x):
        if x["kind"].shape[-1] > 1:
            raise FloatingPointError("a shape that was not expected")
        return x["value"], x["value"] * 0

    model = SimpleNamespace(step=lambda x, h: (h + x, h + x, x * 1e4), start=start, max_steps=STEPS)

    def tagged(model, examples, **options):
        given = ({"value": v, "kind": np.zeros(1 if v > 0 else 2, np.float32)} for v in examples)
        return stream(model, given, **options)

    check_failing_step(tagged, model, -1.0)


def test_examples_of_different_lengths():
    check_lengths(stream, summed(lambda x: x.sum(-1)), to_numpy)


def test_inside_jit():
    net, x = module(), jnp.asarray(inputs())
    want = net.predict(x, seed=2, slots=8)
    got = jax.jit(lambda x, h: predict(net.functions()[1], x, h, max_steps=STEPS, seed=2, slots=8))(x, zeros(x))
    np.testing.assert_array_equal(got.steps, want.steps)


def test_more_steps_than_in_training_and_the_module_s_own_settings():
    net = module(epsilon=0.3, min_steps=3, remainder="normalize")
    x = jnp.asarray(inputs())
    assert int(net.predict(x, policy="fixed", max_steps=2 * STEPS, slots=5).steps.min()) == 2 * STEPS
    own, unroll = net.predict(x, policy="expected"), net(x)
    np.testing.assert_array_equal(own.steps, unroll.lengths)
    assert int(own.steps.min()) == 3
    np.testing.assert_allclose(own.y_hat, (jnp.exp(unroll.log_p)[..., None] * unroll.y_hat).sum(0), rtol=1e-4)


@pytest.mark.parametrize(("method", "steps"), [("repeat", STEPS), ("once", 1)])
def test_baselines_take_their_fixed_number_of_steps(method: str, steps: int):
    net = module(method=method)
    x = jnp.asarray(inputs())
    got = net.predict(x, slots=5)
    assert set(got.steps.tolist()) == {steps}
    np.testing.assert_allclose(got.y_hat, net(x).y_hat[-1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match='policy must be "fixed"'):
        net.predict(x, policy="sample")


def test_bad_calls():
    with pytest.raises(ValueError, match='got a module with method "act"'):
        module(method="act").predict(jnp.asarray(inputs()))
    with pytest.raises(ValueError, match=r"state must have the examples as the first axis.*got shape \(2,\)"):
        predict(lambda x, h: (x, h, x), jnp.zeros(3), jnp.zeros(2), max_steps=3)
    with pytest.raises(ValueError, match="state must keep its shape"):
        predict(lambda x, h: (x, jnp.stack([h, h], 1), x), jnp.zeros(4), jnp.zeros(4), max_steps=3)


def test_a_stream_refuses_what_belongs_to_no_example():
    start = lambda x: (x, (x * 0, jnp.ones(3)))  # noqa: E731
    step = lambda x, h: (h[0], (h[0] + x * h[1].sum(), h[1]), x - 2)  # noqa: E731
    check_shared_leaves(stream, SimpleNamespace(step=step, start=start, max_steps=STEPS))


def test_ids_of_a_stream_begin_anew():
    check_ids(stream, summed(lambda x: x - 1))


def test_a_module_in_training_mode_draws_and_is_left_as_it_was():
    net = PonderNet(Step(), max_steps=STEPS, initial_state=zeros)
    before = counts_of(net)
    net.predict(jnp.asarray(inputs()), seed=5)
    list(stream(net, list(inputs()[:3]), slots=2))
    assert before and before == counts_of(net)
    net(jnp.asarray(inputs()))
    assert before != counts_of(net)


def counts_of(net) -> list[int]:
    """The counts of the random numbers that were drawn."""
    state = nnx.filter_state(nnx.state(net), nnx.RngCount)
    return [int(variable[...]) for _, variable in nnx.to_flat_state(state)]


def linear() -> SimpleNamespace:
    """A step of inputs with three numbers; the first decides how soon an example halts."""
    w = jnp.linspace(-1, 1, 9).reshape(3, 3)

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
