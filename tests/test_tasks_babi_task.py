"""The bAbI experiment's batches: the Transformer's layout, fixed shapes, every question judged once; its settings."""

import dataclasses

import numpy as np
import pytest
from task_helpers import inside, refused

from ponder_ref.models._buckets import check_inputs
from ponder_ref.runtime.errors import Refused
from tasks.babi.__main__ import main
from tasks.babi.ask import Thought, questions
from tasks.babi.ask import verdict as ask_verdict
from tasks.babi.encode import Inputs, encode, gather
from tasks.babi.report import lines, verdict
from tasks.babi.settings import BabiConfig
from tasks.babi.stories import TASK_NAMES, Question, Story
from tasks.babi.task import Babi, words
from tasks.babi.vocabulary import sentence_numbers
from tasks.flags import from_json, make, to_json
from tasks.runs import Origin, Run


def task(**settings) -> Babi:
    given = {"tasks": "1,2,15", "questions": 40, "held_out": 12, "batch_size": 16, "max_steps": 3, **settings}
    return Babi(BabiConfig(**given))


def test_the_question_comes_last_and_padding_first():
    sentences = np.array([[[1, 2], [3, 0], [0, 0]], [[4, 0], [0, 0], [0, 0]]], np.uint8)
    made = words(Inputs(sentences, np.array([2, 1], np.int32), np.array([[7, 8], [9, 0]], np.uint8)))
    assert made.tolist() == [[[0, 0], [1, 2], [3, 0], [7, 8]], [[0, 0], [0, 0], [4, 0], [9, 0]]]


def test_batches_have_fixed_shapes_and_depend_on_their_number_alone():
    made, again = task(renew=3), task(renew=3)
    whole = made.batches("train", range(2, 6))  # two sets of stories
    for name, array in whole.inputs.items():
        for k in range(4):
            assert np.array_equal(again.batches("train", [2 + k]).inputs[name][0], array[k])
    assert whole.targets.shape == whole.weights.shape == whole.example_ids.shape == (4, 16)
    assert np.allclose(whole.weights.sum(1), 1)
    check_inputs(made.model(), {name: array[0] for name, array in whole.inputs.items()}, 3)
    assert not np.array_equal(made.pool("train", 0).table.sentences, made.pool("train", 1).table.sentences)


def test_a_set_may_have_other_lengths_than_the_first():
    """Lengths that it lacks are rows of weight 0, lengths that the first set lacks are left out."""
    made = task(renew=1, batch_size=16)
    first = set(made.rows)
    made.rows = {6: 8, 320: 8}
    assert {6} < first and 320 not in first
    batch = made.batches("train", [1])
    assert {name for name in batch.inputs if name.startswith("words")} == {"words.7", "words.321"}
    assert (batch.weights[0, :8] > 0).all() and not batch.weights[0, 8:].any()


@pytest.mark.parametrize("longest", [*range(1, 12), 15, 16, 17, 31, 33, 50, 64, 100, 127, 200, 241, 319, 320])
def test_every_longest_story_fits_the_model(longest: int, monkeypatch: pytest.MonkeyPatch):
    """Stories of all lengths, cut to a longest one of any number of sentences: none is padded beyond the model."""
    statement, question = "Mary moved to the kitchen.", Question("Where is Mary?", "kitchen", (1,))
    table = encode([Story((statement, question) * 321)], 1)
    monkeypatch.setattr(Babi, "table", lambda self, split, part=0: table)
    made = task(tasks="1", sentences=longest, held_out=2)
    batch = made.batches("train", [0])
    check_inputs(made.model(), {name: array[0] for name, array in batch.inputs.items()}, 3)
    assert max(made.rows) == longest
    judged = list(made.evaluation("valid", 10**4))
    for batch in judged:
        check_inputs(made.model(), batch.inputs, 3)
    assert sum(batch.counted for batch in judged) == 321


def test_a_later_set_may_lack_the_shortest_stories():
    """Stories that fill the gap are cut to fit: with few questions, sets of task 14 differ in their least length."""
    made = task(tasks="14", questions=20, renew=1, batch_size=16, dropout=0.0)
    least = [min(bucket.size for bucket in made.pool("train", part).buckets) for part in range(12)]
    assert min(least) == least[0] < max(least)
    batch = made.batches("train", [least.index(max(least))])
    rows = made.rows[least[0]]
    assert batch.inputs[f"words.{least[0] + 1}"].shape[1] == rows
    assert not batch.weights[0, :rows].any() and batch.inputs[f"words.{least[0] + 1}"][0, :, -1].any(axis=-1).all()


