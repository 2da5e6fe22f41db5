"""python -m benchmarks: measures speed as ratios of times taken side by side in one run.

Exit code 0: measured. 2: a wrong option, or what a benchmark needs at least is not installed, in one sentence.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared import (
    NO_FRAMEWORK,
    Run,
    Skipped,
    import_or_skip,
    interleaved,
    made,
    quartiles,
    ratios,
)
from ponder_ref.runtime.errors import Refused, one_sentence
from tasks.command import THREADS
from tasks.flags import Parser

BETA, LAMBDA_P = 0.01, 0.2
MOST = 10**6  # of anything that is counted


def _inputs(steps: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(steps, batch)) - 1.0).astype(np.float32), rng.random((steps, batch), np.float32)


def _torch_run(loss: Callable, z: np.ndarray) -> Run:
    """Value and gradient by z of a torch function, by plain autograd."""
    import torch

    leaf = torch.from_numpy(z).requires_grad_()

    def run() -> float:
        value = loss(leaf)
        torch.autograd.grad(value, leaf)
        return value.item()

    return run


def _torch_loss(steps: int, losses: np.ndarray) -> Callable:
    import torch

    backend = import_or_skip("ponder_torch", "pip install -e '.[torch]'")
    held, prior = torch.from_numpy(losses), backend.geometric_log_prior(LAMBDA_P, steps)
    return lambda z: backend.ponder_loss(backend.log_halting(z), held, prior, beta=BETA).loss


def torch_eager(z: np.ndarray, losses: np.ndarray) -> Run:
    import_or_skip("torch", "pip install -e '.[torch]'")
    return _torch_run(_torch_loss(len(z), losses), z)


def torch_compiled(z: np.ndarray, losses: np.ndarray) -> Run:
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    run = _torch_run(torch.compile(_torch_loss(len(z), losses), fullgraph=True, dynamic=False), z)
    try:
        run()
    except Exception as error:  # no C++ compiler, or one that inductor cannot use
        raise Skipped(f"torch.compile failed here with {type(error).__name__}") from error
    return run


def jax_jit(z: np.ndarray, losses: np.ndarray) -> Run:
    jax = import_or_skip("jax", "pip install -e '.[jax]'")
    backend = import_or_skip("ponder_jax", "pip install -e '.[jax]'")
    held, prior = jax.numpy.asarray(losses), backend.geometric_log_prior(LAMBDA_P, len(z))
    logits = jax.numpy.asarray(z)

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(logits):
        return backend.ponder_loss(backend.log_halting(logits), held, prior, beta=BETA).loss

    def run() -> float:
        value, _ = jax.block_until_ready(value_and_grad(logits))
        return float(value)

    return run


def labml(z: np.ndarray, losses: np.ndarray) -> Run:
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    peer = import_or_skip("benchmarks.peers.labml", "pip install --no-deps labml-nn==0.5.1")
    loss = peer.training_loss(peer.geometric_log_prior(LAMBDA_P, len(z)), BETA)
    return _torch_run(partial(loss, step_losses=torch.from_numpy(losses)), z)


CONTENDERS = {
    "torch eager": torch_eager,
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
    "labml-nn, torch eager": labml,
}
OURS = ("torch eager", "torch.compile", "jax.jit")


def halting(options: argparse.Namespace) -> int:
    """Value and gradient of ponder_loss(log_halting(z)) by z, float32."""
    z, losses = _inputs(options.steps, options.batch)
    runs = made({name: partial(make, z, losses) for name, make in CONTENDERS.items()})
    ours = {name: run() for name, run in runs.items() if name in OURS}
    if not ours:
        raise Skipped(NO_FRAMEWORK)
    base = next(iter(ours))
    for name, value in ours.items():  # what does not agree is not worth timing
        if not abs(value - ours[base]) <= 1e-5 * abs(ours[base]):
            raise RuntimeError(f"{name} gives {value}, {base} gives {ours[base]}")
    seconds = interleaved(runs, options.repetitions)
    print(f"value and gradient of ponder_loss(log_halting(z)), z [{options.steps}, {options.batch}] float32")
    print(f"time relative to {base}, {options.repetitions} interleaved repetitions\n")
    print(ratios(quartiles(seconds, base)))
    if "labml-nn, torch eager" in runs:
        print("\nlabml-nn computes another KL, and its forward pass also draws a step for each example.")
    return 0


def _listed(known: tuple[str, ...], text: str) -> tuple[str, ...]:
    names = tuple(text.replace(",", " ").split())
    if not names or not set(names) <= set(known):
        raise argparse.ArgumentTypeError(f"must be some of {', '.join(known)}, got {text!r}")
    return tuple(dict.fromkeys(names))


def _means(text: str) -> tuple[float, ...]:
    """Mean numbers of steps, each of at least 1."""
    try:
        found = tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        found = ()
    if not found or not all(1 <= mean <= MOST for mean in found):  # NaN is not, either
        raise argparse.ArgumentTypeError(f"must be numbers of at least 1, separated by commas, got {text!r}")
    return found


def _positive(least: int, most: int, text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
        shown = text if len(text) < 30 else f"{text[:10]}..."
        raise argparse.ArgumentTypeError(f"must be an integer in {least}..{most}, got {shown!r}")
    return int(text)


def _add(commands: Any, name: str, help: str, *counts: tuple[str, int, int, str]) -> argparse.ArgumentParser:
    """A benchmark with flags for these counts: name, least, default and meaning.

    It is the function of its name in the module of its name, imported when it is run: it needs the tasks too.
    """
    command = commands.add_parser(name, help=help)
    for count, least, value, what in counts:
        kind = partial(_positive, least, THREADS.high if count == "threads" else MOST)
        command.add_argument(f"--{count}", type=kind, default=value, help=f"{what} (default: {value})")
    command.set_defaults(run=lambda options: getattr(importlib.import_module(f"benchmarks.{name}"), name)(options))
    return command


def _add_names(command: argparse.ArgumentParser, flag: str, *known: str) -> None:
    command.add_argument(f"--{flag}", type=partial(_listed, known), default=known, help=f"of {', '.join(known)}")


def _add_out(command: argparse.ArgumentParser, name: str) -> None:
    command.add_argument("--out", type=Path, metavar="DIR", help=f"also write what is printed to DIR/{name}.json")


def _add_updates(commands: Any, task: str, help: str, *own: tuple[str, int, int, str]) -> argparse.ArgumentParser:
    """A benchmark of a task's updates; `own` are counts of its own."""
    shared = ("updates", 1, 2, "of a repetition"), ("repetitions", 2, 5, "of each contender")
    command = _add(commands, task, help, *shared, *own, ("threads", 1, 1, "of each framework"))
    command.add_argument("--preset", metavar="NAME", default="default", help=f"of tasks.{task} (default: default)")
    _add_names(command, "frameworks", "torch", "jax")
    _add_out(command, task)
    return command


