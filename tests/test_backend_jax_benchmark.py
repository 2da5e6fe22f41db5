"""The benchmark of serving runs on jax and says what it measured."""

from benchmark_checks import check_babi, check_inference


def test_inference(tmp_path):
    check_inference("jax", tmp_path / "out")


def test_babi():
    check_babi("jax")
