"""The two backends in one process: equal numbers to the tolerances, equal random numbers and steps bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

import ponder_jax  # noqa: E402
import ponder_ref  # noqa: E402
import ponder_torch  # noqa: E402
from ponder_ref.conformance.cases import Seeded  # noqa: E402
from ponder_ref.conformance.check_gradients import ponder_arguments  # noqa: E402
from ponder_ref.conformance.compare import assert_close, quantity  # noqa: E402
from ponder_ref.conformance.makers import MAKERS  # noqa: E402
from ponder_ref.conformance.objectives import OBJECTIVES  # noqa: E402
from ponder_ref.conformance.oracle import INTEGER_FIELDS, terms, undecided  # noqa: E402
from ponder_ref.conformance.subject import PRIORS, Subject, round_to  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TORCH, JAX = Subject(ponder_torch, "ponder_torch"), Subject(ponder_jax, "ponder_jax")
SIZES = ((1, (5,)), (3, ()), (6, (4, 3)), (20, (64,)), (300, (8,)))
CORNERS = (0.0, -0.0, 17.0, -17.0, 89.0, -89.0, 1e4, -1e4)
# The dtypes of a process: JAX has float64 only where the whole process has it, and then this file is run again.
DTYPES = ("float64",) if jax.config.jax_enable_x64 else ("float32", "bfloat16", "float16")
HALF = ("bfloat16", "float16")
WITHOUT_HALF = (*PRIORS, "adam_update", "orthogonalize", "muon_update", "clip_by_global_norm", "schedule")
IDS = 100_000
UPDATES = 40
WAITS = "runs where the whole process has float64"


def agree(function: str, arrays: dict, arguments: dict, dtype: str) -> None:
    """Both backends on the same numbers: fields compared as the judge compares a backend with the reference."""
    arrays = {name: round_to(dtype, array) for name, array in arrays.items()}
    one, other = (subject.call(function, arrays, arguments, dtype) for subject in (TORCH, JAX))
    assert set(one) == set(other)
    integer = INTEGER_FIELDS.get(function)
    excused = np.zeros((), bool)
    if integer:
        differ = one[integer].astype(np.int64) != other[integer].astype(np.int64)
        excused = differ & undecided(function, arrays, arguments, one[integer], other[integer], dtype)
    scales = terms(function, arrays, arguments)
    for field, value in one.items():
        kind = "exact" if field == integer else quantity(function, field)
        want = other[field].astype(np.float64)
        skip = np.broadcast_to(excused, want.shape)
        given = {**arrays, **arguments}
        assert_close(
            "B3",
            f"{function}.{field}",
            value,
            want,
            kind=kind,
            dtype=dtype,
            terms=scales.get(field),
            arguments=given,
            skip=skip,
        )


@pytest.mark.parametrize(
    ("function", "dtype"),
    [(name, dtype) for name in MAKERS for dtype in DTYPES if dtype not in HALF or name not in WITHOUT_HALF],
)
def test_random_arguments(function: str, dtype: str):
    rng = np.random.default_rng(11)
    for steps, batch in SIZES:
        agree(function, *MAKERS[function](Seeded(rng, steps, batch)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("remainder", ["last", "normalize"])
def test_corners(remainder: str, dtype: str):
    grid = np.stack(np.meshgrid(*[CORNERS] * 4, indexing="ij")).reshape(4, -1)
    agree("log_halting", {"halt_logits": grid}, {"remainder": remainder}, dtype)
    agree("halting_lengths", {"halt_logits": grid}, {"epsilon": 0.05}, dtype)
    lam = np.stack(np.meshgrid(*[(0.0, 1.0, 0.5, 2.0**-14)] * 4, indexing="ij")).reshape(4, -1)
    agree("log_halting_from_lambdas", {"lambdas": lam}, {"remainder": remainder}, dtype)
    agree("act_halting", {"lambdas": lam}, {}, dtype)
    log_p = ponder_ref.log_halting(grid, remainder=remainder)
    arrays = {"log_p": log_p, "step_losses": np.cos(grid), "log_prior": np.log([0.5, 0.25, 0.125, 0.125])}
    agree("ponder_loss", arrays, {"beta": 0.25}, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(6))
def test_gradients(seed: int, dtype: str):
    steps, batch = ((4, (3,)), (20, (16,)), (200, (5,)))[seed % 3]
    arrays, arguments = ponder_arguments(Seeded(np.random.default_rng(seed), steps, batch))
    arrays = {name: round_to(dtype, array) for name, array in arrays.items()}
    found = []
    for subject in (TORCH, JAX):
        objective = OBJECTIVES["grad_ponder_loss"].make(subject, arrays, arguments, dtype)
        wrt = [arrays[name] for name in objective.wrt]
        found.append(subject.gradients(objective.fn, wrt, dtype, objective.constants))
    (value, grads), (other, wanted) = found
    assert_close("L4", "loss", value, other.astype(np.float64), kind="loss", dtype=dtype, terms=objective.size)
    for name, grad, want, noise in zip(objective.wrt, grads, wanted, objective.magnitudes, strict=True):
        what, want = f"gradient by {name}", want.astype(np.float64)
        assert_close("L5", what, grad, want, kind="gradient", dtype=dtype, terms=noise)


@pytest.mark.parametrize("draw", [0, 1, 4095])
@pytest.mark.parametrize("seed", [0, 2021, 2**64 - 1])
def test_uniforms_are_equal_bit_for_bit(seed: int, draw: int):
    ids = np.concatenate([np.arange(IDS - 4), [-1, -(2**31), 2**31 - 1, 0]]).astype(np.int32)
    want = ponder_ref.halting_uniforms(seed, ids, max_steps=3, draw=draw)
    assert want.dtype == np.float32
    for subject in (TORCH, JAX):
        held = subject.array("example_ids", ids, "float32")
        made = subject.backend.halting_uniforms(seed, held, max_steps=3, draw=draw)
        got = subject.backend.to_numpy(made)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cut", [False, True])
def test_drawn_steps_are_equal_bit_for_bit(cut: bool, dtype: str):
    rng = np.random.default_rng(12)
    lam = rng.random((12, IDS)) ** 2
    # u is a multiple of 2⁻²⁴: λ that equal some u decide whether the comparison is strict.
    lam[:, ::5] = np.float64(ponder_ref.halting_uniforms(9, np.arange(0, IDS, 5), max_steps=12, draw=2))
    lam = round_to(dtype, np.where(rng.random(lam.shape) < 0.02, rng.integers(0, 2, lam.shape), lam))
    arrays = {"lambdas": lam, "example_ids": np.arange(IDS)}
    if cut:
        arrays["lengths"] = rng.integers(1, 13, IDS)
    arguments = {"seed": 9, "draw": 2}
    want = ponder_ref.draw_steps(lam, 9, arrays["example_ids"], draw=2, lengths=arrays.get("lengths"))
    assert len(set(want.tolist())) == 12
    for subject in (TORCH, JAX):
        np.testing.assert_array_equal(subject.call("draw_steps", arrays, arguments, dtype)["result"], want)


def least_squares(backend, optimiser: str, updates: int) -> np.ndarray:
    """The weights `[6, 4]` after updates of ‖X·W − Y‖²/2 by a backend's optimiser, its gradient written out."""
    rng = np.random.default_rng(13)
    x, y = rng.normal(size=(32, 6)), rng.normal(size=(32, 4))
    data, target, w = (backend.from_numpy(array, "float64") for array in (x, y, rng.normal(size=(6, 4))))
    m = v = backend.from_numpy(np.zeros((6, 4)), "float64")
    for step in range(1, updates + 1):
        grad = data.T @ (data @ w - target) / 32
        grad = backend.clip_by_global_norm({"w": grad}, max_norm=2.0).grads["w"]
        rate = backend.schedule(step, learning_rate=0.05, total=UPDATES, warmup=5, decay="cosine")
        if optimiser == "adam":
            w, m, v = backend.adam_update(w, grad, m, v, step=step, learning_rate=rate, weight_decay=0.01)
        else:
            w, m = backend.muon_update(w, grad, m, step=step, learning_rate=rate, weight_decay=0.01)
    return np.asarray(backend.to_numpy(w))


@pytest.mark.skipif("float64" not in DTYPES, reason=WAITS)
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_training_stays_together_in_float64(optimiser: str):
    want = least_squares(ponder_ref, optimiser, UPDATES)
    start = least_squares(ponder_ref, optimiser, 1)
    assert np.abs(want - start).max() > 0.1
    for backend in (ponder_torch, ponder_jax):
        got = least_squares(backend, optimiser, UPDATES)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * np.abs(want).max())


@pytest.mark.skipif("float64" in DTYPES, reason="this is that process")
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
    assert WAITS not in done.stdout
