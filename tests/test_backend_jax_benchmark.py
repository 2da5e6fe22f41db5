"""The benchmark of serving runs on jax and says what it measured."""

from benchmark_checks import check_inference


def test_inference(tmp_path):
    check_inference("jax", tmp_path / "out")
