"""Metrics against sums written out by hand, example by example."""

import json
import math

import numpy as np
import pytest

import ponder_ref
from ponder_ref.runtime.settings import Halting
from tasks import summary
from tasks.metrics import TRAIN_KEYS, Tally, Window, bands, median_steps, score_answers, sigmoid
from tasks.parity import Parity

N, B = 4, 7


def case(seed: int = 0):
    rng = np.random.default_rng(seed)
    y_hat, z = rng.standard_normal((N, B)), rng.standard_normal((N, B))
    return y_hat, z, rng.integers(0, 2, B), rng.integers(0, 1000, B), rng.integers(1, 4, B)


def by_hand(y_hat, z, targets):
    """p, correct and losses as nested lists, by plain arithmetic ("last")."""
    p = np.zeros((N, B))
    for i in range(B):
        left = 1.0
        for n in range(N):
            lam = 1 / (1 + math.exp(-z[n, i]))
            p[n, i] = left * lam if n < N - 1 else left
            left *= 1 - lam
    correct = (y_hat > 0) == (targets == 1)
    chance = 1 / (1 + np.exp(-y_hat))
    return p, correct, -np.log(np.where(targets == 1, chance, 1 - chance))


def test_ponder_metrics_are_expectations():
    y_hat, z, targets, ids, difficulty = case()
    method = Halting(max_steps=N, lambda_p=0.3, beta=0.5)
    tally = Tally(method, "binary", seed=5, draws=3)
    tally.add(y_hat, z, targets, ids, difficulty)
    got = tally.result()
    p, correct, losses = by_hand(y_hat, z, targets)
    prior = 0.3 * 0.7 ** np.arange(N) / (1 - 0.7**N)
    kl = (p * np.log(p / prior[:, None])).sum(axis=0)
    assert got["accuracy"] == pytest.approx((p * correct).sum() / B, rel=1e-12)
    assert got["accuracy_error"] == pytest.approx((p * correct).sum(axis=0).std() / B**0.5, rel=1e-12)
    assert got["expected_steps"] == pytest.approx((p * np.arange(1, N + 1)[:, None]).sum() / B, rel=1e-12)
    assert got["loss_rec"] == pytest.approx((p * losses).sum() / B, rel=1e-12)
    assert got["loss_reg"] == pytest.approx(kl.mean(), rel=1e-12)
    assert got["loss"] == pytest.approx((p * losses).sum() / B + 0.5 * kl.mean(), rel=1e-12)
    assert got["step_accuracy"] == pytest.approx(correct.mean(axis=1), abs=1e-6)
    assert got["step_share"] == pytest.approx(p.mean(axis=1), abs=1e-6)
    assert (got["examples"], got["draws"]) == (B, 3)
    for level, count, accuracy, steps in got["levels"]:
        of = difficulty == level
        assert count == of.sum()
        assert accuracy == pytest.approx((p * correct)[:, of].sum() / count, abs=1e-6)
        assert steps == pytest.approx((p * np.arange(1, N + 1)[:, None])[:, of].sum() / count, abs=1e-6)


def test_the_standard_error_that_is_shown_is_that_of_the_expectation():
    """Every example right with chance 1/2 has an expected accuracy of 1/2 each time: there is nothing to err about."""
    tally = Tally(Halting(max_steps=2), "binary", seed=0)
    tally.add(np.array([[1.0] * B, [-1.0] * B]), np.zeros((2, B)), np.ones(B), np.arange(B), np.ones(B, int))
    record = {"split": "test", **tally.result()}
    assert (record["accuracy"], record["accuracy_error"]) == (0.5, 0.0)
    task = Parity(Parity.Config())
    accuracy, steps = summary.of_record(record, task)[1:3]
    assert "0.5000 expected (standard error 0.0000)" in accuracy and accuracy.endswith("1.0000 at the median step")
    assert steps.endswith("1.000 median")
    for name in ("accuracy_error", "median_accuracy", "median_steps", "median_levels"):  # as it was once
        del record[name]
    accuracy, steps = summary.of_record(record, task)[1:3]
    assert f"standard error {0.5 / B**0.5:.4f}" in accuracy and accuracy.endswith("sampled") and "median" not in steps


