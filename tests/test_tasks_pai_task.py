"""The experiment on paired associative inference: batches, controls, the paper's test, settings."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from pai_checks import write_split
from pai_writer import trials
from task_helpers import inside, records, refused

from ponder_ref.models._pair_inputs import check_inputs
from ponder_ref.models.pairs import pairs_readout
from ponder_ref.runtime.errors import Refused
from tasks.flags import from_json, make, to_json
from tasks.pai.__main__ import main
from tasks.pai.report import draw, lines, rows_of
from tasks.pai.settings import PaiConfig
from tasks.pai.task import Pai


def task(**settings) -> Pai:
    return Pai(PaiConfig(**{"batch_size": 4, "max_steps": 2, "heads": 2, **settings}))


def test_chunks_have_the_masks_of_their_updates():
    """Made by the network's settings from the update's number, whatever the chunk."""
    made = task(memory="xl")
    batch = made.batches("train", range(3, 5))
    chunk = made.model().with_masks(batch.inputs, 7, range(3, 5), 2)
    for k in (0, 1):
        one = made.batches("train", [3 + k])
        masked = made.model().with_masks(one.inputs, 7, [3 + k], 2)
        assert all(np.array_equal(masked[name][0], x[k]) for name, x in chunk.items())
        check_inputs(made.model(), {name: x[k] for name, x in chunk.items()}, 2)
    without = task(dropout=0.0).model().with_masks(batch.inputs, 7, range(3, 5), 2)
    assert "dropout.encoder" in chunk and "dropout.encoder" not in without
    assert not np.array_equal(*chunk["dropout.decoder"])


def test_a_test_has_600_items_and_controls_without_their_memory():
    made = task(dropout=0.0)
    assert made.splits("test") == ("test", "test-600", "test-no-memory", "test-shuffled-memory")
    assert made.splits("valid") == ("valid",)
    assert task(control="no-memory").splits("test") == ("test-no-memory",)
    batches = list(made.evaluation("test-600", 10_000))
    assert sum(batch.counted for batch in batches) == 600
    ids = np.concatenate([batch.ids[: batch.counted] for batch in batches])
    assert np.array_equal(ids, np.arange(600))
    plain, bare = next(made.evaluation("test", 10)), next(made.evaluation("test-no-memory", 10))
    assert plain.counted == bare.counted == 10
    assert np.array_equal(plain.targets, bare.targets) and np.array_equal(plain.groups, bare.groups)
    assert not bare.inputs["images"][:, :48].any() and bare.inputs["query"].min() == 48


def test_the_table_has_types_and_both_groups():
    record = {"draws": 1, "levels": [[0, 100, 1.0, 2.0], [1, 300, 0.5, 4.0], [2, 400, 0.75, 5.0]]}
    assert rows_of(record["levels"], 3)[3:] == [("direct", 400, 0.625, 3.5), ("indirect", 400, 0.75, 5.0)]
    table = lines(record, 3)
    assert [line.split()[0] for line in table] == ["query", "A-B", "B-C", "A-C", "direct", "indirect"]
    assert len({len(line) for line in table}) == 1
    # Chances of one half each have no error at all: that of right and wrong answers is a bound.
    assert "(error at most)" in table[0] and "(2.89)" in table[2] and "median" not in table[0]
    record["median_levels"] = [[0, 100, 1.0, 1.0], [1, 300, 0.6, 3.0], [2, 400, 0.8, 5.0]]
    wider = lines(record, 3)
    assert [line[: len(table[0])] for line in wider] == table and len({len(line) for line in wider}) == 1
    assert wider[4].split()[-2:] == ["70.00", "2.50"] and wider[5].split()[-2:] == ["80.00", "5.00"]
    assert lines(record | {"draws": 0}, 3) == table  # there is one answer


@pytest.mark.parametrize("number", [-1, 3])
def test_queries_of_no_type_are_not_reported_as_the_hardest(number: int):
    rows = rows_of([[0, 100, 1.0, 2.0], [2, 400, 0.75, 5.0], [number, 8, 0.25, 6.0]], 3)
    assert rows[2] == ("other", 8, 0.25, 6.0) and [row[0] for row in rows].count("A-C") == 1
    assert rows[3:] == [("direct", 100, 1.0, 2.0), ("indirect", 400, 0.75, 5.0)]
    assert Pai.group_name(number, PaiConfig()) == "other" and Pai.group_name(2, PaiConfig()) == "A-C"


def test_figures_have_queries_of_no_type(tmp_path: Path):
    pytest.importorskip("matplotlib")
    seen = [{"split": "valid", "update": update, "levels": [[0, 9, 1.0, 2.0], [3, 1, 0.5, 3.0]]} for update in (0, 20)]
    drawn = draw(seen, 3, tmp_path)
    assert all(path.is_file() for path in drawn) and len(drawn) == 2


def test_the_paper_preset_has_the_papers_numbers():
    made = make(PaiConfig, Pai.PRESETS["paper"], {})
    wanted = {"embedding": 256, "attention": 512, "heads": 8, "transition": 128, "layers": 2, "dropout": 0.1}
    wanted |= {"max_steps": 10, "batch_size": 128, "beta": 0.01, "learning_rate": 3e-4, "decay": "polynomial"}
    assert {name: getattr(made, name) for name in wanted} == wanted


def test_the_class_preset_is_the_default_model_with_another_target():
    default, made = (make(PaiConfig, Pai.PRESETS[name], {}) for name in ("default", "class"))
    assert (made.target, made.tied_output, made.epsilon) == ("class", "on", 0.001)
    assert made.model_settings(width=5, outputs=2) == default.model_settings(width=5, outputs=2)
    assert dataclasses.replace(made.optimiser_settings(), updates=default.updates) == default.optimiser_settings()


def test_configs_survive_json():
    for name, preset in Pai.PRESETS.items():
        config = make(PaiConfig, preset, {})
        assert from_json(PaiConfig, to_json(config), name) == config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"embeddings": "a.npy"}, "--embeddings and --labels go together"),
        ({"data_dir": "x", "target": "class"}, "--target must be side"),
        ({"data_dir": "x", "embeddings": "a.npy", "labels": "b.npy"}, "two sources"),
        ({"attention": 7}, "--attention must"),
        ({"embeddings": "a.npy", "labels": "b.npy"}, "cannot read a.npy"),
        ({"tied_output": "on"}, "--tied-output on goes with --target class"),
        ({"tied_output": "on", "target": "class", "start": "x"}, "--tied-output on .* --start"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(settings: dict, words: str):
    with pytest.raises(Refused, match=words):
        task(**settings)


def test_the_answer_begins_with_the_scores_of_the_image_pointed_at():
    """Of tokens like one generated image alone, its class is likelier than most of the thousand."""
    made = task(target="class", tied_output="on", embedding=64, attention=64)
    params, picks = made.initial_parameters(), np.arange(200)
    assert not params["output.w"][:64].any()
    images, labels = made.data.source.embeddings("train", picks), made.data.source.labels("train", picks)

    def likelier(params: dict) -> float:
        """How many classes are likelier than the image's own, on average."""
        y_hat, _ = pairs_readout(params, np.repeat((images @ params["embed.images"])[:, None], 3, 1))
        return (y_hat > y_hat[picks, labels][:, None]).sum(1).mean()

    free = task(target="class", embedding=64, attention=64).initial_parameters()
    assert likelier(params) < 250 and 400 < likelier(free) < 600
    assert all(np.array_equal(free[name], x) for name, x in params.items() if name != "output.w")
    with pytest.raises(ValueError, match="tied_output"):
        task().model().initial_parameters(0, tied_output=True)


