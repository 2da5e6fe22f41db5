"""Mutated files, thousands of them, seeded: a reader gives a value or a sentence, and never anything else."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from attack_runs import CONFIG
from task_helpers import ROOT

from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.checkpoint import Checkpoint, canonical, from_bytes, to_bytes
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.network import Leaf, Network, Own
from tasks import history
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi
from tasks.export import __main__ as export
from tasks.flags import to_json
from tasks.metrics import TRAIN_KEYS, Window
from tasks.pai.own import load
from tasks.pai.settings import PaiConfig
from tasks.pai.task import Pai
from tasks.parity import Parity, ParityConfig
from tasks.records import line_of, read_records
from tasks.runs import Run
from tasks.summary import of_record

HERE = Path("here.safetensors")
ODD = [None, True, 0, -1, 0.5, 1e308, 10**38, 10**400, "", "x" * 5000, "a\nb", "\0", "nan", [], {}, [[]], [1, 2]]
ODD += [[None] * 4, {"a": 1}, {"loss": []}, "../../x", "/dev/zero", 2**63, -(2**63), 1e-320, ["x"], [[1, 2, 3, 4]]]
RAW = [b"NaN", b"Infinity", b"1e999", b"[" * 5000, b'{"a":' * 5000, b'"\\ud800"', b"\xff", b"01", b"-0", b"1" * 5000]


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The paths to all values within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, (*path, name)))]


def changed(value: Any, chance: random.Random) -> Any:
    """A copy with one value replaced, removed or added."""
    value = json.loads(json.dumps(value))
    *way, last = chance.choice(places(value)[1:])
    inner = value
    for name in way:
        inner = inner[name]
    action = chance.randrange(4)
    if action == 0:
        del inner[last]
    elif action == 1 and isinstance(inner, dict):
        inner[chance.choice(["other", "a\nb", "", "update", "kind"])] = chance.choice(ODD)
    else:
        inner[last] = chance.choice(ODD)
    return value


def broken(data: bytes, chance: random.Random) -> bytes:
    """The bytes with some of them changed, left out, repeated, or replaced by what is almost JSON."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(made) + 1)
        action = chance.randrange(5)
        if action == 0:
            made[at:at] = chance.choice(RAW)
        elif action == 1:
            made[at : at + chance.randint(1, 9)] = b""
        elif action == 2:
            made[at : at + 1] = bytes([chance.randrange(256)])
        elif action == 3:
            del made[at:]
        else:
            made[at:at] = made[at : at + 40]
    return bytes(made)


