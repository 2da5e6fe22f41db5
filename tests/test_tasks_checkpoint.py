"""Checkpoints: equal bytes for equal states, every kind of damage noticed, nothing lost when writing fails."""

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")

from ponder_ref.runtime import checkpoint, files
from ponder_ref.runtime.checkpoint import (
    FORMAT,
    PARAMETERS,
    Checkpoint,
    from_bytes,
    listed,
    newest,
    read,
    save,
    to_bytes,
    write_whole,
)
from ponder_ref.runtime.errors import Refused
from tasks.metrics import TRAIN_KEYS

HERE = Path("here.safetensors")


def example(update: int = 40) -> Checkpoint:
    rng = np.random.default_rng(update)
    arrays = {
        "params.w": rng.standard_normal((3, 4)).astype(np.float32),
        "m.w": rng.standard_normal((4, 3)).T,  # not in C order
        "update": np.array(update, np.int64),
    }
    window = {"sums": dict.fromkeys(TRAIN_KEYS, 1 / 3), "count": 3, "forward_passes": 60}
    about = {"task": "parity", "config": {"bits": 4}, "spec": "1.0.0", "update": update, "window": window}
    return Checkpoint(arrays, about)


def test_round_trip_is_exact():
    there = from_bytes(to_bytes(example()), HERE)
    for name, array in example().arrays.items():
        assert there.arrays[name].dtype == array.dtype
        assert there.arrays[name].shape == array.shape
        assert np.array_equal(there.arrays[name], array)
    assert there.about["window"]["sums"]["loss"] == 1 / 3
    assert to_bytes(Checkpoint(there.arrays, example().about)) == to_bytes(example())


def test_order_of_names_does_not_matter():
    arrays, about = example()
    turned = Checkpoint(dict(reversed(arrays.items())), dict(reversed(about.items())))
    assert to_bytes(turned) == to_bytes(example())


def test_metadata_is_one_json_string():
    data = to_bytes(example())
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert set(header["__metadata__"]) == {"pondernet"}
    assert json.loads(header["__metadata__"]["pondernet"])["update"] == 40


def test_every_flipped_bit_is_noticed():
    data = to_bytes(example())
    padding = data[8 : 8 + int.from_bytes(data[:8], "little")]
    spaces = len(padding) - len(padding.rstrip())  # the header is filled up with spaces, which mean nothing
    meaningless = range(8 + len(padding) - spaces, 8 + len(padding))
    for place in range(len(data)):
        if place in meaningless:
            continue
        broken = bytearray(data)
        broken[place] ^= 1 << (place % 8)
        with pytest.raises(Refused, match=r"here\.safetensors"):
            from_bytes(bytes(broken), HERE)


def test_every_truncation_is_noticed():
    data = to_bytes(example())
    for length in range(len(data)):
        with pytest.raises(Refused, match="not a whole safetensors file"):
            from_bytes(data[:length], HERE)


def test_foreign_files_are_refused():
    import safetensors.numpy

    for metadata in (None, {"format": "pt"}, {"pondernet": "[]"}, {"pondernet": '{"format": "other", "checksum": ""}'}):
        data = safetensors.numpy.save({"w": np.zeros(2)}, metadata=metadata)
        with pytest.raises(Refused, match="not a checkpoint of this project"):
            from_bytes(data, HERE)


def test_parameters_alone_are_read_where_they_are_enough():
    data = to_bytes(example(), PARAMETERS)
    for forms in ((PARAMETERS,), (FORMAT, PARAMETERS)):
        assert from_bytes(data, HERE, *forms).about["update"] == 40
    with pytest.raises(Refused, match=r"here\.safetensors has the parameters of a shipped checkpoint and nothing else"):
        from_bytes(data, HERE)
    with pytest.raises(Refused, match="not a checkpoint of this project"):
        from_bytes(to_bytes(example()), HERE, PARAMETERS)


def test_the_last_two_are_kept(tmp_path: Path):
    for update in (10, 20, 30):
        save(tmp_path, example(update), 10)
    assert list(listed(tmp_path)) == [20, 30]
    save(tmp_path, example(33), 10)  # an interruption
    assert list(listed(tmp_path)) == [30, 33]
    save(tmp_path, example(40), 10)
    assert list(listed(tmp_path)) == [30, 40]
    save(tmp_path, example(45), 10)  # the end
    assert list(listed(tmp_path)) == [40, 45]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "update-00000040.safetensors",
        "update-00000045.safetensors",
    ]


def test_a_damaged_newest_names_the_good_one_before_it(tmp_path: Path):
    assert newest(tmp_path) is None
    save(tmp_path, example(10), 10)
    save(tmp_path, example(20), 10)
    last = tmp_path / "update-00000020.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(Refused, match=r"00000020.*--checkpoint .*update-00000010\.safetensors"):
        newest(tmp_path)
    (tmp_path / "update-00000010.safetensors").write_bytes(b"")
    with pytest.raises(Refused, match="no other good checkpoint"):
        newest(tmp_path)


def test_missing_and_unreadable_files_are_refused(tmp_path: Path):
    with pytest.raises(Refused, match="there is no checkpoint"):
        read(tmp_path / "none.safetensors")
    with pytest.raises(Refused, match="cannot read"):
        read(tmp_path)


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_keeps_the_last_good_one(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, example(10), 10)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "write":
        if not Path("/dev/full").exists():
            pytest.skip("this system has no /dev/full")
        monkeypatch.setattr(files, "open", lambda *_: open("/dev/full", "wb"), raising=False)  # noqa: SIM115
    else:
        monkeypatch.setattr(checkpoint.os, step, full)
    with pytest.raises(Refused, match=r"cannot write .*00000020.*no space left.*last good checkpoint is .*00000010"):
        save(tmp_path, example(20), 10)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert newest(tmp_path).about["update"] == 10


def test_two_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A second writer that begins and ends while the first is at work: each file is whole, the last one stays."""
    path, flush, left = tmp_path / "file", os.fsync, ["second"]

    def other_writes(number: int) -> None:
        if left:
            write_whole(path, left.pop().encode())
            assert path.read_text() == "second"
        flush(number)

    monkeypatch.setattr(checkpoint.os, "fsync", other_writes)
    write_whole(path, b"first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_readable_by_whom_the_umask_lets(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"")
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=repr)
def test_whatever_stops_a_writer_nothing_is_left_of_it(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(checkpoint.os, "fsync", stop)
    with pytest.raises(type(error)):
        write_whole(tmp_path / "file", b"half")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(Refused, match=r"safetensors.*pip install -e"):
        checkpoint.library()
