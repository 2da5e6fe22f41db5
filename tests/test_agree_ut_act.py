"""The evaluation of `ut-act`, where every row halts by itself: both backends report the reference's numbers."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

from ponder_ref.models._ut_act import ut_act
from tasks.babi.settings import PRESETS
from tasks.babi.task import Babi
from tasks.flags import make
from tasks.loop import evaluate

MAX_STEPS, ACT_EPSILON, EXAMPLES = 8, 0.3, 80


class Reference:
    """The NumPy reference as a trainer that evaluates, example by example in float64 (spec M9).

    `last` has Nᵢ of the example that ran longest in each batch.
    """

    def __init__(self, heads: int, act_epsilon: float):
        self.heads, self.act_epsilon, self.last = heads, act_epsilon, []

    def unroll(self, params: dict[str, np.ndarray], inputs: Any, *, max_steps: int) -> tuple[np.ndarray, np.ndarray]:
        (batch,) = inputs.values()
        rule = {"heads": self.heads, "max_steps": max_steps, "act_epsilon": self.act_epsilon}
        found = [ut_act(params, words[words.any(-1)], **rule) for words in batch]
        longest = np.array([one.steps.max() for one in found])
        self.last.append(int(longest.max()))
        at_end = np.arange(1, max_steps + 1)[:, None] == longest
        return np.tile(np.stack([one.y_hat for one in found]), (max_steps, 1, 1)), np.where(at_end, 1e4, -1e4)


@pytest.fixture(scope="module")
def task() -> Babi:
    wanted = {"method": "ut-act", "max_steps": MAX_STEPS, "act_epsilon": ACT_EPSILON, "heads": 4}
    return Babi(make(Babi.Config, PRESETS["smoke"], wanted))


@pytest.fixture(scope="module")
def params(task: Babi) -> dict[str, np.ndarray]:
    """Parameters with which rows differ in when they halt."""
    random = np.random.default_rng(0)
    first = {name: np.asarray(x, np.float64) for name, x in task.initial_parameters().items()}
    first["halt.w"] = random.normal(0, 0.2, first["halt.w"].shape)
    first["halt.b"] = np.full(first["halt.b"].shape, -0.5)
    return {name: x.astype(np.float32) for name, x in first.items()}


def assert_near(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.shape(found[name]) == np.shape(value), name
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def expected(task: Babi, params: dict[str, np.ndarray]) -> dict[str, Any]:
    results = []
    held = {name: x.astype(np.float64) for name, x in params.items()}
    # No row comes so near to its threshold that rounding in float32 could decide when it halts.
    for act_epsilon in (ACT_EPSILON - 1e-5, ACT_EPSILON + 1e-5, ACT_EPSILON):
        reference = Reference(task.config.heads, act_epsilon)
        results.append(evaluate(reference, held, task, "valid", examples=EXAMPLES))
    *near, result = results
    for other in near:
        assert_near(other, result)
    assert len(set(reference.last)) > 1, "all batches of this test run equally long"
    assert min(reference.last) < MAX_STEPS
    return result


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_evaluation_is_the_reference_s(backend: str, task: Babi, params: dict, expected: dict[str, Any]):
    train = import_module(f"ponder_{backend}.train")
    trainer = train.make_trainer(task.network(), task.config.optimiser_settings())
    found = evaluate(trainer, trainer.init(params), task, "valid", examples=EXAMPLES)
    assert_near(found, expected)
