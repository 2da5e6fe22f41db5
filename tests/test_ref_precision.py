"""The NumPy reference against 50-digit arithmetic and against its own complex steps, and what it says of bad values."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ponder_ref
from ponder_ref import gradients
from scripts.measure_errors import LOGITS, exact_log_halting, exact_loss

REMAINDERS = ("last", "normalize")
RTOL, GRADIENT_RTOL = 1e-12, 1e-10
# log p and a KL that are nearly 0 are differences of numbers near 1, known to a few units in the last place of 1.
ATOL = 1e-14
BETA = 0.25


def problem(make) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits and losses `[N, B]`, and a prior `[N]`."""
    z = make()
    losses = np.random.default_rng(6).normal(size=z.shape) + np.linspace(0, 2, len(z))[:, None]
    return z, losses, ponder_ref.geometric_log_prior(0.3, len(z), dtype="float64")


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("make", LOGITS.values(), ids=LOGITS)
def test_log_halting_has_twelve_digits(make, remainder: str):
    z = make()
    np.testing.assert_allclose(
        ponder_ref.log_halting(z, remainder=remainder), exact_log_halting(z, remainder), rtol=RTOL, atol=ATOL
    )


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_log_halting_from_lambdas_has_twelve_digits(remainder: str):
    # λ that float64 holds exactly, as its logit is not: compared through exact powers of 2 instead of logits.
    lam = np.array([2.0**-k for k in (1, 2, 30, 500, 1)])
    got = ponder_ref.log_halting_from_lambdas(lam, remainder=remainder)
    left = np.log1p(-lam).cumsum()
    want = np.log(lam) + np.append(0, left[:-1])
    if remainder == "last":
        want[-1] = left[-2]
    else:
        want -= np.log1p(-np.exp(left[-1]))
    np.testing.assert_allclose(got, want, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("make", LOGITS.values(), ids=LOGITS)
def test_the_loss_has_twelve_digits(make, remainder: str):
    z, losses, prior = problem(make)
    log_p = ponder_ref.log_halting(z, remainder=remainder)
    truth = exact_loss(z, losses, prior, BETA, remainder)
    got = ponder_ref.ponder_loss(log_p, losses, prior, beta=BETA).loss
    assert abs(got - truth.loss) <= RTOL * truth.size + ATOL


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("make", LOGITS.values(), ids=LOGITS)
def test_analytic_gradients_have_ten_digits(make, remainder: str):
    z, losses, prior = problem(make)
    truth = exact_loss(z, losses, prior, BETA, remainder)
    by_logits, by_losses = gradients.ponder_loss_gradients(z, losses, prior, beta=BETA, remainder=remainder)
    off = np.abs(by_logits - truth.by_logits)
    assert off.max() <= GRADIENT_RTOL * np.abs(truth.by_logits).max()
    # Column by column, too: where the terms of an example cancel, its gradient is known to their rounding only.
    allowed = GRADIENT_RTOL * np.abs(truth.by_logits).max(axis=0) + 1e-15 * truth.noise.max(axis=0) + 1e-300
    assert (off <= allowed).all()
    np.testing.assert_allclose(by_losses, truth.by_losses, rtol=GRADIENT_RTOL, atol=1e-300)


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_noise_is_the_sum_of_magnitudes(remainder: str):
    z, losses, prior = problem(LOGITS["a thousand steps"])
    truth = exact_loss(z, losses, prior, BETA, remainder)
    noise, _ = gradients.ponder_loss_gradients(z, losses, prior, beta=BETA, remainder=remainder, magnitudes=True)
    np.testing.assert_allclose(noise, truth.noise, rtol=GRADIENT_RTOL, atol=1e-300)


@st.composite
def problems(draw):
    """Logits, losses, prior, lengths, weights and options of random shapes."""
    steps = draw(st.integers(1, 5))
    batch = draw(st.sampled_from(((), (1,), (3,), (2, 2))))
    numbers = st.floats(-20, 20, width=32)
    z, losses = (draw(hnp.arrays(np.float64, (steps, *batch), elements=numbers)) for _ in range(2))
    prior = draw(hnp.arrays(np.float64, (steps,), elements=st.floats(-6, 0, width=32)))
    lengths = draw(st.none() | hnp.arrays(np.int64, batch, elements=st.integers(1, steps)))
    weights = draw(st.none() | hnp.arrays(np.float64, batch, elements=st.sampled_from((0.0, 0.5, 2.0))))
    if weights is not None and weights.sum() == 0:
        weights = None
    return z, losses, prior, lengths, weights, draw(st.sampled_from(REMAINDERS)), draw(st.sampled_from((0.01, 1.0)))


@settings(max_examples=150)
@given(problems())
def test_analytic_gradients_are_those_of_complex_steps(made):
    z, losses, prior, lengths, weights, remainder, beta = made

    def loss(logits, costs):
        log_p = ponder_ref.log_halting(logits, remainder=remainder, lengths=lengths)
        return ponder_ref.ponder_loss(log_p, costs, prior, beta=beta, weights=weights).loss

    kwargs = {"beta": beta, "remainder": remainder, "lengths": lengths, "weights": weights}
    analytic = gradients.ponder_loss_gradients(z, losses, prior, **kwargs)
    scales = gradients.ponder_loss_gradients(z, losses, prior, **kwargs, magnitudes=True)
    _, stepped = ponder_ref.value_and_grad(loss, z, losses)
    for one, other, scale in zip(analytic, stepped, scales, strict=True):
        assert (np.abs(one - other) <= GRADIENT_RTOL * np.abs(one) + 1e-13 * scale + 1e-290).all()


@settings(max_examples=80)
@given(st.data())
def test_act_gradients_are_those_of_complex_steps(data):
    steps, batch = data.draw(st.integers(1, 6)), data.draw(st.sampled_from(((), (3,))))
    lam = data.draw(hnp.arrays(np.float64, (steps, *batch), elements=st.floats(0.015625, 0.625, width=32)))
    by_weight, by_remainder = (
        data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-8, 8, width=32)))
        for shape in ((steps, *batch), batch)
    )

    def objective(lambdas):
        made = ponder_ref.act_halting(lambdas, epsilon=0.05)
        return (by_weight * made.weights).sum() + (by_remainder * made.remainder).sum()

    _, (stepped,) = ponder_ref.value_and_grad(objective, lam)
    analytic = gradients.act_gradient(lam, by_weight, by_remainder, epsilon=0.05)
    np.testing.assert_allclose(stepped, analytic, rtol=GRADIENT_RTOL, atol=1e-13)


