"""The reader of released files: against an independent writer, and against files that are broken in many ways."""

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from pai_checks import materialise, read_trials, sides_of
from pai_writer import example, field, frame, masked_crc, number, trials

from ponder_ref.runtime.errors import Refused
from tasks.batches import EVAL_BATCH
from tasks.pai import tfrecord
from tasks.pai.released import Released
from tasks.pai.tfrecord import masked_bytes
from tasks.pai.trials import query_types

SMALL = {"sequences": 2, "width": 3}


TINY = {"sequences": 2, "width": 1}


def small_record(seed: int, length: int = 3, **sizes: int) -> dict[str, np.ndarray]:
    return trials(np.random.default_rng(seed), length, **(sizes or SMALL))


def write(path: Path, *contents: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(contents))
    return path


def read(path: Path, length: int = 3, **sizes: int) -> list:
    with tfrecord.opened(path) as file:
        return list(read_trials(file, path, length, **(sizes or SMALL)))


def read_tiny(data: bytes) -> list:
    """From memory: ten thousand files would take longer to open than to read."""
    return list(read_trials(io.BytesIO(data), "file", 3, **TINY))


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (bytes([255] * 32), 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_known_from_rfc_3720(data: bytes, crc: int):
    masked = int.from_bytes(masked_bytes(data), "little")
    turned = (masked - 0xA282EAD8) % 2**32
    assert (turned << 15 | turned >> 17) % 2**32 == crc


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(Refused, match=r"'google-crc32c', which is not installed: pip install"):
        masked_bytes(b"")


@pytest.mark.parametrize("size", [1, 4095, 4096, 8193, 30_011])
def test_long_checksums_agree_with_those_bit_by_bit(size: int):
    data = np.random.default_rng(size).bytes(size)
    assert masked_bytes(data) == masked_crc(data)
    changed = data[: size // 2] + bytes([data[size // 2] ^ 1]) + data[size // 2 + 1 :]
    assert masked_bytes(changed) != masked_crc(data)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("length", [3, 4])
def test_reads_what_another_program_wrote(tmp_path: Path, length: int, packed: bool):
    written = [small_record(seed, length) for seed in range(3)]
    path = write(tmp_path / "file", *(frame(example(record, packed)) for record in written))
    found = read(path, length)
    assert len(found) == 3
    for got, record in zip(found, written, strict=True):
        assert (got.memory == record["memory"]).all() and got.memory.shape == record["memory"].shape
        assert (got.queries == record["trials"]).all() and got.queries.shape == record["trials"].shape
        assert (got.sides == record["correct_answer"]).all()
        assert (got.kinds == record["trial_type"] - 1).all()
        assert (np.array([query_types(length)[i].steps for i in got.kinds]) == record["difficulty"]).all()


def test_reads_records_of_the_released_size(tmp_path: Path):
    record = trials(np.random.default_rng(0), 3)
    (got,) = read(write(tmp_path / "file", frame(example(record))), sequences=16, width=1000)
    assert got.memory.shape == (32, 2, 1000) and got.queries.shape == (48, 3, 1000)
    assert (got.queries == record["trials"]).all()


def test_records_are_read_one_at_a_time():
    data = frame(example(small_record(0))) + b"broken"
    stream = read_trials(io.BytesIO(data), "file", 3, **SMALL)
    assert next(stream).memory.shape == (4, 2, 3)
    with pytest.raises(Refused, match="record 2: cut short within its length"):
        next(stream)


def test_negative_integers_and_features_of_others_are_read():
    data = example({"a": np.array([-1, 2**62, -(2**63)]), "b": np.array([1.5], np.float32)})
    data += field(1, field(1, field(1, b"text") + field(2, field(1, field(1, b"hello"))))) + number(9 << 3) + number(7)
    found = tfrecord.parse_example(data)
    assert found["a"].tolist() == [-1, 2**62, -(2**63)] and found["b"].tolist() == [1.5]
    assert "text" not in found


def corrupted(data: bytes, ends: set[int], random: np.random.Generator) -> bytes:
    """The file with a bit turned, bytes lost, inserted, overwritten or moved, or cut anywhere but behind a record."""
    while True:
        at = int(random.integers(len(data)))
        width = int(random.integers(1, 9))
        way = random.integers(6)
        if way == 0:
            out = data[:at] + bytes([data[at] ^ 1 << int(random.integers(8))]) + data[at + 1 :]
        elif way == 1:
            out = data[:at]
        elif way == 2:
            out = data[:at] + data[at + width :]
        elif way == 3:
            out = data[:at] + random.bytes(width) + data[at:]
        elif way == 4:
            out = data[:at] + random.bytes(width) + data[at + width :]
        else:
            out = data[at:] + data[:at]
        if out != data and not (data.startswith(out) and len(out) in ends):
            return out


def test_ten_thousand_corrupt_files_are_refused_with_one_sentence():
    frames = [frame(example(small_record(seed, **TINY))) for seed in range(2)]
    whole, ends = b"".join(frames), {0, len(frames[0])}
    random = np.random.default_rng(0)
    sentences, swapped = set(), 0
    for _ in range(10_000):
        data = corrupted(whole, ends, random)
        if data == frames[1] + frames[0]:
            swapped += 1
            continue
        with pytest.raises(Refused) as caught:
            read_tiny(data)
        sentence = str(caught.value)
        assert sentence.startswith("file, record ") and "\n" not in sentence and len(sentence) < 120
        sentences.add(sentence.split(": ")[1].split(",")[0])
    assert swapped < 10
    assert {"cut short within its length", "cut short"} <= sentences
    assert {"the checksum of its length is wrong", "the checksum of its data is wrong"} <= sentences


def test_damaged_messages_with_right_checksums_are_read_or_refused():
    whole = example(small_record(0, **TINY))
    random = np.random.default_rng(1)
    refused = []
    for _ in range(2_000):
        try:
            (found,) = read_tiny(frame(corrupted(whole, set(), random)))
        except Refused as error:
            refused.append(str(error))
        else:
            assert np.isfinite(found.memory).all() and set(found.sides) <= {0, 1} and found.kinds.max() < 3
    assert len(refused) > 1_000
    assert all(sentence.startswith("file, record 1: ") for sentence in refused)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory": None}, "feature 'memory' is missing"),
        ({"memory": np.zeros(23, np.float32)}, "feature 'memory' has 23 numbers, expected 4 x 2 x 3 for length 3"),
        ({"trials": np.full((6, 3, 3), np.nan, np.float32)}, "feature 'trials' holds a number that is not finite"),
        ({"correct_answer": np.full(6, 2)}, "feature 'correct_answer' must lie in 0..1, got 2"),
        ({"correct_answer": np.zeros(6, np.float32)}, "feature 'correct_answer' must hold integers"),
        ({"trial_type": np.zeros(6, int)}, "feature 'trial_type' must lie in 1..3, got 0"),
        ({"difficulty": np.full(6, 2)}, "feature 'difficulty' must lie in 0..1, got 2"),
        (
            {"trial_type": np.array([1, 1, 3, 2, 3, 3])},
            "query 3 has trial_type 3 (A-C), which is of difficulty 1, and difficulty 0",
        ),
    ],
)
def test_wrong_features_are_named(tmp_path: Path, change: dict, sentence: str):
    record = {name: array for name, array in {**small_record(0), **change}.items() if array is not None}
    path = write(tmp_path / "file", frame(example(record)))
    with pytest.raises(Refused) as caught:
        read(path)
    assert str(caught.value) == f"{path}, record 1: {sentence}"


