"""One training script on both backends at once, each in a process of its own: for the tests of identical training."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent
Arrays = dict[str, np.ndarray]


def train_both(
    script: str, dtype: str, updates: int, folder: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Arrays, Arrays]:
    """What tests/<script> BACKEND DTYPE UPDATES FILE leaves in its file, of torch and of JAX."""
    files = {backend: folder / f"{backend}.npz" for backend in ("torch", "jax")}
    children = [
        subprocess.Popen(
            [sys.executable, str(TESTS / script), backend, dtype, str(updates), str(file)],
            cwd=TESTS.parent,
            env=dict(environment),
        )
        for backend, file in files.items()
    ]
    assert [child.wait() for child in children] == [0, 0]
    one, other = (dict(np.load(file)) for file in files.values())
    return one, other
