"""The benchmark's bare products are those of the update of the model of pairs."""

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.pai import products
from ponder_ref.models.pairs import PairTransformer

TINY = PairTransformer(width=7, embedding=8, attention=4, heads=2, transition=6, layers=2, steps=3)


def cost(found) -> int:
    return sum(count * int(np.prod(shape)) for count, shape in found)


def test_products_of_an_update():
    """Counted by hand for 2 memories of 5 images and 4 pairs, and 3 steps."""
    plain = products(TINY, 2, 5, 4, 3, "adam")
    hidden = 8 * 6 + 6 * 6 + 6 * 8
    encoder = 8 * 8 * 3 * 4 + 2 * (2 * 2 * 4 * 2 * 4) + 8 * 4 * 8 + 8 * hidden  # 8 tokens
    decoder = 6 * 8 * 3 * 4 + 2 * (2 * 2 * 3 * 2 * (4 + 3)) + 6 * 4 * 8 + 6 * hidden  # 6 tokens
    memory, readout = 3 * 8 * 8 * 2 * 4, 3 * 2 * 2 * 8 * (2 + 1)
    # The images have no gradient: two products, not three. Step n has n applications of the decoder.
    assert cost(plain) == 2 * (2 * 5 * 7 * 8) + 3 * (3 * encoder + memory + (1 + 2 + 3) * decoder + readout)
    counts = {shape: count for count, shape in plain}
    assert len(counts) == len(plain)
    assert [counts[1, steps * 6, 8, 3 * 4] for steps in (1, 2, 3)] == [1, 1, 1]  # the steps n ≥ k are one batch
    muon = products(TINY, 2, 5, 4, 3, "muon")
    # Of both blocks: q, k, v and o; first and out of the transition; the layer between them.
    square = {(4, 8): 8, (6, 8): 4, (6, 6): 2}
    assert cost(muon) - cost(plain) == sum(n * 5 * (2 * a * a * b + a**3) for (a, b), n in square.items())


def test_an_unknown_preset_is_refused(capsys):
    assert main(["pai", "--preset", "quick"]) == 2
    assert capsys.readouterr().err == "--preset must be one of default, class, smoke, paper, got 'quick'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("inference --means 2,99", "--means must be at most --steps, 20, got 99"),
        ("inference --means nan", "argument --means: must be numbers of at least 1, separated by commas, got 'nan'"),
        ("halting --steps 0", "argument --steps: must be an integer in 1..1000000, got '0'"),
        (f"halting --steps {'9' * 5000}", "argument --steps: must be an integer in 1..1000000, got '9999999999...'"),
        ("pai --out FILE", "FILE is a file, not a folder"),
        ("inference --out FILE", "FILE is a file, not a folder"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_measured(capsys, tmp_path, words: str, said: str):
    (tmp_path / "file").write_text("")
    assert main([word.replace("FILE", str(tmp_path / "file")) for word in words.split()]) == 2
    assert capsys.readouterr().err == said.replace("FILE", str(tmp_path / "file")) + "\n"