def test_files_that_are_no_records(tmp_path: Path):
    with pytest.raises(Refused, match="is compressed"):
        read(write(tmp_path / "zipped", gzip.compress(frame(b"x"))))
    with pytest.raises(Refused, match="no such file"):
        read(tmp_path / "absent")
    with pytest.raises(Refused, match="is a directory"):
        read(tmp_path)
    huge = (2**63).to_bytes(8, "little")
    with pytest.raises(Refused, match=r"record 1: cut short, 4 of 9223372036854775812 bytes are left"):
        read(write(tmp_path / "huge", huge, masked_crc(huge), b"1234"))


@pytest.fixture
def released(tmp_path: Path) -> Released:
    for split, files in (("train", 2), ("valid", 1), ("test", 1)):
        for i in range(files):
            contents = [frame(example(small_record(10 * files + 3 * i + k))) for k in range(3)]
            write(tmp_path / split / f"trials-{i:05}-of-{files:05}", *contents)
    return Released(tmp_path, seed=5, batch_size=8, **SMALL)


def test_released_batches_are_balanced_and_answered_by_their_memory(released: Released):
    batch, kinds = released.with_kinds("train", [3, 4])
    assert batch.inputs["images"].shape == (2, 8, 6, 3) and batch.inputs["rows"].shape == (2, 8, 4, 2)
    assert (sides_of(batch.inputs) == batch.targets).all()
    assert (np.isin(kinds, [0, 1]) == (batch.example_ids % 2 == 0)).all() and (kinds < 3).all()
    memory, _ = materialise(batch.inputs)
    known = {record.memory.tobytes() for place in released.places("train") for record in [released.read(place)]}
    assert {one.tobytes() for one in memory.reshape(-1, 4, 2, 3)} <= known


