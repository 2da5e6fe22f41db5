"""The command line of a task (`tasks.contracts.Task`): train, resume, evaluate."""

import argparse
import contextlib
import dataclasses
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ponder_ref.checks import quoted
from ponder_ref.runtime import checkpoint as checkpoints
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import Refused, cannot_write, interrupted, one_sentence, reason
from ponder_ref.runtime.files import alone, make_folder
from ponder_ref.runtime.values import Integer
from tasks import evaluation, summary
from tasks.batches import stretches
from tasks.config import TrainingConfig, first_difference
from tasks.contracts import Task
from tasks.flags import Parser, add_flags, flag, flag_value, given, make, refuse, show
from tasks.loop import first_parameters, train
from tasks.own_network import check_same, describe, own_code, try_out
from tasks.runs import Origin, Run, read_records
from tasks.trainers import THREADS, default_backend, first_state, make_trainer

EXIT_CODES = "exit codes: 0 done, 1 diverged, 2 refused (one sentence), 130 or 143 stopped by a signal with all saved"
RUNS = Path("runs")


def parser(task: type[Task]) -> Parser:
    p = Parser(
        prog=f"python -m tasks.{task.NAME}",
        description=task.TITLE,
        usage=f"python -m tasks.{task.NAME} [--preset NAME] [--backend NAME] [--out DIR] [FLAG VALUE ...]",
        epilog=presets_text(task)
        + "\n\nexamples:\n"
        + "\n".join(f"  {line}" for line in task.EXAMPLES)
        + f"\n\n{EXIT_CODES}",
        argument_default=argparse.SUPPRESS,
    )
    p.add_argument(
        "--preset", metavar="NAME", help=f"settings that flags override: {', '.join(task.PRESETS)} (default default)"
    )
    p.add_argument(
        "--backend", metavar="NAME", help="torch, jax, or a module with make_trainer (default: jax if it is installed)"
    )
    p.add_argument(
        "--model",
        metavar="FILE.py:FUNCTION",
        help="a network of your own instead of the task's: FUNCTION(problem) returns a PonderNet; also needed by "
        "--resume and --evaluate",
    )
    p.add_argument(
        "--threads",
        metavar="N",
        help=f"threads of the backend ({THREADS}; default 1; JAX: one, or as many as it likes)",
    )
    folder = p.add_argument_group("run folder")
    folder.add_argument(
        "--out",
        metavar="DIR",
        help=f"the run's folder, new or empty (default: the first of {RUNS}/{task.NAME}, {RUNS}/{task.NAME}-2, … "
        "that is not there)",
    )
    folder.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --out; backend and threads may change, nothing else",
    )
    folder.add_argument(
        "--stop-at",
        metavar="UPDATE",
        help="end after this update with all saved, as if interrupted there (exit code 0); --resume goes on from it to "
        "--updates, whose rates it has all the time",
    )
    folder.add_argument(
        "--checkpoint", metavar="FILE", help="with --resume or --evaluate: this checkpoint, not the newest"
    )
    evaluation.add_run_flags(p, task)
    add_flags(p, task.Config, task.PRESETS["default"])
    task.add_own_flags(p)
    return p


