"""python -m tasks.export RUN --format onnx|stablehlo --out FILE: a trained run as a file that exits by itself."""

import argparse
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ponder_ref.base import SPEC_VERSION
from ponder_ref.exits import POLICIES
from ponder_ref.models import check_parameters
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime import checkpoint
from ponder_ref.runtime.errors import Refused, one_sentence
from ponder_ref.runtime.files import is_unfinished, make_folder, write_together
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.saved import network_of
from ponder_ref.runtime.schemas import read_json
from ponder_ref.runtime.settings import Halting
from ponder_ref.runtime.values import Choice, Integer, Number
from tasks.export.policy import MOST_STEPS, Exit
from tasks.flags import Parser, flag_value, refuse, show
from tasks.registry import TASKS, task_class
from tasks.runs import Run, is_of_a_run, read_config

NEEDED = {"onnx": ("onnx",), "stablehlo": ("jax", "flatbuffers")}  # format -> what writing it imports
FORMATS, POLICY = Choice(tuple(NEEDED)), Choice(POLICIES)
STEPS, Q, EPSILON = Integer(1, MOST_STEPS), Number("(0, 1]"), Number("(0, 1)", off=True)
PAPER_EPSILON = 0.05  # §2.3

EPILOG = """examples:
  python -m tasks.export runs/ponder --format onnx --out parity.onnx
  python -m tasks.export runs/ponder --format stablehlo --policy quantile --q 0.9 --max-steps 40 --out parity.stablehlo

FILE.json describes the file: inputs, outputs, policy, versions. docs/export.md shows how to run both formats.
exit codes: 0 done, 2 refused (one sentence)"""


def parser() -> Parser:
    p = Parser(
        prog="python -m tasks.export",
        description="A trained run as one file that answers, and stops computing when every row has halted.",
        usage=f"python -m tasks.export RUN --format {'|'.join(NEEDED)} --out FILE [FLAG VALUE ...]",
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
    )
    p.add_argument("run", metavar="RUN", help="the run's folder")
    p.add_argument("--format", required=True, metavar="NAME", help=f"of the file ({FORMATS})")
    p.add_argument("--out", required=True, metavar="FILE", help="the file to write; an earlier export is replaced")
    p.add_argument("--checkpoint", metavar="FILE", help="this checkpoint, not the newest")
    halting = p.add_argument_group("halting")
    halting.add_argument(
        "--policy",
        metavar="NAME",
        help=f"({POLICY}; default sample, fixed for runs that do not halt) sample: by chance, as in the paper; "
        "quantile: when the mass q has halted; fixed: all steps; expected: the mean of the steps' predictions",
    )
    halting.add_argument(
        "--max-steps", metavar="N", help=f"largest number of steps, also beyond training's ({STEPS}; default the run's)"
    )
    halting.add_argument("--q", metavar="Q", help=f"quantile: the mass ({Q}; default {Exit.q})")
    halting.add_argument(
        "--epsilon",
        metavar="E",
        help=f"expected: halt once less than this mass is left ({EPSILON}; default the run's, else {PAPER_EPSILON})",
    )
    return p


class Opened(NamedTuple):
    """A run's checkpoint: the settings of its network, how it ponders, its parameters in float32, its description."""

    model: Rnn
    halting: Halting
    params: dict[str, np.ndarray]
    about: dict[str, Any]


def model_of(network: Network, folder: Path) -> Rnn:
    """The settings of a network that can be exported; any other is refused."""
    if network.model.kind != Rnn.kind:
        kind = network.model.kind
        raise Refused(f"{folder} has a network of the kind {kind!r}; what can be exported is {Rnn.kind}")
    return network.model


