"""Configs: to JSON and back, presets, and every flag's range refused on the command line."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
from task_helpers import parity, refused

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.settings import Optimiser
from ponder_ref.runtime.train import learning_rates
from ponder_ref.runtime.values import Choice, Integer, Number, Span, Text, Values
from tasks import flags
from tasks.command import parser
from tasks.parity import Parity, ParityConfig
from tasks.parity.__main__ import main

FIELDS = dataclasses.fields(ParityConfig)


def outside(values: Values) -> list[str]:
    """Texts that a flag must refuse."""
    if isinstance(values, Integer):
        return [str(values.low - 1), str(values.high + 1), "1.5", "many"]
    if isinstance(values, Number):
        low, high = values.interval[1:-1].split(",")
        return [str(float(low) - 1), str(float(high) * 2 + 1), "nan", "inf", "many"]
    if isinstance(values, Text):  # any but none
        return [""]
    return ["", "0-3", "5-2", "1-9999", "1-2-3", "x"] if isinstance(values, Span) else ["", "other"]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_values_outside_are_refused_by_flag_value_and_range(field, capsys, tmp_path: Path):
    values = field.metadata["values"]
    for text in outside(values):
        assert main([f"{flags.flag(field.name)}={text}", "--out", str(tmp_path / "run")]) == 2
        (sentence,) = capsys.readouterr().err.strip().splitlines()
        assert sentence.startswith(f"{flags.flag(field.name)} must be ")
        assert str(values) in sentence
        assert text in sentence or str(values.parse(text)) in sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lambda-p", "1"], ("--lambda-p", "(0, 1)", "1.0")),
        (["--lamda-p", "0.5"], ("--lamda-p", "--lambda-p")),
        (["--bits"], ("--bits", "expected one argument")),
        (["stray"], ("stray",)),
        (["--preset", "huge"], ("--preset", "smoke", "'huge'")),
        (["--threads", "0"], ("--threads", "1..1024", "0")),
        (["--draws", "3"], ("--draws", "--evaluate")),
        (["--warmup", "30", "--updates", "20"], ("--warmup", "--updates 20", "30")),
        (["--epsilon", "0.05", "--min-steps", "9", "--max-steps", "5"], ("--min-steps", "1..5", "9")),
        (["--backend", "nowhere.at_all"], ("--backend", "torch", "nowhere.at_all")),
        (["--backend", "json"], ("--backend", "json", "make_trainer")),
        (["--backend", ""], ("--backend must be one of jax, torch", "''")),
        (["--backend", ".x"], ("--backend must be one of jax, torch", "'.x'")),
        (["--hold", "1", "--warmup", "2", "--updates", "9"], ("--hold must be 0 or lie in 2..8 (--warmup, --upd", "1")),
        (["--hold", "9", "--updates", "9"], ("--hold must be 0 or lie in 0..8", "got 9")),
        (["--resume"], ("--resume", "--out")),
        (["--checkpoint", "x"], ("--checkpoint", "--resume")),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list) else "",
)
def test_bad_command_lines_get_one_sentence(arguments: list[str], words: tuple[str, ...], capsys, tmp_path: Path):
    out = [] if arguments[0] == "--resume" else ["--out", str(tmp_path / "run")]
    assert main([*arguments, *out]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    for word in words:
        assert word in sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def make_trainer(:", "the module somebody cannot be imported: SyntaxError: "),
        ("1 / 0", "the module somebody cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit", "the module somebody cannot be imported: SystemExit"),
        ("def make_trainer(): pass", "its trainer cannot be made: TypeError: make_trainer() "),
        ("def make_trainer(*a, **k): raise OSError('no\\nmore')", "its trainer cannot be made: OSError: no"),
        ("def make_trainer(*a, **k): raise RuntimeError('no')", "its trainer cannot be made: RuntimeError: no"),
    ],
    ids=["syntax", "import", "exit", "constructor", "threads", "runtime"],
)
def test_a_foreign_backend_that_does_not_work_is_named(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "somebody.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "somebody", raising=False)
    assert main(["--backend", "somebody", "--out", str(tmp_path / "run")]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert sentence.startswith("--backend somebody: ") and words in sentence
    assert not (tmp_path / "run").exists()


def test_the_real_command_refuses_without_a_traceback(tmp_path: Path):
    sentence = refused(parity("--bits", "1", "--out", "run", cwd=tmp_path))
    assert sentence == "--bits must be an integer in 2..1024, got 1"


def test_help_names_every_flag_with_its_range():
    text = " ".join(parser(Parity).format_help().split())
    for field in FIELDS:
        assert flags.flag(field.name) in text
    assert "paper: 3e-4" in text
    assert "examples:" in text


@pytest.mark.parametrize("name", Parity.PRESETS)
def test_configs_survive_json(name: str):
    made = flags.make(ParityConfig, Parity.PRESETS[name], {"bits": 96, "train_ones": (1, 48), "eval_ones": (49, 96)})
    text = json.dumps(flags.to_json(made))
    again = flags.from_json(ParityConfig, json.loads(text), "here")
    assert again == made
    assert json.dumps(flags.to_json(again)) == text


def test_flags_override_presets_and_presets_defaults():
    options = parser(Parity).parse(["--max-steps", "3", "--epsilon", "off", "--train-ones", "1-2"])
    made = flags.make(ParityConfig, {"max_steps": 7, "bits": 5}, flags.given(options, ParityConfig))
    assert (made.max_steps, made.bits, made.epsilon, made.train_ones) == (3, 5, None, (1, 2))
    assert made.batch_size == 128


def test_the_paper_preset_has_the_papers_numbers():
    made = flags.make(ParityConfig, Parity.PRESETS["paper"], {})
    wanted = {"bits": 64, "hidden": 128, "optimiser": "adam", "learning_rate": 3e-4, "decay": "constant", "beta": 0.01}
    wanted |= {"batch_size": 128, "max_steps": 20, "lambda_p": 0.2, "positions": "shuffled", "epsilon": None}
    assert {name: getattr(made, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 1}, "--bits must be"),
        ({"bits": None}, "--bits must be"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
def test_wrong_json_is_refused(change: dict, words: str):
    values = flags.to_json(ParityConfig()) | change
    with pytest.raises(Refused, match=f"config.json.*{words}"):
        flags.from_json(ParityConfig, values, "config.json")


def test_a_field_that_was_added_later_has_its_default():
    values = flags.to_json(ParityConfig(seed=5))
    del values["bias_scale"]
    assert flags.from_json(ParityConfig, values, "config.json") == ParityConfig(seed=5)


def test_choices_show_their_words():
    assert str(Choice(("a", "b"))) == "a, b"
    assert flags.show((1, 48)) == "1-48"
    assert flags.show(None) == "off"


def test_a_held_rate_falls_as_a_short_run_would():
    """Until `hold` it is as if there were no decay; after it as in a run that begins there."""
    held = learning_rates(Optimiser(learning_rate=1.0, updates=10, warmup=2, hold=4, decay="linear"), 1, 11)["adam"]
    assert held.tolist() == pytest.approx([0.5, 1, 1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    whole = learning_rates(Optimiser(learning_rate=1.0, updates=10, warmup=2, decay="linear"), 1, 3)["adam"]
    assert whole.tolist() == pytest.approx([0.5, 1, 1])
    for hold in (1, 10):
        with pytest.raises(Refused, match="hold"):
            Parity.Config(updates=10, warmup=2, hold=hold, decay="linear", chunk=1)