def test_sampled_metrics_use_the_steps_of_the_standard():
    y_hat, z, targets, ids, difficulty = case(1)
    tally = Tally(Halting(max_steps=N), "binary", seed=9, draws=2)
    tally.add(y_hat, z, targets, ids, difficulty)
    steps, right = [], []
    for draw in range(2):
        uniforms = ponder_ref.halting_uniforms(9, ids, max_steps=N, draw=draw)
        for i in range(B):
            halts = [n for n in range(1, N) if uniforms[n - 1, i] < 1 / (1 + math.exp(-z[n - 1, i]))]
            n = halts[0] if halts else N
            steps.append(n)
            right.append((y_hat[n - 1, i] > 0) == (targets[i] == 1))
    assert tally.result()["sampled_steps"] == pytest.approx(np.mean(steps), rel=1e-12)
    assert tally.result()["sampled_accuracy"] == pytest.approx(np.mean(right), rel=1e-12)


def walk(z: np.ndarray):
    """A step network, its input and first state, whose halting logits are the columns of z."""

    def step(state):
        n, column = int(state[0, 0]), int(state[0, 1])
        return np.zeros(1), state + np.array([[1, 0]]), z[n, column][None]

    return step, None, np.stack([np.zeros(z.shape[1]), np.arange(z.shape[1])], axis=1)


def test_the_median_step_is_reached_where_exactly_half_is_done_and_never_by_nan():
    z = np.array([[0.0, -3.0, np.nan, 9.0], [0.0, np.nan, 9.0, np.nan], [9.0, 9.0, 9.0, 9.0], [9.0] * 4])
    assert median_steps(z).tolist() == [1, 4, 4, 1]
    assert ponder_ref.predict(*walk(z), max_steps=N, policy="quantile", q=0.5).steps.tolist() == [1, 4, 4, 1]


def test_rows_by_difficulty_are_plain_numbers_rounded_as_python_does():
    tally = Tally(Halting(method="once", max_steps=1), "binary", seed=0)
    right = np.arange(640) == 0
    tally.add(np.ones((1, 640)), np.zeros((1, 640)), right.astype(float), np.arange(640), np.ones(640, int))
    for name in ("levels", "median_levels"):
        rows = tally.result()[name]
        assert rows == [[1, 640, 0.001563, 1.0]] and [type(x) for x in rows[0]] == [int, int, float, float]


@pytest.mark.parametrize("remainder", ["last", "normalize"])
def test_median_metrics_are_of_the_first_step_that_half_of_the_mass_has_left_by(remainder: str):
    """Whatever the remainder: all mass after N is N's, as where `predict` leaves with policy="quantile"."""
    y_hat, z, targets, ids, difficulty = (np.tile(x, 40) for x in case(6))
    z = z - np.repeat(np.arange(40) / 8, B)  # of late halting, where "normalize" would have another median
    tally = Tally(Halting(max_steps=N, remainder=remainder), "binary", seed=9)
    tally.add(y_hat, z, targets, ids, difficulty)
    steps, right = [], []
    for i in range(len(targets)):
        left, n = 1.0, 0
        while n < N - 1 and left > 0.5:
            left *= 1 - 1 / (1 + math.exp(-z[n, i]))
            n += 1
        n = n if left <= 0.5 else N
        steps.append(n)
        right.append((y_hat[n - 1, i] > 0) == (targets[i] == 1))
    got, of = tally.result(), difficulty == 2
    assert got["median_steps"] == np.mean(steps) and got["median_accuracy"] == np.mean(right)
    assert set(steps) == {1, 2, 3, 4} and got["median_steps"] != got["expected_steps"]
    left = ponder_ref.predict(*walk(z), max_steps=N, policy="quantile", q=0.5)
    assert np.array_equal(left.steps, steps)
    row = next(row for row in got["median_levels"] if row[0] == 2)
    assert row[1:] == [of.sum(), *(pytest.approx(np.mean(np.array(x)[of]), abs=1e-6) for x in (right, steps))]


def test_many_draws_approach_the_expectation():
    y_hat, z, targets, _, _ = (np.repeat(x, 500, axis=-1) for x in case(2))
    tally = Tally(Halting(max_steps=N), "binary", seed=0, draws=4)
    tally.add(y_hat, z, targets, np.arange(targets.size), targets)
    got = tally.result()
    assert got["sampled_accuracy"] == pytest.approx(got["accuracy"], abs=0.02)
    assert got["sampled_steps"] == pytest.approx(got["expected_steps"], abs=0.04)


