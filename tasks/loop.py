"""The training loop. It knows no framework: chunks of batches go into a trainer, metrics come out.

Where chunks, log lines, evaluations and checkpoints fall depends on the update's number alone. A checkpoint is written
after everything else that belongs to its update. So a run that is stopped anywhere and resumed makes the same calls
with the same arguments as one that was not.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from ponder_ref import SPEC_VERSION
from ponder_ref.base import Batch
from ponder_ref.checks import quoted
from ponder_ref.models import check_parameters
from ponder_ref.runtime import checkpoint as checkpoints
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import SIGNALS, Diverged, Interrupted, Refused, Terminated, interrupted
from ponder_ref.runtime.saved import network_of
from ponder_ref.runtime.train import REST
from tasks.batches import prefetch, stretches
from tasks.contracts import Task
from tasks.evaluation import evaluate
from tasks.metrics import Window
from tasks.own_network import check_start
from tasks.progress import progress
from tasks.runs import Run, open_trained
from tasks.trainers import first_state, make_state


class StopSignals:
    """Remembers the first SIGINT or SIGTERM, so that the loop can stop at a good place; a second one acts at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    def _take(self, number: int, frame: FrameType | None) -> None:
        before, self.received = self.received, number
        if before is not None:
            self.__exit__()
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def __enter__(self) -> "StopSignals":
        main = threading.current_thread() is threading.main_thread()  # no other thread can take signals
        self._before = {number: signal.signal(number, self._take) for number in SIGNALS if main}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def training_batches(task: Task, indices: Sequence[int] | range) -> Batch:
    """The training batches of these indices as the network takes them, with the masks of its dropout."""
    batch, network = task.batches("train", indices), task.network()
    inputs = task.plain(batch.inputs) if network.is_own else batch.inputs
    masked = network.model.with_masks(inputs, task.config.seed, indices, task.config.max_steps)
    return batch._replace(inputs=masked)


def first_parameters(task: Task) -> dict[str, np.ndarray] | None:
    """The parameters that a training begins with: the task's, or those of the checkpoint of --start.

    Of a network of somebody's own they are all its variables, also those that are not trained; None are those that it
    is built with.
    """
    network = task.network()
    if task.config.start is None:
        return None if network.is_own else task.initial_parameters()
    path = Path(task.config.start)
    try:
        if path.is_file():  # also that of a shipped checkpoint: the parameters are all that is wanted
            found = checkpoints.read(path, checkpoints.FORMAT, checkpoints.PARAMETERS)
        else:
            found = open_trained(type(task), task.config.start)[1]
    except checkpoints.Damaged as error:
        raise checkpoints.Damaged(f"--start {path}: {error.said}", error.good, "give --start") from None
    except Refused as error:
        raise Refused(f"--start {path}: {error}") from None
    if found.about.get("task", task.NAME) != task.NAME:  # a network alone has none
        raise Refused(f"--start {path} is of the task {quoted(found.about['task'])}, not of {task.NAME!r}")
    params = checkpoints.parameters(found.arrays)
    try:
        theirs = network_of(found.about, {name: tuple(x.shape) for name, x in params.items()})
        if network.is_own:
            check_start(network, theirs)
            params |= {name.removeprefix(REST): x for name, x in found.arrays.items() if name.startswith(REST)}
        else:
            check_parameters(network.model, params)
    except ValueError as error:
        raise Refused(f"--start {path} does not fit the model: {error}") from None
    return params


