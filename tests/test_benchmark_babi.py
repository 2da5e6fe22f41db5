"""The benchmark's bare products are those of the update, and its padded batch has the same examples."""

import numpy as np

from benchmarks.babi import padded, products
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi


def test_products_of_an_update():
    """Counted by hand for one bucket of 5 rows and 2 examples, and 3 steps."""
    config = BabiConfig(embedding=8, attention=4, heads=2, transition=6, max_steps=3)
    model = config.model_settings()
    cost = sum(count * int(np.prod(shape)) for count, shape in products(model, {5: 2}, 3, "adam"))
    projections, attention, feed = 10 * 8 * 3 * 4 + 10 * 4 * 8, 2 * (2 * 2 * 5 * 2 * 5), 2 * 10 * 8 * 6
    last = 10 * 8 * 2 * 4 + 2 * 8 * 4 + 2 * (2 * 2 * 1 * 2 * 5) + 2 * 4 * 8 + 2 * 2 * 8 * 6
    assert cost == 3 * (2 * (projections + attention + feed) + last + 3 * 2 * 8 * (model.outputs + 1))
    with_muon = sum(count * int(np.prod(shape)) for count, shape in products(model, {5: 2}, 3, "muon"))
    square = {(4, 8): 4, (6, 8): 2}  # q, k, v and o; in and out of the transition
    assert with_muon - cost == sum(n * 5 * (2 * a * a * b + a**3) for (a, b), n in square.items())


def test_padding_keeps_the_examples():
    task = Babi(BabiConfig(tasks="1,15", questions=40, batch_size=8, dropout=0.0, embedding=16, attention=16))
    chunk = task.batches("train", range(2))
    whole = padded(task, chunk, 8)
    (words,) = whole.inputs.values()
    assert words.shape == (1, 8, 321, 11)
    rows = [row for array in chunk.inputs.values() for row in array[0]]
    for long, short in zip(words[0], rows, strict=True):
        assert np.array_equal(long[-len(short) :], short) and not long[: -len(short)].any()
    assert np.array_equal(whole.targets, chunk.targets[:1])
    assert padded(task, chunk, 3).weights.shape == (1, 3)
