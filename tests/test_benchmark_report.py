"""What a benchmark prints is what it keeps: each figure is rounded once, and the sentences quote the kept one."""

import argparse
import json
import statistics

import pytest

from benchmarks import babi, pai
from benchmarks.inference import table, targets
from benchmarks.products import over
from benchmarks.report import Report
from benchmarks.shared import figure, quartiles

# Of each, rounding to four decimals and then to fewer gives another number than rounding once.
TWICE = [0.68749, 0.5834996, 60.449999, 2.0451, 0.000449996]


def printed_rows(out: str) -> dict[str, list[float]]:
    """Median and quartiles of each line of the tables, as read by a person."""
    lines = [line.rsplit(maxsplit=3) for line in out.splitlines()]
    return {line[0]: [float(word) for word in line[1:]] for line in lines if len(line) == 4 and line[3][0].isdigit()}


@pytest.mark.parametrize("ratio", TWICE)
def test_the_table_prints_the_kept_figures(ratio, tmp_path, capsys):
    report = Report("babi", argparse.Namespace(out=tmp_path, updates=2), "about")
    report.table("time over that of a", {"a": [1.0, 1.0, 1.0], "b": [ratio * 0.9, ratio, ratio * 1.1]}, "a")
    report.write()
    (kept,) = json.loads((tmp_path / "babi.json").read_text(encoding="utf-8"))["tables"]
    printed = printed_rows(capsys.readouterr().out)
    assert {name: [low, middle, high] for name, (middle, low, high) in printed.items()} == kept["rows"]
    assert kept["rows"]["b"][1] == pytest.approx(ratio, rel=1e-3) and kept["rows"]["a"] == [1, 1, 1]


def test_a_figure_has_four_digits_and_is_never_rounded_to_nothing():
    assert [figure(value) for value in TWICE] == [0.6875, 0.5835, 60.45, 2.045, 0.00045]
    assert [figure(figure(value)) for value in TWICE] == [figure(value) for value in TWICE]


@pytest.mark.parametrize("ratio", TWICE)
def test_sentences_quote_the_kept_figure(ratio):
    each = {babi.BASE: [1.0], babi.PADDED: [ratio], babi.BARE: [ratio], "torch": [0.25], "torch, bare products": [0.1]}
    each |= {pai.DATA: [ratio / 4], pai.xl("torch"): [ratio / 4]}
    each = {name: times * 2 for name, times in each.items()}
    kept = quartiles(each, babi.BASE)
    sentence = babi.summary("torch", each)
    assert f"torch: {kept[babi.PADDED][1]:.1f} times the examples" in sentence
    assert sentence.endswith(f"; {100 * kept[babi.BARE][1]:.0f} % of an update is bare products")
    kept = quartiles(each, "torch")
    sentence = pai.summary("torch", each)
    assert f"making its data takes {100 * kept[pai.DATA][1]:.1f} % of its time" in sentence
    assert sentence.endswith(f"--memory xl takes {kept[pai.xl('torch')][1]:.2f} times as long")


@pytest.mark.parametrize("count", range(2, 9))
def test_the_median_of_a_sentence_is_that_of_the_table(count):
    each = {"a": [1.0 + k for k in range(count)], "b": [(7.0 * k * k + 3) % 11 for k in range(count)]}
    assert over(each, "b", "a") == quartiles(each, "a")["b"][1]
    ratios = [b / a for b, a in zip(each["b"], each["a"], strict=True)]
    assert over(each, "b", "a") == figure(statistics.median(ratios))


def test_the_table_of_inference_prints_what_its_records_hold():
    record = {"framework": "torch", "network": "transformer", "mean": 4, "contender": "predict, 4 slots", "rows": 40}
    figures = {
        "time": figure(0.68749),
        "share": figure(0.3125),
        "overhead": figure(1.204999),
        "faster": figure(2.99951),
    }
    *_, line = table([record | figures], []).splitlines()
    assert [float(word) for word in line.split()[-5:]] == [0.6875, 0.3125, 40, 1.205, 3.0]
    (sentence,) = targets([record | figures], 4)
    assert f"overhead at most {figures['overhead']:.2f} (target 1.2), 3.00 times as fast" in sentence
