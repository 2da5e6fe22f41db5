"""The benchmark of serving runs on torch and says what it measured."""

from benchmark_checks import check_inference, check_refused


def test_inference(tmp_path):
    check_inference("torch", tmp_path / "out")


def test_a_wrong_option_is_refused():
    check_refused("--examples", "10", "--slots", "4", said="--examples must be a multiple of --slots, got 10 and 4")
    check_refused("--networks", "rnn,cnn", said="must be some of rnn, transformer")