def test_what_a_training_reads_is_opened_before_it(tmp_path):
    (tmp_path / "qa1_train.txt").write_text("1 Mary moved to the garden.\n2 Where is Mary?\tgarden\t1\n" * 20)
    settings = {"tasks": "1", "data_dir": str(tmp_path), "test_examples": None}
    task(**settings).check()
    with pytest.raises(Refused, match=r"no file qa1_test\.txt .*\(--test-examples off trains without a test\)"):
        task(**settings | {"test_examples": 20}).check()
    with pytest.raises(Refused, match="no file qa2_train"):
        task(**settings | {"tasks": "1,2"}).check()
    with pytest.raises(Refused, match="--batch-size is too small"):
        task(batch_size=1).check()


def test_the_layout_chooses_among_several(tmp_path):
    for layout, place in (("en", "garden"), ("en-10k", "office")):
        (tmp_path / layout).mkdir()
        line = f"1 Mary moved to the {place}.\n2 Where is Mary?\t{place}\t1\n"
        (tmp_path / layout / "qa1_train.txt").write_text(line * 20)
    settings = {"tasks": "1", "data_dir": str(tmp_path)}
    assert task(**settings).describe("train") == "1 tasks, files of en-10k"  # the first of the names that is there
    assert task(**settings, layout="en").describe("train") == "1 tasks, files of en"
    itself = task(tasks="1", data_dir=str(tmp_path / "en"), layout="en")  # a folder that is the layout
    assert itself.describe("train") == "1 tasks, files of en"
    with pytest.raises(Refused, match="does not have a folder en-10k with bAbI files"):
        task(tasks="1", data_dir=str(tmp_path / "en"), layout="en-10k")
    done = inside("--layout", "en", cwd=tmp_path, main=main)
    assert refused(done) == "--layout chooses among released files: it goes with --data-dir or --download"
    answers = [task(**settings, layout=layout).pool("train").table.answers for layout in ("any", "en-10k", "en")]
    assert np.array_equal(answers[0], answers[1]) and not np.array_equal(answers[0], answers[2])


def test_a_run_does_not_go_on_with_other_files(tmp_path, monkeypatch):
    file, line = tmp_path / "qa1_train.txt", "1 Mary moved to the garden.\n2 Where is Mary?\tgarden\t1\n"
    file.write_text(line * 20)
    made = task(tasks="1", data_dir=str(tmp_path), test_examples=None)
    read, table = [], made.table
    monkeypatch.setattr(made, "table", lambda *args: (read.append(args[0]), table(*args))[1])
    known = made.check()
    made.batches("train", [0])
    assert read == ["train", "valid"]  # each once
    assert known is not None and known == task(tasks="1", data_dir=str(tmp_path), test_examples=None).check()
    assert task(tasks="1").check() is None  # generated stories are known by the config
    run = Run.create(tmp_path / "run", "babi", made.config, "jax", Origin(data=known))
    assert Run.open(run.folder, "babi", BabiConfig).origin == Origin(None, known)
    file.write_text(line * 19 + line.replace("garden", "office"))  # the last tenth is validation
    done = inside("--out", "run", "--resume", cwd=tmp_path, main=main)
    assert refused(done) == "the files that run is trained on have changed since it began"


def test_a_batch_holds_the_stories_that_its_ids_name():
    made = task(dropout=0.0)
    batch = made.batches("train", [4])
    table, row = made.pool("train").table, 0
    for name in batch.inputs:
        size = int(name.removeprefix("words.")) - 1
        for story in batch.inputs[name][0]:
            number = batch.example_ids[0, row : row + 1]
            assert np.array_equal(words(gather(table, number, size))[0], story)
            assert batch.targets[0, row] == table.answers[number[0]]
            row += 1
    assert row == 16


