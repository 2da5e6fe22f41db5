"""What both backends' tests of predict and stream share: networks, data, and comparisons in NumPy."""

from itertools import count, islice

import numpy as np
import pytest

import ponder_ref
from ponder_ref.conformance.compare import tolerance
from ponder_ref.sampling import uniforms_at

EXAMPLES, WIDTH, STEPS = 37, 4, 9


def inputs(seed: int = 0) -> np.ndarray:
    """Examples whose first entry decides how soon they halt."""
    x = np.random.default_rng(seed).normal(size=(EXAMPLES, WIDTH))
    x[:, 0] = np.linspace(-3.0, 2.0, EXAMPLES)
    return x.astype(np.float32)


def near_ties(lambdas: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
    """Which examples have a uniform so near to its λ, `[N, examples]`, that rounding may decide (I5)."""
    entry = tolerance("loss", "float32")
    u = uniforms_at(seed, ids, np.arange(1, len(lambdas) + 1)[:, None])
    return (np.abs(u - lambdas) <= entry["atol"] + entry["rtol"]).any(axis=0)


def check_module(net, to_backend, to_numpy) -> None:
    """A module's answers for several numbers of slots: those of its own unroll at the steps that its λ draw."""
    x = inputs()
    out = net(to_backend(x))
    lambdas = 1 / (1 + np.exp(-to_numpy(out.halt_logits).astype(np.float64)))
    want = ponder_ref.draw_steps(lambdas, 5, np.arange(EXAMPLES))
    clear = ~near_ties(lambdas, 5, np.arange(EXAMPLES))
    assert clear.sum() >= EXAMPLES - 1 and len(set(want)) > 4
    picked = to_numpy(out.y_hat)[want - 1, np.arange(EXAMPLES)]
    for slots in (None, 5):
        got = net.predict(to_backend(x), seed=5, slots=slots)
        np.testing.assert_array_equal(to_numpy(got.steps)[clear], want[clear])
        np.testing.assert_allclose(to_numpy(got.y_hat)[clear], picked[clear], rtol=1e-5, atol=1e-5)
        assert want.sum() - 1 <= int(got.rows) < STEPS * EXAMPLES


def check_stream_of_module(stream, net, to_numpy) -> None:
    """A stream gives what predict gives, from an endless iterator of which it takes no more than it needs."""
    x = inputs()
    taken = []

    def endless():
        for k in count():
            taken.append(k)
            yield x[k % EXAMPLES]

    answers = list(islice(stream(net, endless(), slots=6, ordered=True, policy="quantile"), EXAMPLES))
    assert [answer.index for answer in answers] == list(range(EXAMPLES))
    assert len(taken) <= EXAMPLES + 6 * STEPS
    return answers


def check_failing_step(stream, model, fails) -> None:
    """What the step raises comes through, after the examples before it; `fails` are values it cannot bear."""
    examples = [np.float32(value) for value in (5.0, 5.0, 5.0, fails, 5.0)]
    answers = []
    try:
        for answer in stream(model, examples, slots=2, ordered=True):
            answers.append(answer.index)
    except FloatingPointError:
        assert answers == [0, 1, 2]
    else:
        raise AssertionError(f"the exception of the step was lost after answers {answers}")


def check_lengths(stream, model, to_numpy) -> None:
    """Examples of different lengths: computed by shape, answered in order."""
    rng = np.random.default_rng(3)
    examples = [rng.normal(size=(int(length),)).astype(np.float32) for length in rng.integers(1, 4, 20)]
    answers = list(stream(model, examples, slots=5, ordered=True, policy="fixed", max_steps=3))
    assert [answer.index for answer in answers] == list(range(20))
    for answer, example in zip(answers, examples, strict=True):
        np.testing.assert_allclose(to_numpy(answer.y_hat), 3 * example, rtol=1e-6)


def check_shared_leaves(stream, model) -> None:
    """A part of the state that belongs to no example is refused by a stream, as by predict."""
    with pytest.raises(ValueError, match="state must have the examples as the first axis"):
        list(stream(model, [np.float32(k) for k in range(4)], slots=3))


def check_ids(stream, model) -> None:
    """Ids count on beyond 2³², where they begin anew."""
    examples = [np.float32(k) for k in range(4)]
    steps = [[answer.steps for answer in stream(model, examples, first_id=k, ordered=True)] for k in (3, 2**32 + 3)]
    assert (
        steps[0] == steps[1] == [answer.steps for answer in stream(model, examples, first_id=2**64 + 3, ordered=True)]
    )
