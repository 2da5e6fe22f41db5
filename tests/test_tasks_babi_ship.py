"""The shipped bAbI checkpoint: what may be shipped, and that card, numbers and file belong together."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")

from ponder_ref.runtime.checkpoint import PARAMETERS, PREFIX, Checkpoint, fingerprint, parameters, read, save
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.network import Leaf, Network, Own
from tasks.babi import ship
from tasks.babi.card import make_card, render, training_time
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi
from tasks.runs import MODEL, Run, is_shipped, open_trained

SMALL = {"embedding": 16, "attention": 16, "heads": 2, "transition": 16, "max_steps": 3}
NEEDS_IT = pytest.mark.skipif(not is_shipped(Babi.PRETRAINED), reason="no checkpoint is shipped here")


def run_of(folder: Path, **settings) -> Run:
    """A run with a checkpoint of update 40."""
    config = BabiConfig(**{**SMALL, **settings})
    run = Run.create(folder, "babi", config, "jax")
    run.make_folders()
    arrays = {PREFIX + name: array for name, array in config.model_settings().initial_parameters(0).items()}
    save(run.checkpoints, Checkpoint(arrays, run.checkpoint_about(40, "1.2.0", {})), 40)
    return run


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data_dir": "released"}, "was trained on files (--data-dir)"),
        ({"method": "act"}, "is a run of --method act: one of ponder is shipped"),
        ({"embedding": 512, "attention": 512}, "is too large to be shipped"),
    ],
    ids=str,
)
def test_what_is_not_shipped(settings: dict, words: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    run_of(tmp_path / "run", **settings)
    assert ship.main([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert words in sentence and not (tmp_path / "out").exists()


def test_a_run_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert ship.main([str(tmp_path / "nowhere")]) == 2
    assert "there is no run folder" in capsys.readouterr().err
    assert ship.main([]) == 2
    assert "RUN" in capsys.readouterr().err


def test_hours_are_those_of_the_sessions(tmp_path: Path):
    run = run_of(tmp_path / "run")
    assert training_time(run, 40) == {
        "core_hours": None,
        "hours": None,
        "sessions": 0,
        "backends": ["jax"],
        "updates_not_noted": 40,
    }
    first = {"backend": "jax", "from": 0, "to": 25, "seconds": 5400.0, "cpu_seconds": 3600.0}
    again = {"backend": "torch", "from": 20, "to": 30, "seconds": 1800.0, "cpu_seconds": 900.0}
    later = {"backend": "torch", "from": 40, "to": 50, "seconds": 1800.0, "cpu_seconds": 900.0}
    run.append(run.sessions, [first, again, later])
    assert training_time(run, 40) == {
        "core_hours": 1.25,
        "hours": 2.0,
        "sessions": 2,
        "backends": ["jax", "torch"],
        "updates_not_noted": 10,
    }


def test_the_card_knows_the_runs_that_a_run_began_with(tmp_path: Path):
    first = run_of(tmp_path / "first", batch_size=32, more="16:2", questions=30)
    last = run_of(tmp_path / "last", start=str(first.folder))
    assert [(run.folder, update) for run, update in ship.earlier_runs(last)] == [(first.folder, 40)]
    file = {"parameters": 1, "bytes": 4, "sha256": ""}
    card = make_card([*ship.earlier_runs(last), (last, 40)], {"task": "babi", "spec": "1"}, file, [])
    assert (card["updates"], card["examples_seen"]) == (80, 40 * 32 + 40 * 128)
    assert "30 questions a task, some drawn more often (16: 2 times, from 60)" in render(card)
    assert render(card).count("of the updates were made in sessions whose time was not noted") == 2


def test_a_run_that_began_with_what_is_no_longer_there_is_not_shipped(tmp_path: Path, capsys: pytest.CaptureFixture):
    run_of(tmp_path / "first")
    last = run_of(tmp_path / "last", start=str(tmp_path / "first"))
    config = json.loads((last.folder / "config.json").read_text())
    found = open_trained(Babi, str(tmp_path / "first"))[1]
    for known, said in ((fingerprint(parameters(found.arrays)), None), ("0" * 64, "first has changed since")):
        (last.folder / "config.json").write_text(json.dumps(config | {"began_with": known}))
        run = Run.open(last.folder, "babi", BabiConfig)
        if said is None:
            assert len(ship.earlier_runs(run)) == 1
        else:
            with pytest.raises(Refused, match=said):
                ship.earlier_runs(run)
    shipped = run_of(tmp_path / "more", start="pretrained")
    with pytest.raises(Refused, match="began with pretrained, a shipped checkpoint"):
        ship.earlier_runs(shipped)


def test_a_run_that_began_with_one_on_files_is_not_shipped(tmp_path: Path, capsys: pytest.CaptureFixture):
    run_of(tmp_path / "first", data_dir="released")
    run_of(tmp_path / "last", start=str(tmp_path / "first"))
    assert ship.main([str(tmp_path / "last"), "--out", str(tmp_path / "out")]) == 2
    assert "was trained on files" in capsys.readouterr().err
    run_of(tmp_path / "file", start=str(tmp_path / "first" / "checkpoints" / "update-00000040.safetensors"))
    assert ship.main([str(tmp_path / "file"), "--out", str(tmp_path / "out")]) == 2
    assert "is not known" in capsys.readouterr().err


def test_no_other_folder_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = run_of(tmp_path / "run")
    before = (run.folder / "config.json").read_bytes()
    for out in (run.folder, run.folder / "config.json"):
        assert ship.main([str(run.folder), "--out", str(out)]) == 2
        assert "must be new, empty or a shipped checkpoint" in capsys.readouterr().err
    assert (run.folder / "config.json").read_bytes() == before


@NEEDS_IT
def test_the_card_is_of_the_file():
    card = json.loads((Babi.PRETRAINED / "card.json").read_text(encoding="utf-8"))
    data = (Babi.PRETRAINED / MODEL).read_bytes()
    assert len(data) <= ship.MAX_BYTES and len(data) == card["model"]["bytes"]
    assert hashlib.sha256(data).hexdigest() == card["model"]["sha256"]
    assert (Babi.PRETRAINED / "card.md").read_text(encoding="utf-8") == render(card)


@NEEDS_IT
def test_the_file_has_parameters_alone_of_a_run_on_generated_stories():
    run, found = open_trained(Babi, "pretrained")
    assert run.config.data_dir is None and run.config.method == "ponder"
    assert all(name.startswith(PREFIX) and array.dtype == np.float32 for name, array in found.arrays.items())
    assert read(Babi.PRETRAINED / MODEL, PARAMETERS).about["update"] == found.about["update"]


def test_the_command_on_a_card_names_a_network_of_ones_own(tmp_path: Path):
    config = BabiConfig(**SMALL)
    own = Network(Own("my_net.py:build", "0" * 64, Leaf((11,), "int16"), 2, "classes"), config.halting())
    rows = [(Run(tmp_path, "babi", config, "jax", own=network), 40) for network in (own, None)]
    file = {"parameters": 1, "bytes": 4, "sha256": "0" * 64}
    first, second = (phase["command"] for phase in make_card(rows, {"task": "babi", "spec": "2"}, file, [])["phases"])
    assert "--model my_net.py:build" in first and "--model" not in second