@one_sentence
def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="BENCHMARK")
    contenders = "the halting loss: torch eager, torch.compile, jax.jit, labml-nn"
    counts = ("steps", 1, 20, "N"), ("batch", 1, 4096, "examples"), ("repetitions", 2, 50, "of each contender")
    _add(commands, "halting", contenders, *counts).set_defaults(run=halting)
    counts = ("repetitions", 2, 20, "of each"), ("threads", 1, 1, "of each framework")
    _add_out(_add(commands, "training", "updates of parity models: labml-nn, bare products, ε", *counts), "training")
    padded = "padded", 1, 8, "examples of a batch that is padded to 320 sentences"
    about = "updates of the bAbI model: batches by length, padding, bare products"
    _add_updates(commands, "babi", about, padded, ("questions", 20, 1000, "generated per task"))
    command = _add_updates(commands, "pai", "updates of the model of pairs: both backends, bare products, data")
    command.add_argument("--xl", action="store_true", help="time updates with --memory xl, too")
    command = _add(
        commands,
        "inference",
        "leaving early: fixed N, the whole batch's exit, predict, peers",
        ("examples", 1, 2048, "M"),
        ("steps", 1, 20, "N"),
        ("slots", 1, 64, "side by side"),
        ("units", 1, 128, "of the RNN"),
        ("width", 1, 256, "d of the transformer"),
        ("tokens", 1, 64, "of the transformer"),
        ("repetitions", 1, 1, "of each contender; ten times as many of the RNN"),
        ("threads", 1, 1, "of each framework"),
    )
    command.add_argument("--means", type=_means, default=(4, 10, 16), help="mean steps (default: 4,10,16)")
    _add_names(command, "frameworks", "torch", "jax")
    _add_names(command, "networks", "rnn", "transformer")
    command.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu beside busy neighbours")
    folder = Path("runs/benchmarks")
    command.add_argument("--out", type=Path, default=folder, help=f"folder of JSON and picture (default: {folder})")
    options = parser.parse(arguments)
    try:
        return options.run(options)
    except Skipped as reason:
        raise Refused(str(reason)) from None


if __name__ == "__main__":
    sys.exit(main())
