"""One run on both backends: the same numbers, and either goes on with the other's checkpoint."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from task_helpers import TINY, parity, records

START = [*TINY, "--dtype", "float64"]


def train(folder: Path, name: str, *arguments: str) -> list[dict]:
    done = parity(*arguments, "--out", name, cwd=folder)
    assert done.returncode == 0, done.stderr
    return records(folder / name)


def assert_close(one: list[dict], other: list[dict]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"kind", "split"}:
            assert np.allclose(a[name], b[name], rtol=1e-9, atol=1e-9 if name not in ("levels",) else 2e-6), (
                name,
                a,
                b,
            )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    folder = tmp_path_factory.mktemp("both")
    expected = train(folder, "torch", *START, "--backend", "torch")
    assert_close(train(folder, "jax", *START, "--backend", "jax"), expected)
    return folder, expected


@pytest.mark.parametrize(("first", "second"), [("torch", "jax"), ("jax", "torch")])
def test_a_run_changes_backends(first: str, second: str, both: tuple[Path, list[dict]]):
    folder, expected = both
    (folder / first / "checkpoints" / "update-00000120.safetensors").unlink(missing_ok=True)
    assert_close(train(folder, first, "--resume", "--backend", second), expected)