def test_released_batches_depend_on_their_number_alone(released: Released):
    together = released.batches("train", [0, 7])
    alone = released.batches("train", [7])
    for name, array in together.inputs.items():
        assert (array[1] == alone.inputs[name][0]).all()
    assert (together.targets[1] == alone.targets[0]).all()
    assert (together.inputs["images"][0] != together.inputs["images"][1]).any()
    assert released.batches("valid", [0]).targets.shape == (1, EVAL_BATCH)


def turn_bit(path: Path, record: int) -> None:
    """Changes the data of one of the three records of a file."""
    data, found = bytearray(path.read_bytes()), tfrecord.framing(path)
    data[found[record][0] + 100] ^= 1
    path.write_bytes(data)


def test_released_records_are_checked_when_they_are_first_used(released: Released):
    turn_bit(released.folder / "valid" / "trials-00000-of-00001", 1)
    first, second, _ = released.places("valid")
    released.read(first)
    with pytest.raises(Refused, match="record 2: the checksum of its data is wrong"):
        released.read(second)


@pytest.mark.parametrize("record", [0, 2])
def test_first_and_last_records_are_checked_when_a_training_begins(released: Released, record: int):
    turn_bit(released.folder / "test" / "trials-00000-of-00001", record)
    released.batches("valid", [0])
    released.check(("train", "valid"))
    with pytest.raises(Refused, match=f"test.*, record {record + 1}: the checksum of its data is wrong"):
        released.check()


def test_a_training_needs_all_splits_and_an_evaluation_its_own(released: Released):
    (released.folder / "test").rename(released.folder / "moved")
    again = Released(released.folder, seed=5, batch_size=8, **SMALL)
    again.batches("valid", [0])
    with pytest.raises(Refused, match=r"cannot read .*test: no such file"):
        again.check()


def test_names_are_checked_at_once(released: Released):
    for name in ("absent", "long" * 1000):
        with pytest.raises(Refused, match=f"{name} has no folder train, valid or test"):
            Released(released.folder / name, seed=5, batch_size=8)
    (released.folder / "train" / "trials-00000-of-00002").unlink()
    with pytest.raises(Refused, match="train lacks trials-00000-of-00002"):
        Released(released.folder, seed=5, batch_size=8)


def test_missing_files_of_a_split_are_named(released: Released, tmp_path: Path):
    (tmp_path / "train" / "trials-00001-of-00002").rename(tmp_path / "train" / "other")
    with pytest.raises(Refused, match="lacks trials-00001-of-00002"):
        released.places("train")
    (tmp_path / "test" / "trials-00000-of-00001").unlink()
    with pytest.raises(Refused, match="has no files named like"):
        released.places("test")
    with pytest.raises(Refused, match="3 or 4"):
        Released(tmp_path, seed=0, batch_size=2, length=5)
