"""Networks across backends: what one has saved, the other and the reference load, with the same answers in float64."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
jax = pytest.importorskip("jax")
pytest.importorskip("flax")

from net_cases import MODELS, STEPS, WAYS, inputs, parameters  # noqa: E402

import ponder_jax  # noqa: E402
import ponder_ref  # noqa: E402
import ponder_torch  # noqa: E402
from ponder_ref.runtime.network import Network  # noqa: E402
from ponder_ref.runtime.saved import write_saved  # noqa: E402
from ponder_ref.runtime.settings import Halting  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
IN_FLOAT64 = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="JAX has float64 only in a process of its own")
ROWS = {"method": "ut-act", "act_epsilon": 0.3}
CASES = [(name, way) for name in MODELS for way in ("ponder", "epsilon", "act", "repeat", "once")]


def given(backend: Any, name: str) -> Any:
    """Inputs of a model as the backend's arrays, in float64."""

    def leaf(x: np.ndarray) -> Any:
        return backend.from_numpy(x, "float64" if x.dtype == np.float32 else x.dtype.name)

    x = inputs(name)
    return {key: leaf(value) for key, value in x.items()} if isinstance(x, dict) else leaf(x)


def told(backend: Any, folder: Path, name: str) -> dict[str, np.ndarray]:
    """What a loaded network gives, 0 beyond each example's own steps, and its answers where its method has them."""
    net = backend.load(folder)
    out = net(given(backend, name))
    lengths = backend.to_numpy(out.lengths)
    own = np.arange(1, lengths.max() + 1)[:, None] <= lengths
    y_hat, z = (backend.to_numpy(x)[: lengths.max()] for x in (out.y_hat, out.halt_logits))
    found = {
        "steps": lengths,
        "y_hat": np.where(own.reshape(*own.shape, *[1] * (y_hat.ndim - 2)), y_hat, 0),
        "halt_logits": np.where(own, z, 0),
    }
    if out.act is not None:
        return {**found, "cost": backend.to_numpy(out.act.remainder)}
    for policy in ("sample", "expected") if net.method == "ponder" else ("fixed",):
        said = net.predict(given(backend, name), policy=policy, seed=7)
        found |= {f"{policy} steps": backend.to_numpy(said.steps), policy: backend.to_numpy(said.y_hat)}
    return found


@IN_FLOAT64
@pytest.mark.parametrize(("name", "way"), [*CASES, ("transformer", "ut-act")])
def test_a_folder_of_one_backend_is_the_network_of_the_others(name: str, way: str, tmp_path: Path):
    halting = Halting(max_steps=STEPS[name], **WAYS.get(way, ROWS))
    write_saved(tmp_path, Network(MODELS[name], halting), parameters(name), {})
    written = (tmp_path / "model.safetensors").read_bytes()
    for writer in (ponder_torch, ponder_jax):
        assert writer.load(tmp_path).save(tmp_path / writer.NAME).read_bytes() == written
    want = told(ponder_ref, tmp_path / "jax", name)
    for backend, folder in ((ponder_torch, tmp_path / "jax"), (ponder_jax, tmp_path / "torch")):
        got = told(backend, folder, name)
        assert got.keys() == want.keys()
        for key, value in want.items():
            about = f"{key} by {backend.NAME}"
            if "steps" in key:
                np.testing.assert_array_equal(got[key], value, err_msg=about)
            else:
                assert got[key].dtype == np.float64, about
                np.testing.assert_allclose(got[key], value, rtol=0, atol=1e-10, err_msg=about)


@pytest.mark.skipif(bool(jax.config.jax_enable_x64), reason="this is that process")
def test_all_of_this_in_float64():
    """This file again in a process with JAX_ENABLE_X64=1."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "backends" / "torch", ROOT / "backends" / "jax")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))],
        env=os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{len(CASES) + 1} passed" in done.stdout