class Training:
    """A training under way: the trainer's state, the update it has reached, and the open window of metrics."""

    def __init__(
        self, run: Run, task: Task, trainer: Trainer, start: checkpoints.Checkpoint | None, stop_at: int | None = None
    ):
        self.run, self.task, self.trainer, self.config = run, task, trainer, task.config
        self.network = task.network()
        if start is None:
            self.update, self.window = 0, Window()
            params = first_parameters(task)
            if run.origin.began_with not in (None, checkpoints.fingerprint(params or {})):
                raise Refused(f"--start {self.config.start} has changed since {run.folder} began with it")
            self.state = first_state(trainer, task, params)
        else:
            self.update, self.window = start.about["update"], Window(**start.about["window"])
            self.state = make_state(trainer.load, start.arrays, run.checkpoints)
        self.saved = self.update if start is not None else None
        if stop_at is not None and stop_at <= self.update:
            raise Refused(f"--stop-at {stop_at}: {run.folder} is at update {self.update} already")
        self.stop_at = stop_at

    def prepare(self) -> None:
        """Brings the folder to the state in which the unbroken run was at this update."""
        self.run.make_folders()
        # Test records are of the end and are made again there; at update 0 nothing has been done yet.
        self.run.go_back(
            self.update,
            lambda record: (
                self.saved is not None
                and record["update"] <= self.update
                and not record.get("split", "").startswith("test")
            ),
        )

    def train(self, stop: StopSignals) -> str | None:
        """All updates that are left, then the test, if there is to be one; with --stop-at no further than that."""
        c = self.config
        show = progress(c.updates, self.update, sys.stderr)
        try:
            if self.saved is None:
                self.evaluate("valid", show)
            jobs = stretches(self.update, self.stop_at or c.updates, *c.periods)
            chunks = ((first, last, training_batches(self.task, range(first, last))) for first, last in jobs)
            with prefetch(chunks) as ahead:
                for first, last, batch in ahead:
                    self.step(first, last, batch, show)
                    self.obey(stop)
            if self.stop_at is not None:
                return f"stopped {self.all_saved()}"
            checkpoints.prune(self.run.checkpoints, self.update, c.checkpoint_every)
            # All is saved, so that it may be ended anywhere, and begun anew.
            if c.ends_with_test:
                self.evaluate("test", show, before_batch=lambda: self.obey(stop))
            return None
        finally:
            show.close()

    def step(self, first: int, last: int, batch: Batch, show: Any) -> None:
        """The updates first + 1 to last and what falls on their end; the batch has them as its first axis."""
        c = self.config
        self.state, metrics = self.trainer.train_steps(self.state, batch)
        bad = ~(np.isfinite(metrics["loss"]) & np.isfinite(metrics["grad_norm"]))
        if bad.any():
            self.diverged(first + 1 + int(np.argmax(bad)), "the loss or its gradient is not finite")
        self.update = last
        self.window.add(metrics)
        show.advance(self.update)
        if self.update % c.log_every == 0:
            record = {"kind": "train", "update": self.update, **self.window.close()}
            self.note(record)
            show.logged(record)
        if self.update % c.eval_every == 0 or self.update == c.updates:
            self.evaluate("valid", show)
        if self.update % c.checkpoint_every == 0 or self.update == c.updates:
            self.save()

    def note(self, record: dict[str, Any]) -> None:
        self.run.append(self.run.metrics, [record], f"go on with: {self.run.resume_command()}")

    def evaluate(self, stage: str, show: Any, **settings: Any) -> None:
        examples = (stage == "test" and self.config.test_examples) or self.config.eval_examples
        for split in self.task.splits(stage):
            result = evaluate(self.trainer, self.state, self.task, split, examples=examples, **settings)
            totals = {"forward_passes": self.window.forward_passes}
            record = {"kind": "eval", "split": split, "update": self.update, **totals, **result}
            self.note(record)
            show.evaluated(record)

    def save(self) -> None:
        arrays = self.trainer.dump(self.state)
        broken = [name for name, array in sorted(arrays.items()) if not np.isfinite(array).all()]
        if broken:
            self.diverged(self.update, f"{broken[0]} is not finite")
        about = self.run.checkpoint_about(self.update, SPEC_VERSION, self.window.to_json(), self.network)
        checkpoints.save(self.run.checkpoints, checkpoints.Checkpoint(arrays, about), self.config.checkpoint_every)
        self.saved = self.update

    def last_good(self) -> str:
        files = checkpoints.listed(self.run.checkpoints)
        return (
            f"the last good checkpoint is {list(files.values())[-1]}" if files else "no checkpoint had been written yet"
        )

    def diverged(self, update: int, reason: str) -> NoReturn:
        self.note({"kind": "diverged", "update": update, "reason": reason})
        raise Diverged(f"training diverged at update {update}: {reason}; {self.last_good()}")

    def obey(self, stop: StopSignals) -> None:
        """Ends the training if a signal has come: to be called where a run can go on from what is saved."""
        if stop.received is None:
            return
        what = SIGNALS[signal.Signals(stop.received)]
        raise Interrupted(f"{what} {self.all_saved()}", stop.received)

    def all_saved(self) -> str:
        """Saves what is not saved yet, and says so."""
        if self.saved != self.update:
            self.save()
        return f"at update {self.update}, everything is saved; go on with: {self.run.resume_command()}"


def train(
    run: Run,
    task: Task,
    trainer: Trainer,
    start: checkpoints.Checkpoint | None,
    backend: str,
    stop_at: int | None = None,
) -> str | None:
    """Trains to the end, or to the update `stop_at`: then it returns the sentence that says how to go on.

    A second signal does not wait for a good place to stop, but the run can go on after it.
    """
    training = Training(run, task, trainer, start, stop_at)
    with StopSignals() as stop:
        try:
            return train_session(training, backend, stop)
        except KeyboardInterrupt as error:
            how = f"go on from what was saved with: {run.resume_command()}"
            raise interrupted(error, f" at once; {how}") from None


def train_session(training: Training, backend: str, stop: StopSignals) -> str | None:
    """Trains, and notes in sessions.jsonl what was done here and how long it took."""
    run = training.run
    run.clear_leftovers()
    training.prepare()
    began, first = time.time(), training.update
    clock, worked = time.monotonic(), time.process_time()  # the time of day may be set back
    outcome = "stopped"
    try:
        ended = training.train(stop)
        outcome = "finished" if ended is None else "stopped"
        return ended
    except (Diverged, Interrupted) as error:
        outcome = type(error).__name__.lower()
        raise
    finally:
        took = {
            "seconds": round(time.monotonic() - clock, 3),
            "cpu_seconds": round(time.process_time() - worked, 3),  # of all threads: what a busy machine leaves alone
        }
        note = {"backend": backend, "from": first, "to": training.update, "outcome": outcome}
        with contextlib.suppress(Refused):  # a full disk has been spoken of already
            run.append(run.sessions, [{**note, "began": round(began), **took}])
