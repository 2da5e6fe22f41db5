"""What the tests of exported files share: a model whose halting is known, run folders of it, and the right answers."""

import contextlib
import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from task_helpers import ROOT

import ponder_ref
from ponder_ref.models import rnn as models
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.checkpoint import Checkpoint, save
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.train import flatten_state
from tasks.export.__main__ import main
from tasks.export.policy import Exit
from tasks.parity import Parity, ParityConfig
from tasks.runs import Run

BITS, HIDDEN, STEPS, SEED = 6, 16, 12, 2**63 + 2**31 + 7  # a seed that uses both words, up to their sign bits
CONFIG = ParityConfig(bits=BITS, hidden=HIDDEN, max_steps=STEPS, remainder="normalize")
MODEL = Parity(CONFIG).model()
EXITS = {
    "sample": Exit("sample", STEPS),
    "quantile": Exit("quantile", STEPS, q=0.75),
    "fixed": Exit("fixed", STEPS),
    "expected": Exit("expected", STEPS, epsilon=0.05, remainder="normalize"),
}
MARGIN = 1e-5  # the standard's tolerance `cdf`: nearer than that, float32 may halt a step sooner or later
Runner = Callable[..., tuple[np.ndarray, np.ndarray, int]]  # (x, ids) -> y_hat, steps, iterations


class Answers(NamedTuple):
    """y_hat and steps `[batch]`, and how far the nearest decision was from going the other way."""

    y_hat: np.ndarray
    steps: np.ndarray
    margin: float


def parameters(model: Rnn = MODEL) -> dict[str, np.ndarray]:
    """Random, but for unit 0: it rises with the steps, the later the larger the first entry of x is, and halts."""
    params = model.initial_parameters(3)
    params["rnn.w_x"][0, 0], params["rnn.w_h"][0, 0], params["rnn.b"][0] = -1.0, 1.2, 0.5
    params["rnn.w_x"][1:, 0] = params["rnn.w_h"][1:, 0] = 0.0
    params["halt.w"] *= 0.3
    params["halt.w"][0], params["halt.b"][0] = 6.0, -2.5
    return {name: x.astype(np.float32) for name, x in params.items()}


def inputs(count: int, hardness: float | None = None) -> np.ndarray:
    """Random inputs `[count, BITS]`; −3 is easy for all, +3 is so hard that chance alone would halt."""
    x = np.random.default_rng(count).standard_normal((count, BITS)).astype(np.float32)
    if hardness is not None:
        x[:, 0] = hardness
    return x


def make_run(
    folder: Path,
    params: dict[str, np.ndarray] | None = None,
    config: ParityConfig = CONFIG,
    network: Network | None = None,
) -> Path:
    """A run folder with one checkpoint of the parameters; older ones do not describe their network."""
    params = parameters() if params is None else params
    run = Run.create(folder, "parity", config, "jax")
    run.make_folders()
    nothing = {name: np.zeros_like(x) for name, x in params.items()}
    about = run.checkpoint_about(7, ponder_ref.SPEC_VERSION, {}, network)
    save(run.checkpoints, Checkpoint(flatten_state(params, nothing, nothing, 7), about), every=1)
    return folder


def flags(exit: Exit) -> list[str]:
    """The command line's way to say it."""
    own = {"quantile": ["--q", str(exit.q)], "expected": ["--epsilon", str(exit.epsilon or "off")]}
    return ["--policy", exit.policy, "--max-steps", str(exit.max_steps), *own.get(exit.policy, [])]


def export(*arguments: object) -> subprocess.CompletedProcess:
    """`python -m tasks.export` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def run_example(format: str, folder: Path) -> None:
    """docs/export.md's Python block for a format runs beside a file `smoke.FORMAT`, and its loop ends as it should."""
    config = ParityConfig(bits=4, hidden=8, max_steps=5)
    run = make_run(folder / "run", Parity(config).model().initial_parameters(0), config)
    policy = {"onnx": [], "stablehlo": ["--policy", "quantile", "--q", "0.9", "--max-steps", "8"]}[format]
    assert export(run, "--format", format, "--out", folder / f"smoke.{format}", *policy).returncode == 0
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    (block,) = [found for found in re.findall(r"```python\n(.*?)```", text, flags=re.S) if f"smoke.{format}" in found]
    names: dict[str, Any] = {}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(block, names)
    assert names["steps"].shape == (2,) and names["iterations"] == names["steps"].max()