def test_act_metrics_are_of_the_weighted_output():
    y_hat, z, targets, ids, difficulty = case(3)
    tally = Tally(Halting(method="act", max_steps=N, tau=0.1), "binary", seed=0)
    tally.add(y_hat, z, targets, ids, difficulty)
    steps, right, costs = [], [], []
    for i in range(B):
        total, output = 0.0, 0.0
        for n in range(1, N + 1):
            lam = 1 / (1 + math.exp(-z[n - 1, i]))
            if total + lam >= 0.99 or n == N:
                output += (1 - total) * y_hat[n - 1, i]
                steps.append(n)
                costs.append(n + 1 - total)
                break
            total += lam
            output += lam * y_hat[n - 1, i]
        right.append((output > 0) == (targets[i] == 1))
    got = tally.result()
    assert got["accuracy"] == got["sampled_accuracy"] == got["median_accuracy"] == pytest.approx(np.mean(right))
    assert got["expected_steps"] == got["sampled_steps"] == got["median_steps"] == pytest.approx(np.mean(steps))
    assert got["levels"] == got["median_levels"]
    assert got["loss_reg"] == pytest.approx(np.mean(costs))
    assert got["loss"] == pytest.approx(got["loss_rec"] + 0.1 * np.mean(costs))
    assert got["draws"] == 0


@pytest.mark.parametrize("name", ["repeat", "once"])
def test_fixed_methods_answer_with_the_last_step(name: str):
    y_hat, z, targets, ids, difficulty = case(4)
    tally = Tally(Halting(method=name, max_steps=N), "binary", seed=0)
    tally.add(y_hat, z, targets, ids, difficulty)
    got = tally.result()
    assert got["accuracy"] == pytest.approx(((y_hat[-1] > 0) == (targets == 1)).mean())
    assert got["accuracy_error"] == pytest.approx((got["accuracy"] * (1 - got["accuracy"]) / B) ** 0.5)  # a coin's
    assert got["expected_steps"] == N
    assert got["loss"] == got["loss_rec"]


def test_batches_add_up():
    y_hat, z, targets, ids, difficulty = case(5)
    whole, parts = (Tally(Halting(max_steps=N), "binary", seed=1) for _ in range(2))
    whole.add(y_hat, z, targets, ids, difficulty)
    for of in (slice(0, 3), slice(3, B)):
        parts.add(y_hat[:, of], z[:, of], targets[of], ids[of], difficulty[of])
    one, other = whole.result(), parts.result()
    assert one.keys() == other.keys()
    for name in one:
        assert np.allclose(one[name], other[name], rtol=1e-12, atol=1e-12)


def test_classes_are_scored_by_the_largest():
    y_hat = np.log(np.array([[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]]))
    correct, losses = score_answers(y_hat, np.array([0, 1]), "classes")
    assert correct.tolist() == [[1, 0]]
    assert losses == pytest.approx(-np.log([[0.7, 0.3]]))


def test_a_logit_of_zero_answers_zero():
    correct, _ = score_answers(np.zeros((1, 2)), np.array([0, 1]), "binary")
    assert correct.tolist() == [[1, 0]]


def test_sigmoid_is_accurate_at_both_ends():
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]
    assert sigmoid(np.array(-40.0)) == pytest.approx(math.exp(-40), rel=1e-15)


def test_bands_join_levels():
    levels = [[1, 2, 1.0, 1.0], [4, 2, 0.5, 2.0], [5, 1, 1.0, 3.0], [40, 4, 0.5, 8.0]]
    assert bands(levels) == [("1-4", 4, 0.75, 1.5), ("5", 1, 1.0, 3.0), ("40", 4, 0.5, 8.0)]


def test_windows_do_not_depend_on_the_chunking_and_survive_json():
    rng = np.random.default_rng(0)
    metrics = {name: rng.random(10) for name in TRAIN_KEYS} | {"steps_run": np.arange(10)}
    whole, parts = Window(), Window()
    whole.add(metrics)
    for of in (slice(0, 1), slice(1, 7)):
        parts.add({name: values[of] for name, values in metrics.items()})
    parts = Window(**json.loads(json.dumps(parts.to_json(), sort_keys=True)))
    parts.add({name: values[7:] for name, values in metrics.items()})
    closed = whole.close()
    assert list(closed.items()) == list(parts.close().items())
    assert closed["forward_passes"] == 45
    assert closed["loss"] == pytest.approx(metrics["loss"].mean())
    assert (whole.count, whole.forward_passes) == (0, 45)
