"""The benchmarks of serving and of updates run on jax and say what they measured."""

from benchmark_checks import check_babi, check_inference, check_pai


def test_inference(tmp_path):
    check_inference("jax", tmp_path / "out")


def test_babi():
    check_babi("jax")


def test_pai():
    check_pai("jax", xl=False)  # it is compiled, which takes its time