def own_files(folder: Path, width: int) -> list:
    """Flags with files of 16 classes of 60 images each."""
    folder.mkdir()
    np.save(folder / "images.npy", np.random.default_rng(0).normal(size=(960, width)).astype(np.float32))
    np.save(folder / "classes.npy", np.arange(960) % 16)
    return ["--embeddings", folder / "images.npy", "--labels", folder / "classes.npy"]


START = ["--preset", "smoke", "--backend", "pai_checks", "--eval-examples", 64, "--test-examples", 64, "--out", "run"]
START += ["--updates", 2, "--control", "no-memory"]  # one evaluation where there would be four
JUDGE = ["--evaluate", "run", "--examples", 64, "--backend", "pai_checks"]


def test_a_run_is_evaluated_where_its_own_images_have_been_moved(tmp_path: Path):
    flags = own_files(tmp_path / "before", 5)
    done = inside(*START, "--target", "class", *flags, cwd=tmp_path, main=main)
    assert done.returncode == 0, done.stderr
    first = inside(*JUDGE, cwd=tmp_path, main=main)
    (tmp_path / "before").rename(tmp_path / "after")
    assert "--embeddings: cannot read" in refused(inside(*JUDGE, cwd=tmp_path, main=main))
    moved = [Path(str(flag).replace("before", "after")) if isinstance(flag, Path) else flag for flag in flags]
    again = inside(*JUDGE, *moved, cwd=tmp_path, main=main)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    wider = own_files(tmp_path / "wider", 6)
    assert "does not fit the run's model" in refused(inside(*JUDGE, *wider, cwd=tmp_path, main=main))
    tied = [*START[:-6], "--out", "tied", "--target", "class", "--tied-output", "on", *moved]
    assert "got 16 classes and images of 5 numbers" in refused(inside(*tied, cwd=tmp_path, main=main))
    both = [*moved, "--data-dir", tmp_path]
    assert "two sources of images" in refused(inside(*JUDGE, *both, cwd=tmp_path, main=main))


