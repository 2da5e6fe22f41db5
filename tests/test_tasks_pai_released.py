"""Released files with odd content: what their queries are counted as; what is refused, naming file and record."""

from pathlib import Path

import numpy as np
import pytest
from pai_checks import write_split
from pai_writer import trials
from task_helpers import inside, refused

from ponder_ref.runtime.errors import Refused
from tasks.pai.__main__ import main
from tasks.pai.released import Released

SMALL = {"sequences": 2, "width": 3}
A_B, B_C, A_C, OTHER = range(4)


def record(seed: int = 0, **sizes: int) -> dict[str, np.ndarray]:
    return trials(np.random.default_rng(seed), 3, **(sizes or SMALL))


def released(folder: Path, *written: dict[str, np.ndarray]) -> Released:
    """Every split with one file of these records."""
    for split in ("train", "valid", "test"):
        write_split(folder, split, written)
    return Released(folder, seed=0, batch_size=64, **SMALL)


def test_released_files_are_known_by_the_checksums_of_their_records(tmp_path: Path):
    """Whatever folder they lie in; those of the test are not trained on."""
    same = [released(tmp_path / name, record(1), record(2)).checksum() for name in ("here", "there")]
    assert same[0] == same[1] and len(same[0]) == 64
    assert released(tmp_path / "turned", record(2), record(1)).checksum() != same[0]
    for split, changes in (("valid", True), ("test", False)):
        write_split(tmp_path / "there", split, [record(1), record(3)])
        found = Released(tmp_path / "there", seed=0, batch_size=64, **SMALL).checksum()
        assert (found != same[0]) == changes
        write_split(tmp_path / "there", split, [record(1), record(2)])


def images_of(written: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The six images of a small record: A, B, C of the first sequence, then of the second."""
    queries, sides = written["trials"], written["correct_answer"]
    matches = queries[np.arange(6), 1 + sides]
    return [queries[0, 0], matches[0], matches[2], queries[1, 0], matches[1], matches[3]]


def levels(made: Released, split: str = "train") -> set[tuple[int, bool]]:
    """Which levels the queries of a batch have, with whether they were drawn as direct ones."""
    batch, kinds = made.with_kinds(split, [0])
    return set(zip(kinds.ravel().tolist(), (batch.example_ids.ravel() % 2 == 0).tolist(), strict=True))


USUAL = {(A_B, True), (B_C, True), (A_C, False)}


def test_queries_are_counted_as_the_file_says(tmp_path: Path):
    assert levels(released(tmp_path, record(1), record(2))) == USUAL


def test_the_order_within_pairs_does_not_matter(tmp_path: Path):
    written = record()
    written["memory"][::2] = written["memory"][::2, ::-1].copy()
    assert levels(released(tmp_path, written)) == USUAL


def test_types_that_the_pairs_deny_are_counted_as_other(tmp_path: Path):
    written = record()
    kinds = written["trial_type"]
    written["trial_type"] = np.where(kinds == 1, 2, np.where(kinds == 2, 1, kinds))  # the difficulty stays right
    assert levels(released(tmp_path, written)) == {(OTHER, True), (A_C, False)}


def test_both_options_are_looked_at(tmp_path: Path):
    written = record()
    written["trials"][:, 1:] = written["trials"][np.arange(6), 1 + written["correct_answer"]][:, None]  # no lure
    assert levels(released(tmp_path, written)) == {(OTHER, True), (OTHER, False)}


def test_an_image_beside_three_others_is_no_reason_to_refuse(tmp_path: Path):
    written = record()
    a, b, c, d, e, f = images_of(written)
    for pairs in ([[a, b], [d, b], [b, c], [e, f]], [[a, b], [b, c], [b, e], [b, f]], [[a, b]] * 4):
        written["memory"] = np.array(pairs)
        assert levels(released(tmp_path, written)) == {(OTHER, True), (OTHER, False)}


def ring(written: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The record with a first row that leads from the last image of a sequence to its first."""
    a, b, c, d, e, _ = images_of(written)
    return {**written, "memory": np.array([[c, a], [a, b], [b, c], [d, e]])}


def test_rings_are_refused_in_training_as_in_evaluation(tmp_path: Path):
    made = released(tmp_path, record(), ring(record(1)))
    for split in ("train", "valid"):
        name = tmp_path / split / "trials-00000-of-00001"
        with pytest.raises(Refused) as caught:
            made.with_kinds(split, [0])
        assert str(caught.value) == f"{name}, record 2: the pairs of its memory form a ring"


def test_any_memory_of_known_images_is_counted_or_refused(tmp_path: Path):
    written, random = record(), np.random.default_rng(0)
    images, outcomes = np.array(images_of(written)), set()
    for _ in range(200):
        written["memory"] = images[random.integers(0, 6, (4, 2))]
        write_split(tmp_path, "valid", [written])
        made = Released(tmp_path, seed=0, batch_size=2, **SMALL)
        try:
            (place,) = made.places("valid")
            for direct in (True, False):
                _, _, kind = made.example(place, np.array(random.integers(2**32), np.uint32), direct=direct)
                assert kind in ((A_B, B_C, OTHER) if direct else (A_C, OTHER))
            outcomes.add("counted")
        except Refused as error:
            outcomes.add(str(error).split(", ")[-1])
    assert outcomes == {"counted", "record 1: the pairs of its memory form a ring"}


def test_the_command_tells_a_ring_in_one_sentence(tmp_path: Path):
    whole = record(0, sequences=16, width=1000)
    memory = whole["memory"].copy()
    memory[1] = memory[0, ::-1]
    for split, written in (("train", [whole]), ("valid", [whole, {**whole, "memory": memory}]), ("test", [whole])):
        write_split(tmp_path / "data", split, written)
    start = ["--preset", "smoke", "--backend", "pai_checks", "--data-dir", "data", "--out", "run"]
    sentence = refused(inside(*start, cwd=tmp_path, main=main))
    assert sentence == "data/valid/trials-00000-of-00001, record 2: the pairs of its memory form a ring"