def onnx_session(file: Path | bytes) -> Any:
    """The file in onnxruntime, on one thread."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])


def onnx_runner(file: Path | bytes) -> Runner:
    session = onnx_session(file)
    names = {each.name for each in session.get_inputs()}

    def run(x: np.ndarray, ids: np.ndarray):
        given = {"x": x, "seed": np.array(SEED, np.uint64), "example_ids": ids}
        y_hat, steps, iterations = session.run(None, {name: given[name] for name in names})
        return y_hat, steps, int(iterations)

    return run


def unroll(params: dict[str, np.ndarray], x: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and logits of all steps, `[N, batch, ...]`, in float64 by the reference (M8)."""
    params = {name: value.astype(np.float64) for name, value in params.items()}
    projected = models.rnn_project(params, x.astype(np.float64))
    h, results = models.rnn_initial_state(params, projected), []
    for _ in range(steps):
        h = models.rnn_transition(params, projected, h)
        results.append(models.rnn_readout(params, h))
    y_hat, z = zip(*results, strict=True)
    return np.stack(y_hat), np.stack(z)


def right_answers(y_hat: np.ndarray, z: np.ndarray, ids: np.ndarray, exit: Exit) -> Answers:
    """What the file must answer, by the reference's functions of whole unrolls."""
    n, left = np.arange(1, len(z) + 1)[:, None], np.cumsum(-np.logaddexp(0, z), axis=0)
    if exit.policy == "sample":
        lambdas = 1 / (1 + np.exp(-z))
        steps = ponder_ref.draw_steps(lambdas, SEED, ids)
        gaps = lambdas - ponder_ref.halting_uniforms(SEED, ids, max_steps=len(z))
    elif exit.policy == "quantile":
        log_p = ponder_ref.log_halting(z)
        steps, gaps = ponder_ref.quantile_steps(log_p, q=exit.q), np.cumsum(np.exp(log_p), axis=0) - exit.q
    elif exit.epsilon is None:
        steps, gaps = np.full(z.shape[1], len(z)), np.ones_like(z)
    else:
        steps = ponder_ref.halting_lengths(z, epsilon=exit.epsilon)
        gaps = left - np.log(exit.epsilon)
    # At N there is nothing to decide, nor after the row has halted.
    margin = np.where((n <= steps) & (n < len(z)), np.abs(gaps), 1.0).min()
    if exit.policy == "expected":
        log_p = ponder_ref.log_halting(z, remainder=exit.remainder, lengths=steps)
        return Answers(ponder_ref.expected_prediction(log_p, y_hat), steps, margin)
    at = (steps - 1).reshape(1, -1, *[1] * (y_hat.ndim - 2))
    return Answers(np.take_along_axis(y_hat, at, axis=0)[0], steps, margin)


def check_answers(run: Runner, exit: Exit, count: int = 1000) -> None:
    """The file answers as the model's own unroll, row by row, and runs no step after the slowest row's last."""
    x, ids = inputs(count), np.arange(count) * 77_777_777 - 5  # ids beyond 32 bits, and negative ones
    y_hat, steps, iterations = run(x, ids)
    right = right_answers(*unroll(parameters(), x, exit.max_steps), ids, exit)
    assert right.margin > MARGIN, "choose other inputs: these are too near for float32"
    np.testing.assert_array_equal(steps, right.steps)
    np.testing.assert_allclose(y_hat, right.y_hat, rtol=1e-5, atol=2e-5)
    assert iterations == right.steps.max()
    if exit.policy != "fixed":
        assert len(np.unique(steps)) > 5, "the rows must differ, or little is compared"


def check_iterations(run: Runner, exit: Exit) -> None:
    """The loop ends with the slowest row, alone or among 32: early where all are easy, late if one is hard."""
    for count in (1, 32):
        ids = np.arange(count)
        easy, hard = (run(inputs(count, hardness), ids) for hardness in (-3.0, 3.0))
        assert easy[2] == easy[1].max() <= 3
        assert hard[2] == hard[1].max() == exit.max_steps
    x = inputs(32, -3.0)
    x[17] = inputs(1, 3.0)
    y_hat, steps, iterations = run(x, np.arange(32))
    assert iterations == steps[17] == exit.max_steps
    # The easy rows keep their answers while the hard one goes on.
    alone = run(inputs(32, -3.0), np.arange(32))
    others = np.arange(32) != 17
    np.testing.assert_array_equal(steps[others], alone[1][others])
    np.testing.assert_allclose(y_hat[others], alone[0][others], rtol=1e-6, atol=1e-6)