def mutants(value: Any, count: int, seed: int) -> list[bytes]:
    """Half of them changed as values, half as bytes."""
    chance, data = random.Random(seed), json.dumps(value).encode()
    made = [json.dumps(changed(value, chance)).encode() for _ in range(count // 2)]
    return [*made, *(broken(data, chance) for _ in range(count // 2))]


def survive(call: Callable[[], object]) -> bool:
    """Whether the call gives a value; it may refuse in one sentence, and nothing else."""
    try:
        call()
    except Refused as error:
        sentence = str(error)
    else:
        return True
    assert sentence.isprintable() and 0 < len(sentence) < 6000
    return False


@pytest.mark.parametrize(
    ("task", "config"), [(Parity, CONFIG), (Babi, BabiConfig()), (Pai, PaiConfig())], ids=["parity", "babi", "pai"]
)
def test_configs(task: Any, config: Any, tmp_path: Path):
    content = {"task": task.NAME, "backend": "jax", "config": to_json(config), "began_with": "0" * 64, "data": "1" * 64}
    own = Own("net.py:build", "2" * 64, {"x": [Leaf((3,), "float32")]}, 2, "classes", (4,))
    content["network"] = Network(own, config.halting()).to_json()
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    accepted = 0
    for data in mutants(content, 1000, 1):
        (tmp_path / "config.json").write_bytes(data)
        survive(lambda: history.load(tmp_path))
        survive(lambda: export.open_run(tmp_path, None))
        if survive(lambda: Run.open(tmp_path, task.NAME, task.Config)):
            run = Run.open(tmp_path, task.NAME, task.Config)
            survive(run.own_backend)
            accepted += 1
            assert isinstance(run.config, task.Config) and run.resume_command() and run.evaluate_command()
    assert 20 < accepted < 900  # some are as good as before


def signed(about: dict[str, Any]) -> bytes:
    """A file whose checksum is right, whatever it says."""
    arrays = {"params.w": np.zeros(3, np.float32), "update": np.array(40)}
    text = canonical({**about, "checksum": checkpoint.checksum(arrays, about)})
    return checkpoint.library().save(arrays, metadata={"pondernet": text})


def test_checkpoints_that_are_signed():
    run = Run(Path("run"), "parity", CONFIG, "jax")
    window = {"sums": dict.fromkeys(TRAIN_KEYS, 0.5), "count": 3, "forward_passes": 9}
    about = {"format": checkpoint.FORMAT, **run.checkpoint_about(40, "1.0.0", window)}
    chance, accepted = random.Random(2), 0
    for _ in range(2000):
        data = signed(changed(about, chance))
        if survive(lambda data=data: run.check(from_bytes(data, HERE), HERE)):
            found = from_bytes(data, HERE).about
            assert Window(**found.get("window", {})).count >= 0 and found["update"] >= 0
            accepted += 1
    assert 20 < accepted < 1000


def test_checkpoints_whose_bytes_are_broken(tmp_path: Path):
    run = Run(Path("run"), "parity", CONFIG, "jax")
    arrays = {"params.w": np.zeros(3, np.float32), "update": np.array(40)}
    data = to_bytes(Checkpoint(arrays, run.checkpoint_about(40, "1.0.0", {})))
    length = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    chance = random.Random(3)
    for number in range(2000):
        made = broken(header, chance)
        size = len(made) if number % 4 else chance.choice([0, 1, 2**24, 2**40, 2**63, len(made) + 9])
        file = size.to_bytes(8, "little") + made + rest
        if survive(lambda file=file: from_bytes(file, HERE)):
            assert from_bytes(file, HERE).about["update"] == 40
        (tmp_path / "x").write_bytes(broken(data, chance))
        survive(lambda: checkpoint.read(tmp_path / "x"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "sessions.jsonl", "evaluations.jsonl"])
def test_records(name: str, tmp_path: Path):
    (first, *_) = [path for path in sorted((ROOT / "docs" / "results").rglob(name)) if path.stat().st_size]
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    chosen = [next(record for record in lines if record.get("kind") == kind) for kind in {r.get("kind") for r in lines}]
    accepted = 0
    for record in sorted(chosen, key=str):
        for data in mutants(record, 1000, 4):
            (tmp_path / name).write_bytes(data.replace(b"\n", b" ") + b"\n")
            if survive(lambda: read_records(tmp_path / name)):
                (read,) = read_records(tmp_path / name)
                assert json.loads(line_of(read)) is not None
                accepted += 1
                if read.get("kind") == "eval":
                    for task in (Parity(ParityConfig()), Babi(BabiConfig())):
                        assert of_record(read, task)
    assert accepted > 100


@pytest.mark.parametrize(("kinds", "dimensions"), [("f", 2), ("iu", 1)])
def test_arrays(kinds: str, dimensions: int, tmp_path: Path):
    array = np.zeros((12, 5), np.float32) if dimensions == 2 else np.arange(60)
    np.save(tmp_path / "good.npy", array)
    data, chance, accepted = (tmp_path / "good.npy").read_bytes(), random.Random(5), 0
    end = 10 + int.from_bytes(data[8:10], "little")
    words = [b"-", b"(", b"'", b"{", b"99999999999", b"True", b"()", b"'<f8'", b"'|O'", b"('<f4',)", b"\n", b",", b"L"]
    for number in range(2000):
        header = bytearray(data[10:end].rstrip())
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(header) + 1)
            header[at : at + chance.choice([0, 0, 1, 5])] = chance.choice(words) * chance.choice([1, 1, 2, 3000])
        size = len(header) if number % 5 else chance.randrange(2**16)
        made = data[:8] + (size % 2**16).to_bytes(2, "little") + bytes(header) + data[end:]
        (tmp_path / "x.npy").write_bytes(made if number % 3 else broken(data, chance))
        if survive(lambda: load(tmp_path / "x.npy", "--embeddings", kinds, dimensions)):
            found = load(tmp_path / "x.npy", "--embeddings", kinds, dimensions)
            assert found.dtype.kind in kinds and found.ndim == dimensions and float(np.sum(found)) is not None
            accepted += 1
    assert accepted > 50