def presets_text(task: type[Task]) -> str:
    """Every preset with its settings, as flags."""
    lines = ["presets (what they do not set is as in the paper):"]
    for name, values in task.PRESETS.items():
        words = " ".join(f"{flag(key)} {show(value)}" for key, value in values.items())
        lines += textwrap.wrap(
            f"{name}: {words}", 100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    return "\n".join(lines)


def preset_of(task: type[Task], options: argparse.Namespace) -> Mapping[str, Any]:
    name = getattr(options, "preset", "default")
    if name not in task.PRESETS:
        raise Refused(f"--preset must be one of {', '.join(task.PRESETS)}, got {quoted(name)}")
    return task.PRESETS[name]


def stop_update(options: argparse.Namespace, config: TrainingConfig) -> int | None:
    """The update of --stop-at: one at which a call of the backend ends, so that going on makes the same calls."""
    if not hasattr(options, "stop_at"):
        return None
    update = flag_value(options, "stop_at", Integer(1, config.updates), config.updates)
    if update < config.updates and all(update % period for period in config.periods):
        first = max(update // period * period for period in config.periods)
        _, last = next(stretches(update, config.updates, *config.periods))
        ends = f"{first} or {last}" if first else str(last)
        raise Refused(f"--stop-at {update} is in the middle of a call of the backend (--chunk); it can be {ends}")
    return update


def free_folder(name: str) -> Path:
    """Makes the folder of a run that was given none: runs/parity, runs/parity-2, …, the first that is not there.

    As the system makes a folder once, of two commands at the same moment each has its own.
    """
    make_folder(RUNS)
    for number in itertools.count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(folder, error) from None
    raise AssertionError("numbers do not end")


def start(task: type[Task], options: argparse.Namespace) -> int:
    """A new run."""
    refuse(options, ("checkpoint",), "needs --resume or --evaluate")
    config = make(task.Config, preset_of(task, options), given(options, task.Config))
    backend = options.backend if hasattr(options, "backend") else default_backend()
    stop_at = stop_update(options, config)
    checkpoints.library()
    made, code = task(config), own_code(task, options, backend)
    # What is refused here leaves no folder behind.
    if code is not None:
        made.own = describe(code, made)
    params = first_parameters(made)
    trainer = make_trainer(backend, made, flag_value(options, "threads", THREADS, 1), code)
    if code is not None:
        try_out(code, trainer, first_state(trainer, made, params), made)
    origin = Origin(None if config.start is None else checkpoints.fingerprint(params or {}), made.check())
    if hasattr(options, "out"):
        folder = Path(options.out)
        make_folder(folder)
    else:
        folder = free_folder(task.NAME)
        with contextlib.suppress(OSError):  # of an output that cannot be written is said at the end
            print(f"the run is in {folder}", flush=True)
    with alone(folder):
        run = Run.create(folder, task.NAME, config, backend, origin, made.own)
        return finish(run, made, trainer, None, backend, stop_at)


def resume(task: type[Task], options: argparse.Namespace) -> int:
    """Goes on with a run; flags of the config may be repeated, not changed."""
    if not hasattr(options, "out"):
        raise Refused("--resume needs --out DIR, the folder of the run")
    explicit = given(options, task.Config)
    run = Run.open(Path(options.out), task.NAME, task.Config)
    wanted = {**(preset_of(task, options) if hasattr(options, "preset") else {}), **explicit}
    if difference := first_difference(run.config, dataclasses.replace(run.config, **wanted)):
        raise Refused(f"--resume cannot change the config of {run.folder}: {difference}")
    stop_at = stop_update(options, run.config)
    backend = options.backend if hasattr(options, "backend") else run.own_backend()
    file = Path(options.checkpoint) if hasattr(options, "checkpoint") else None
    with alone(run.folder):
        start_from = run.load(file)
        made, code = task(run.config), own_code(task, options, backend)
        made.own = check_same(code, run.own, run.folder)
        if run.origin.data not in (None, made.check()):
            raise Refused(f"the files that {run.folder} is trained on have changed since it began")
        trainer = make_trainer(backend, made, flag_value(options, "threads", THREADS, 1), code)
        return finish(run, made, trainer, start_from, backend, stop_at)


def finish(
    run: Run,
    made: Task,
    trainer: Trainer,
    start_from: checkpoints.Checkpoint | None,
    backend: str,
    stop_at: int | None,
) -> int:
    """Trains, draws the run's figures and prints the summary."""
    try:
        from tasks import plots

        text = train(run, made, trainer, start_from, backend, stop_at)
        if text is None:
            drawn, note = plots.draw_run(run, made)
            text = summary.of_run(run, made, plots.final(read_records(run.metrics)), drawn, note)
    except KeyboardInterrupt as error:  # before the training, or while figures are drawn
        raise interrupted(error, f", everything is saved; go on with: {run.resume_command()}") from None
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(
            f"everything is saved in {run.folder}, but the summary cannot be written: {reason(error)}"
        ) from None
    return 0


@one_sentence
def main(task: type[Task], arguments: Sequence[str] | None = None) -> int:
    options = parser(task).parse(arguments)
    task.use_own_flags(options)
    if hasattr(options, "evaluate"):
        return evaluation.evaluate_run(task, options)
    refuse(options, evaluation.FLAGS, "goes with --evaluate RUN")
    try:
        return resume(task, options) if hasattr(options, "resume") else start(task, options)
    except KeyboardInterrupt as error:  # a run that has begun says more
        raise interrupted(error, " before the training began: give the command again") from None
