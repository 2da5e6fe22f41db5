"""Files from others: nothing that is not a file of a fitting size is read, and what is crafted gets one sentence."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from attack_runs import CONFIG, OWN, babi_run, parity_run
from task_helpers import TINY, inside, refused

from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.checkpoint import Checkpoint, from_bytes, to_bytes
from ponder_ref.runtime.errors import Refused
from tasks import figures
from tasks.babi import ask, ship
from tasks.export import __main__ as export
from tasks.pai.own import Own, load
from tasks.parity import Parity
from tasks.records import read_records
from tasks.runs import Run
from tasks.summary import of_record


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert inside(*TINY, *OWN, "--out", folder, cwd=folder.parent).returncode == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


# Nothing is read that is not a file of a fitting size.


def commands(run: Path) -> dict[str, Callable]:
    return {
        "evaluate": lambda: inside("--evaluate", run, *OWN, cwd=run.parent),
        "resume": lambda: inside("--out", run, "--resume", *OWN, cwd=run.parent),
        "figures": lambda: inside(run, "--out", "drawn", cwd=run.parent, main=figures.main),
        "export": lambda: inside(run, "--format", "onnx", "--out", "x", cwd=run.parent, main=export.main),
        "start": lambda: inside(*TINY, *OWN, "--start", run, "--out", "new", cwd=run.parent),
    }


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_zeros(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 * 10**9)  # sparse: it takes no room


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("replace", [replace_by_fifo, replace_by_zeros])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoints/update-00000120.safetensors"])
def test_files_that_never_end_are_not_read(replace: Callable, name: str, run: Path):
    replace(run / name)
    readers = {"config.json": commands(run), "metrics.jsonl": ("resume", "figures")}
    for command in readers.get(name, ("evaluate", "resume", "export", "start")):
        sentence = refused(commands(run)[command]())
        assert Path(name).name in sentence and ("a named pipe" in sentence or "too large" in sentence), command
    (run / name).unlink()  # so that nothing that looks at the folder later stops there


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_device_is_no_checkpoint(run: Path, tmp_path: Path):
    sentence = refused(inside("--evaluate", "run", "--checkpoint", "/dev/zero", *OWN, cwd=tmp_path))
    assert sentence == "cannot read /dev/zero: it is a device, not a regular file"
    assert "/dev/zero" in refused(inside(*TINY, *OWN, "--start", "/dev/zero", "--out", "new", cwd=tmp_path))


def test_a_sparse_checkpoint_below_the_limit_is_refused_by_its_header(tmp_path: Path):
    path = tmp_path / "update-00000001.safetensors"
    data = to_bytes(good())
    for head in (b"", data, data[:8] + b"x", (2**40).to_bytes(8, "little")):
        path.write_bytes(head)
        os.truncate(path, 2**32)
        with pytest.raises(Refused, match="not a whole safetensors file"):
            checkpoint.read(path)


# Crafted files end in one sentence.


def good(**about: object) -> Checkpoint:
    run = Run(Path("run"), "parity", CONFIG, "jax")
    return Checkpoint({"params.w": np.zeros(2, np.float32)}, run.checkpoint_about(40, "1.0.0", {}) | about)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "config.json: expected object, got array"),
        ('{"task":' * 100_000, "config.json: task: expected str, got object"),
        ('{"x":' * 100_000, "config.json is not JSON"),
        ('{"task": "parity", "backend": "jax", "config": {"beta": 1%s}}' % ("0" * 400), "beta: "),
        ('{"task": "parity", "backend": "jax", "config": {"beta": 1%s}}' % ("0" * 38), "beta: "),
        ('{"task": "parity", "backend": "jax", "config": {"beta": NaN}}', "config.json is not JSON"),
        ('{"task": "parity", "backend": "jax", "config": {"beta": 1e999}}', "number out of range"),
        ('{"task": "parity", "backend": "jax", "config": {"beta": [[]]}}', "beta: "),
        (
            '{"task": "parity", "backend": "jax", "config": {"start": "a\\u0000b"}}',
            "start: it must be text that can be printed",
        ),
        (
            '{"task": "parity", "backend": "jax", "config": {"start": "a\\nb"}}',
            "start: it must be text that can be printed",
        ),
        ('{"task": "parity", "backend": "jax", "config": []}', "config: expected object, got array"),
        ('{"task": "parity", "backend": "jax", "config": {"a\\nb": 1}}', "unknown field 'a\\nb'"),
        (f'{{"task": "chess", "backend": "jax", "config": {{"x": {"[" * 99}{"]" * 99}}}}}', "nested too deeply"),
        ('{"task": "parity", "backend": "a\\u001b[2J", "config": {}}', "backend must be text that can be printed"),
        ("", "config.json is not JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_crafted_configs_get_one_sentence(content: str, words: str, run: Path):
    (run / "config.json").write_text(content)
    for name, command in commands(run).items():
        sentence = refused(command())
        assert words in sentence and len(sentence) < 400, name


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"task": 3}, "task: expected str, got int"),
        ({"config": 1000}, "config: expected object, got int"),
        ({"config": {"beta": 10**30}}, "beta: "),
        ({"config": {"beta": [[[]]]}}, "beta: "),
        ({"update": []}, "update: expected int, got array"),
        ({"update": 0.5}, "update: expected int, got float"),
        ({"update": -1}, "update: expected int >= 0"),
        ({"window": "x"}, "window: expected object, got str"),
        ({"window": {"sums": {"a": 1}}}, "sums must be of loss, "),
        ({"window": {"sums": "jax"}}, "window.sums: expected object, got str"),
        ({"window": {"other": 1}}, "window: object contains unknown field other"),
        ({"other": 1}, "unknown field other"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_checkpoints_that_are_signed_and_odd_get_one_sentence(about: dict, words: str):
    with pytest.raises(Refused) as refusal:
        from_bytes(to_bytes(good(**about)), Path("here.safetensors"))
    assert str(refusal.value).startswith("here.safetensors: ") and words in str(refusal.value)


@pytest.mark.parametrize("name", ["task", "config", "spec", "update"])
def test_checkpoints_that_lack_a_field_get_one_sentence(name: str):
    arrays, about = good()
    del about[name]
    with pytest.raises(Refused, match=f"here.safetensors: {name} is missing"):
        from_bytes(to_bytes(Checkpoint(arrays, about)), Path("here.safetensors"))


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', "[" * 100_000, '{"a":' * 100_000, "", "\ud800".encode("utf-8", "replace").decode()]
)
def test_metadata_that_is_not_json_gets_one_sentence(text: str):
    data = checkpoint.library().save({"w": np.zeros(2)}, metadata={"pondernet": text})
    with pytest.raises(Refused, match=r"here\.safetensors is a safetensors file, but not a checkpoint of this project"):
        from_bytes(data, Path("here.safetensors"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_wherever_a_checkpoint_is_read(value: float, tmp_path: Path):
    parity_run(tmp_path / "run", broken=value)
    babi_run(tmp_path / "babi", broken=value)
    edited = ["--preset", "smoke", "--hidden", "8", "--max-steps", "3", *OWN, "--out", "new"]
    for done in (
        inside("--evaluate", "run", *OWN, cwd=tmp_path),
        inside("--out", "run", "--resume", *OWN, cwd=tmp_path),
        inside(*edited, "--start", "run", cwd=tmp_path),
        inside(*edited, "--start", "run/checkpoints/update-00000007.safetensors", cwd=tmp_path),
        inside("run", "--format", "onnx", "--out", "x", cwd=tmp_path, main=export.main),
        inside("babi", "--out", "shipped", cwd=tmp_path, main=ship.main),
        inside("--run", "babi", cwd=tmp_path, main=ask.main),
    ):
        assert "params.halt.b holds a number that is not finite" in refused(done)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["babi", "run"]


def npy(header: bytes, data: bytes = b"\0" * 4096) -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "header",
    [
        b"-" * 2999,
        b"+" * 9000,
        b"(" * 9000,
        b"{'descr': (), 'fortran_order': False, 'shape': (60, 5, 1), }",
        b"{'descr': ('<f4',), 'fortran_order': False, 'shape': (), }",
        b"{'descr': 'f4,f4', 'fortran_order': False, 'shape': (True, 5), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (60, 5), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (60, 99999999999), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (60, -5), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (60, 5), 'x': 1}",
        b"{'descr': '<f3', 'fortran_order': False, 'shape': (60, 5), }",
        b"",
    ],
    ids=lambda value: value.decode()[:60],
)
def test_headers_of_arrays_are_not_evaluated(header: bytes, tmp_path: Path):
    (tmp_path / "x.npy").write_bytes(npy(header))
    with pytest.raises(
        Refused, match=r"^--embeddings: .*x\.npy (is not a whole \.npy file of numbers|must hold numbers)"
    ):
        load(tmp_path / "x.npy", "--embeddings", "f", 2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_that_numpy_writes_are_read(order: str, dtype: str, version: tuple[int, int], tmp_path: Path):
    array = np.asarray(np.arange(60).reshape(12, 5), dtype, order)
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version)
    read = load(tmp_path / "x.npy", "--embeddings", "f", 2)
    assert read.dtype == array.dtype and np.array_equal(read, array)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_an_array_is_no_fifo(tmp_path: Path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(Refused, match=r"--embeddings: cannot read .*x\.npy: it is a named pipe"):
        load(tmp_path / "x.npy", "--embeddings", "f", 2)


def test_labels_without_end_are_not_read(tmp_path: Path):
    for name, descr, shape in (("x.npy", "<f2", "(9999999999, 1)"), ("y.npy", "|i1", "(9999999999,)")):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        (tmp_path / name).write_bytes(npy(header, b""))
        os.truncate(tmp_path / name, 20 * 10**9 + 10**4)  # sparse: it takes no room
    with pytest.raises(Refused, match=r"y\.npy has 9999999999 entries, at most 100000000"):
        Own(tmp_path / "x.npy", tmp_path / "y.npy")


def test_records_that_lack_what_a_summary_shows_do_not_end_a_run(run: Path, tmp_path: Path):
    """A run without a test ends with its last evaluation, which a file may have changed."""
    assert inside(*TINY, *OWN, "--out", "no-test", cwd=tmp_path).returncode == 0
    path = tmp_path / "no-test" / "metrics.jsonl"
    kept = [record for record in read_records(path) if not str(record.get("split", "")).startswith("test")]
    del kept[-1]["loss_reg"]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))
    assert "nan" in "\n".join(of_record(read_records(path)[-1], Parity(CONFIG)))