def test_a_run_is_evaluated_where_the_released_files_are_now(tmp_path: Path):
    written = trials(np.random.default_rng(0), 3)
    for split in ("train", "valid", "test"):
        write_split(tmp_path / "before", split, [written])
    done = inside(*START, "--data-dir", "before", cwd=tmp_path, main=main)
    assert done.returncode == 0, done.stderr
    (tmp_path / "before").rename(tmp_path / "after")
    assert refused(inside(*JUDGE, cwd=tmp_path, main=main)) == "before has no folder train, valid or test"
    done = inside(*JUDGE, "--data-dir", "after", cwd=tmp_path, main=main)
    assert done.returncode == 0 and "test-no-memory: after, sequences of 3" in done.stdout, done.stderr
    generated = inside(*JUDGE, "--data-dir", "off", cwd=tmp_path, main=main)
    assert generated.returncode == 0 and "test-no-memory: generated images" in generated.stdout, generated.stderr
    sentence = refused(inside(*JUDGE, "--embeddings", "x.npy", cwd=tmp_path, main=main))
    assert sentence == "--embeddings and --labels go together, got one of them"
    assert "two sources" in refused(inside(*JUDGE, "--embeddings", "x", "--labels", "y", cwd=tmp_path, main=main))


def test_a_training_without_a_test_ends_with_its_last_validation(tmp_path: Path):
    """The released files of the test may be held back."""
    for split in ("train", "valid"):
        write_split(tmp_path / "files", split, [trials(np.random.default_rng(0), 3)])
    sentence = refused(inside(*START, "--data-dir", "files", cwd=tmp_path, main=main))
    assert "files/test" in sentence and not (tmp_path / "run").exists()
    done = inside(*START, "--test-examples", "off", "--data-dir", "files", cwd=tmp_path, main=main)
    assert done.returncode == 0, done.stderr
    assert "valid-no-memory: files, sequences of 3" in done.stdout and "figures  run/figures" in done.stdout
    splits = {record["split"] for record in records(tmp_path / "run") if record["kind"] == "eval"}
    assert splits == {"valid-no-memory"}
    assert (tmp_path / "run" / "figures" / "halting.png").exists()
