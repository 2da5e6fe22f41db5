"""The benchmarks of serving and of updates run on torch and say what they measured."""

import numpy as np
import pytest
from benchmark_checks import check_babi, check_inference, check_pai, check_refused
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.pai import products
from benchmarks.products import preset_config, train_chunk, update_run
from tasks.pai.task import Pai


def test_inference(tmp_path):
    check_inference("torch", tmp_path / "out")


def test_a_wrong_option_is_refused():
    check_refused("--examples", "10", "--slots", "4", said="--examples must be a multiple of --slots, got 10 and 4")
    check_refused("--networks", "rnn,cnn", said="must be some of rnn, transformer")
    check_refused("--preset", "quick", said="--preset must be one of default, smoke", benchmark="babi")


def test_babi(tmp_path):
    check_babi("torch", tmp_path / "out")


def test_pai(tmp_path):
    check_pai("torch", tmp_path / "out", xl=True)


@pytest.mark.parametrize("given", [{}, {"optimiser": "adam", "dropout": 0.1, "layers": 3, "length": 4}])
def test_products_are_those_that_torch_counts(given):
    """Two updates, each multiplication and addition counted by itself."""
    task = Pai(preset_config(Pai, "smoke", **given))
    c, chunk = task.config, train_chunk(task, range(2))
    run = update_run("torch", task, chunk, 1)
    with FlopCounterMode(display=False) as counter:
        run()
    images, pairs = (chunk.inputs[name].shape[2] for name in ("images", "rows"))
    found = products(task.model(), c.batch_size, images, pairs, c.max_steps, c.optimiser)
    assert counter.get_total_flops() == 2 * 2 * sum(count * int(np.prod(shape)) for count, shape in found)