def test_every_question_is_judged_once():
    made = task()
    batches = list(made.evaluation("valid", 10**5))
    ids = np.concatenate([batch.ids[: batch.counted] for batch in batches])
    levels = np.concatenate([batch.groups[: batch.counted] for batch in batches])
    assert sorted(ids.tolist()) == list(range(36))
    assert np.bincount(levels)[[1, 2, 15]].tolist() == [12, 12, 12]
    few = list(made.evaluation("valid", 15))
    assert np.bincount(np.concatenate([batch.groups[: batch.counted] for batch in few]))[[1, 2, 15]].tolist() == [
        5,
        5,
        5,
    ]


def test_long_stories_keep_their_end():
    made, whole = task(sentences=3), task()
    cut, full = made.pool("train").table, whole.pool("train").table
    assert (cut.stops - cut.starts).max() == 3
    assert np.array_equal(cut.stops, full.stops)
    assert (cut.starts == np.maximum(full.starts, full.stops - 3)).all()


def test_the_paper_preset_has_the_papers_numbers():
    made = make(BabiConfig, Babi.PRESETS["paper"], {})
    wanted = {"embedding": 128, "attention": 512, "heads": 8, "transition": 128, "dropout": 0.1, "max_steps": 10}
    wanted |= {"batch_size": 128, "beta": 0.01, "optimiser": "adam", "learning_rate": 3e-4, "updates": 2_000_000}
    assert {name: getattr(made, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data_dir": "nowhere"}, "there is no folder or archive nowhere"),
        ({"tasks": "0"}, "--tasks must lie"),
        ({"tasks": "x"}, "--tasks takes"),
        ({"attention": 12}, "--attention must"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(settings: dict, words: str):
    with pytest.raises(Refused, match=words):
        task(**settings)


@pytest.mark.parametrize("more", ["3", "3:x", "3:1", "1:0", "1:101", "1:2,", "1:2,1:3"])
def test_shares_that_cannot_be_are_refused(more: str):
    with pytest.raises(Refused, match="--more"):
        task(more=more)


def test_a_batch_too_small_for_the_buckets_is_refused():
    with pytest.raises(Refused, match="--batch-size"):
        task(batch_size=1).batches("train", [0])


def test_configs_survive_json():
    for name, preset in Babi.PRESETS.items():
        config = make(BabiConfig, preset, {})
        assert from_json(BabiConfig, to_json(config), name) == config
        assert dataclasses.asdict(config) == dataclasses.asdict(from_json(BabiConfig, to_json(config), name))


def test_the_table_counts_solved_tasks():
    record = {"levels": [[1, 10, 1.0, 2.0], [2, 10, 0.96, 3.0], [3, 10, 0.9, 4.0]], "expected_steps": 3.0}
    assert verdict(record) == "2 of 3 tasks solved, average error 4.67 %, mean steps 3.00"
    rows = lines(record, TASK_NAMES)
    assert [row.split()[-2] for row in rows[1:-1]] == ["yes", "yes", "no"]


def test_questions_see_the_lines_of_their_story():
    lines = [
        "1 Mary moved to the kitchen.",
        "2 Where is Mary?\tkitchen\t1",
        "3 John went to the office.",
        "Where is John?",
    ]
    found = list(questions([*lines, "", "Where is Mary?"], 320))
    assert [len(rows) for _, rows in found] == [2, 3, 1]
    assert found[1][1][0] == sentence_numbers("Mary moved to the kitchen") and found[1][0] == "Where is John?"
    assert len(next(questions(["Mary moved to the kitchen."] * 5 + ["Where is Mary?"], 2))[1]) == 3
    with pytest.raises(Refused, match="line 2: 'zebra' is not a word"):
        list(questions(["Mary moved to the kitchen.", "Where is the zebra?"], 320))


def test_the_likeliest_answer_is_given():
    thoughts = [Thought(0.3, "garden", 0.9), Thought(0.3, "office", 0.5), Thought(0.4, "office", 0.4)]
    assert ask_verdict(thoughts) == ("office", pytest.approx(0.3 + 0.6 + 1.2))


def test_tasks_that_are_drawn_more_often_have_more_questions_in_a_set():
    for sets, count in (("by-share", 100), ("even", 40)):
        made = task(more="15:2.5", sets=sets)
        assert np.bincount(made.table("train").tasks)[[1, 2, 15]].tolist() == [40, 40, count]
        assert np.bincount(made.table("valid").tasks)[[1, 2, 15]].tolist() == [12, 12, 12]
