"""python -m tasks.babi.ship RUN: makes of a run the checkpoint that comes with the repository, with its card.

Written are model.safetensors (the config and the parameters, float32), card.json and card.md. The scores on the card
are computed here: on the generated test questions, and with --data-dir on the validation files there.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref.runtime.checkpoint import PARAMETERS, PREFIX, Checkpoint, fingerprint, parameters, to_bytes
from ponder_ref.runtime.errors import Refused, cannot_write, one_sentence
from ponder_ref.runtime.files import TEMPORARY, alone, is_unfinished, make_folder, write_together
from tasks.babi.card import make_card, render
from tasks.babi.report import verdict
from tasks.babi.task import PRETRAINED, Babi
from tasks.evaluation import evaluate
from tasks.flags import Parser, flag_value, to_json
from tasks.runs import CONFIG, METRICS, MODEL, Run, is_shipped, open_trained
from tasks.trainers import THREADS, default_backend, make_state, make_trainer

MAX_BYTES = 4 * 10**6
CARD, PAGE = "card.json", "card.md"


def parser() -> Parser:
    p = Parser(prog="python -m tasks.babi.ship", description=__doc__, argument_default=argparse.SUPPRESS)
    p.add_argument("run", metavar="RUN", help="a run of python -m tasks.babi on generated stories")
    p.add_argument("--checkpoint", metavar="FILE", help="this checkpoint of the run, not the newest")
    p.add_argument("--out", metavar="DIR", help="folder to write to (default the one in the repository)")
    p.add_argument("--data-dir", metavar="DIR", help="released files: the card has the scores of their validation")
    p.add_argument("--backend", metavar="NAME", help="torch or jax, for the scores (default: jax if it is installed)")
    p.add_argument("--threads", metavar="N", help=f"threads of the backend ({THREADS}; default 1)")
    return p


def open_run(name: str, file: str | None) -> tuple[Run, Checkpoint]:
    """The run and its checkpoint, if they may be shipped."""
    run, found = open_trained(Babi, name, file)
    if is_shipped(run.folder):
        raise Refused(f"{name} is a shipped checkpoint already, not a run")
    refuse_files(name, run)
    if run.own is not None:
        raise Refused(f"{name} has a network of somebody's own: one of the task's is shipped")
    if run.config.method != "ponder":
        raise Refused(f"{name} is a run of --method {run.config.method}: one of ponder is shipped")
    return run, found


def refuse_files(name: str, run: Run) -> None:
    if run.config.data_dir is not None:
        raise Refused(f"{name} was trained on files (--data-dir): only runs on generated stories are shipped")


def earlier_runs(run: Run) -> list[tuple[Run, int]]:
    """The runs that a run began with (--start), the first of them first, and the updates that each had made."""
    found: list[tuple[Run, int]] = []
    while (name := run.config.start) is not None:
        if Path(name).is_file() or len(found) > 99:
            raise Refused(f"{run.folder} began with {name}, which is not a run: what that was trained on is not known")
        before, checkpoint = open_trained(Babi, name)
        if is_shipped(before.folder):
            raise Refused(f"{run.folder} began with {name}, a shipped checkpoint: its card does not have those runs")
        if run.origin.began_with not in (None, fingerprint(parameters(checkpoint.arrays))):
            raise Refused(f"{name} has changed since {run.folder} began with it: its card would be wrong")
        refuse_files(name, before)
        found.append((before, checkpoint.about["update"]))
        run = before
    return found[::-1]


def check_out(out: Path) -> None:
    """Nothing is written over but another shipped checkpoint, or one that was left unfinished."""
    if not os.path.lexists(out):
        return
    try:
        names = {name for name in os.listdir(out) if not TEMPORARY.fullmatch(name)} if out.is_dir() else {METRICS}
    except OSError as error:
        raise cannot_write(out, error) from None
    unfinished = names == {CARD} and is_unfinished(out / CARD)
    if names and (MODEL not in names or METRICS in names) and not unfinished:
        raise Refused(f"--out {out} must be new, empty or a shipped checkpoint")


def scores(config: Any, params: dict[str, np.ndarray], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The evaluations of the card, of the very numbers that are shipped."""
    trainer = make_trainer(
        getattr(options, "backend", default_backend()), Babi(config), flag_value(options, "threads", THREADS, 1)
    )
    state = make_state(trainer.init, params, options.run)
    wanted = [("test", None)] + ([("valid", options.data_dir)] if hasattr(options, "data_dir") else [])
    found = []
    for split, folder in wanted:
        task = Babi(dataclasses.replace(config, data_dir=folder))
        examples = config.test_examples or config.eval_examples
        record = {"split": split, "data": task.describe(split)}
        found.append({**record, **evaluate(trainer, state, task, split, examples=examples)})
        print(f"{split}, {found[-1]['data']}: {verdict(found[-1])}", flush=True)
    return found


def ship(options: argparse.Namespace) -> Path:
    """Writes the folder."""
    run, found = open_run(options.run, getattr(options, "checkpoint", None))
    out = Path(getattr(options, "out", PRETRAINED))
    check_out(out)
    earlier = earlier_runs(run)
    config = dataclasses.replace(run.config, dtype="float32")
    params = {name: np.asarray(array, np.float32) for name, array in parameters(found.arrays).items()}
    about = {"task": run.task, "config": to_json(config), "spec": found.about["spec"], "update": found.about["update"]}
    about |= {"network": Babi(config).network().to_json()}
    arrays = {PREFIX + name: array for name, array in params.items()}
    data = to_bytes(Checkpoint(arrays, about), PARAMETERS)
    if len(data) > MAX_BYTES:
        raise Refused(f"{options.run} is too large to be shipped: {len(data)} bytes, at most {MAX_BYTES}")
    size = {"parameters": sum(array.size for array in params.values()), "bytes": len(data)}
    file = {**size, "sha256": hashlib.sha256(data).hexdigest()}
    card = make_card([*earlier, (run, about["update"])], about, file, scores(config, params, options))
    make_folder(out)
    cards = {out / PAGE: render(card).encode(), out / CARD: (json.dumps(card, indent=1) + "\n").encode()}
    with alone(out, "writing to"):
        write_together({out / MODEL: data, **cards})
        with contextlib.suppress(OSError):
            (out / CONFIG).unlink(missing_ok=True)  # which older shipped checkpoints had
    return out


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    print(f"wrote {ship(parser().parse(arguments))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