def test_nan_logits_are_reported():
    with pytest.warns(ponder_ref.ValueWarning, match=r"halt_logits: 1 of 6 values are NaN, first at \(1, 0\)"):
        ponder_ref.log_halting(np.array([[0.0, 1.0], [np.nan, 0.0], [0.0, 0.0]]))


def test_nan_logits_that_nothing_uses_are_not_reported():
    z = np.array([0.0, 1.0, np.nan, np.nan])  # warnings are errors here
    assert np.isfinite(ponder_ref.log_halting(z[:3])).all()
    assert np.isfinite(ponder_ref.log_halting(z, remainder="normalize", lengths=np.array(2))[:2]).all()


@pytest.mark.parametrize("bad", [-0.25, 1.5, np.nan, np.inf])
def test_lambdas_outside_the_interval_are_reported(bad: float):
    with pytest.warns(ponder_ref.ValueWarning, match=r"lambdas: 1 of 3 values are outside \[0, 1\]"):
        ponder_ref.log_halting_from_lambdas(np.array([bad, 0.5, 0.5]))


def test_both_ends_of_the_interval_are_legal():
    log_p = ponder_ref.log_halting_from_lambdas(np.array([0.0, 1.0, 0.5]))
    np.testing.assert_array_equal(log_p, [-np.inf, 0.0, -np.inf])


@pytest.mark.parametrize(
    "weights", [np.zeros(2), np.zeros(2, bool), np.array([1.0, -1.0]), np.array([-1.0, 3.0]), np.array([-1.0, -1.0])]
)
def test_weights_without_a_mean_are_refused(weights: np.ndarray):
    pattern = "weights must be non-negative with a positive sum"
    with pytest.raises(ValueError, match=pattern):
        ponder_ref.weighted_mean(np.array([1.0, 2.0]), weights)
    with pytest.raises(ValueError, match=pattern):
        ponder_ref.ponder_loss(
            np.log(np.full((2, 2), 0.5)), np.ones((2, 2)), np.log([0.5, 0.5]), beta=0.1, weights=weights
        )


@pytest.mark.parametrize(("lengths", "range_"), [([0, 1], "0..1"), ([3, 4], "3..4"), ([-1, 9], "-1..9")])
@pytest.mark.parametrize("function", ["log_halting", "log_halting_from_lambdas", "sample_steps"])
def test_lengths_outside_the_steps_are_refused(function: str, lengths: list[int], range_: str):
    array = np.full((3, 2), 0.5)
    args = (array, array) if function == "sample_steps" else (array,)
    with pytest.raises(ValueError, match=re.escape(f"lengths must lie in 1..3, got {range_}")):
        getattr(ponder_ref, function)(*args, lengths=np.array(lengths))
