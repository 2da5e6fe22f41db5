"""The benchmarks of serving and of updates run on jax and say what they measured."""

from benchmark_checks import check_babi, check_inference, check_pai


def test_inference(tmp_path):
    check_inference("jax", tmp_path / "out")


def test_babi(tmp_path):
    check_babi("jax", tmp_path / "out")


def test_pai(tmp_path):
    check_pai("jax", tmp_path / "out", xl=False)  # it is compiled, which takes its time