def open_run(folder: Path, file: Path | None) -> Opened:
    """What is exported: a network that can be, of the run's newest checkpoint or of that in `file`."""
    name = read_config(folder).task
    if name not in TASKS:
        raise Refused(f"{folder} is a run of the task {name!r}, which is not one of {', '.join(TASKS)}")
    run = Run.open(folder, name, task_class(name).Config)
    found = run.load(file)
    if found is None:
        raise Refused(f"there is no checkpoint in {run.checkpoints}")
    params = checkpoint.parameters(found.arrays)
    try:
        network = network_of(found.about, {name: tuple(x.shape) for name, x in params.items()})
        model = model_of(network, folder)
        check_parameters(model, params)
    except ValueError as error:
        raise Refused(f"{file or run.checkpoints} does not fit the run's model: {error}") from None
    return Opened(model, network.halting, {k: np.asarray(x, np.float32) for k, x in params.items()}, found.about)


class Description(msgspec.Struct):
    """What FILE.json must have to be known as the description of an export."""

    format: str
    sha256: str


def is_description(path: Path) -> bool:
    """Whether a file is the description of an export, finished or not."""
    if is_unfinished(path):
        return True
    try:
        found = read_json(path, Description)
    except Refused:
        return False
    return found.format in NEEDED and len(found.sha256) == 64


def check_out(out: Path, beside: Path) -> None:
    """Nothing is written over but an earlier export, which its description tells."""
    if out.is_dir():
        raise Refused(f"--out {out} is a folder, not a file")
    for path in (out, beside):
        if is_of_a_run(path):
            raise Refused(f"--out {out}: {path} would be a file of the run in its folder: choose another name")
        if os.path.lexists(path) and not is_description(beside):
            raise Refused(f"--out {out}: {path} is not an earlier export: remove it or choose another name")


def make_exit(options: argparse.Namespace, halting: Halting) -> Exit:
    """The policy of the flags, with the run's own values for what they leave open."""
    if halting.method not in ("ponder", "repeat", "once"):
        raise Refused(f"{options.run} is a run of --method {halting.method}; ponder, repeat and once can be exported")
    policy = flag_value(options, "policy", POLICY, "sample" if halting.method == "ponder" else "fixed")
    if policy != "fixed" and halting.method != "ponder":
        raise Refused(f"--policy {policy} needs a run of --method ponder, and {options.run} is one of {halting.method}")
    if policy != "quantile":
        refuse(options, ("q",), "goes with --policy quantile")
    if policy != "expected":
        refuse(options, ("epsilon",), "goes with --policy expected")
    own = PAPER_EPSILON if halting.epsilon is None else halting.epsilon
    return Exit(
        policy=policy,
        max_steps=flag_value(options, "max_steps", STEPS, 1 if halting.method == "once" else halting.max_steps),
        q=flag_value(options, "q", Q, Exit.q),
        epsilon=flag_value(options, "epsilon", EPSILON, own) if policy == "expected" else None,
        remainder=halting.remainder,
    )


def check_installed(format: str) -> None:
    for name in NEEDED[format]:
        if find_spec(name) is None:
            install = checkpoint.INSTALL.replace("jax,tasks", "jax,tasks,export")
            raise Refused(f"--format {format} needs {name!r}, which is not installed: {install}")


def export(options: argparse.Namespace) -> str:
    """Writes the file and its description; what was done, in one line."""
    format, out = flag_value(options, "format", FORMATS, ""), Path(options.out)
    beside = out.with_name(out.name + ".json")
    check_out(out, beside)
    file = Path(options.checkpoint) if hasattr(options, "checkpoint") else None
    model, halting, params, about = open_run(Path(options.run), file)
    exit = make_exit(options, halting)
    check_installed(format)
    module: Any = importlib.import_module(f"tasks.export.{'onnx_file' if format == 'onnx' else format}")
    description = {
        **module.about(model, exit),
        "policy": exit.settings(),
        "task": about["task"],
        "update": about["update"],
        "spec": SPEC_VERSION,
    }
    data = module.write(model, params, exit, description)
    make_folder(out.parent)
    description["sha256"] = hashlib.sha256(data).hexdigest()
    write_together({out: data, beside: (json.dumps(description, indent=2) + "\n").encode()})
    settings = ", ".join(f"{name} {show(value)}" for name, value in exit.settings().items() if name != "name")
    return f"{out}: {format}, {len(data)} bytes, policy {exit.policy}, {settings}; described in {out.name}.json"


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    print(export(parser().parse(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
