"""The run folder: config.json, metrics.jsonl, sessions.jsonl, evaluations.jsonl, checkpoints/, figures/.

A resumed run ends with the same folder as an unbroken one; only sessions.jsonl, which has the wall times, tells them
apart. A checkpoint that is shipped is a folder with model.safetensors (config and parameters alone, float32) and its
card: `open_trained` takes it as it takes a run.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ponder_ref.runtime import network
from ponder_ref.runtime.checkpoint import PARAMETERS, Checkpoint, file_name, listed, newest, prune, read
from ponder_ref.runtime.errors import Refused, cannot_write, shell_word
from ponder_ref.runtime.files import TEMPORARY, append, check_target, clear_leftovers, make_folder, write_whole
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.schemas import Name, check_depth, check_text, read_json
from tasks.config import first_difference
from tasks.contracts import Task
from tasks.flags import from_json, to_json
from tasks.records import EVALUATIONS, METRICS, SESSIONS, line_of, read_records
from tasks.trainers import FRAMEWORKS, backend_of_file, default_backend

CONFIG = "config.json"
PRETRAINED, MODEL = "pretrained", "model.safetensors"  # the word for the shipped checkpoint of a task, and its file
OWN_FILES = (CONFIG, METRICS, SESSIONS, EVALUATIONS, "checkpoints", "figures", MODEL)
OWN_FOLDERS = ("checkpoints", "figures")


class Content(msgspec.Struct):
    """config.json."""

    task: Name
    backend: Name
    config: dict[str, Any]
    began_with: Name | None = None
    data: Name | None = None
    network: dict[str, Any] | None = None  # of somebody's own (--model)

    def __post_init__(self) -> None:
        check_text(task=self.task, backend=self.backend)
        check_depth(self.config)
        check_depth(self.network or {}, 16)


def read_config(folder: Path) -> Content:
    """The config.json of a run."""
    if not folder.is_dir():
        raise Refused(f"there is no run folder {folder}")
    return read_json(folder / CONFIG, Content, f"{folder} is not a run folder: it has no {CONFIG}")


def is_of_a_run(path: Path) -> bool:
    """Whether a path is, or would be, one of the files that a run folder has of its own."""
    inside = path.parent.name in OWN_FOLDERS and os.path.lexists(path.parent.parent / CONFIG)
    return inside or (path.name in OWN_FILES and os.path.lexists(path.parent / CONFIG))


class Origin(NamedTuple):
    """Checksums of what a run has from elsewhere, None where there is no such thing or it was not noted."""

    began_with: str | None = None  # the parameters of --start
    data: str | None = None  # the files that it is trained and validated on

    def as_json(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class Run:
    """A folder with the task's name, its config, the backend it was begun with, and what it has from elsewhere.

    The config is of the task's own class. `own` describes a network of somebody's own (--model), None is the task's.
    """

    def __init__(
        self,
        folder: Path,
        task: str,
        config: Any,
        backend: str,
        origin: Origin | None = None,
        own: Network | None = None,
    ):
        self.folder, self.task, self.config, self.backend = folder, task, config, backend
        self.origin, self.own = origin or Origin(), own
        self.metrics, self.sessions, self.evaluations = folder / METRICS, folder / SESSIONS, folder / EVALUATIONS
        self.checkpoints, self.figures = folder / "checkpoints", folder / "figures"

    @classmethod
    def create(
        cls,
        folder: Path,
        task: str,
        config: Any,
        backend: str,
        origin: Origin | None = None,
        own: Network | None = None,
    ) -> "Run":
        """A new run in a new or empty folder; what a crash left before config.json was whole does not count.

        Where others may begin one there at the same moment, the folder is made and locked before (`alone`).
        """
        make_folder(folder)
        try:
            names = {name for name in os.listdir(folder) if not TEMPORARY.fullmatch(name)}
        except OSError as error:
            raise cannot_write(folder, error) from None
        if names:
            what = "add --resume to go on with it or choose" if CONFIG in names else "choose"
            raise Refused(f"--out {folder} is not empty: {what} another folder")
        run = cls(folder, task, config, backend, origin, own)
        content = {"task": task, "backend": backend, "config": to_json(config), **run.origin.as_json()}
        content |= {} if own is None else {"network": own.to_json()}
        write_whole(folder / CONFIG, (json.dumps(content, indent=2) + "\n").encode())
        return run

    @classmethod
    def open(cls, folder: Path, task: str, config_type: type) -> "Run":
        """An existing run of this task."""
        content = read_config(folder)
        if content.task != task:
            raise Refused(f"{folder} is a run of the task {content.task!r}, not of {task!r}")
        config = from_json(config_type, content.config, str(folder / CONFIG))
        try:
            own = None if content.network is None else network.from_json(content.network)
        except ValueError as error:
            raise Refused(f"{folder / CONFIG}: {error}") from None
        return cls(folder, task, config, content.backend, Origin(content.began_with, content.data), own)

    def own_backend(self) -> str:
        """The backend that config.json names, if it is one of the project's."""
        return backend_of_file(self.backend, self.folder / CONFIG)

    def clear_leftovers(self) -> None:
        """Removes files that a killed process had begun to write."""
        for folder in (self.folder, self.checkpoints, self.figures):
            if os.path.isdir(folder):
                clear_leftovers(folder)

    def make_folders(self) -> None:
        """Makes the folders of a training; what lies in their place, or in that of a file to be written, is refused."""
        for path in (self.checkpoints, self.figures):
            if os.path.islink(path):
                raise Refused(f"cannot write {path}: it is a link, not a directory")
        for path in (self.metrics, self.sessions):
            try:
                check_target(path)
            except OSError as error:
                raise cannot_write(path, error) from None
        make_folder(self.checkpoints)

    def append(self, path: Path, records: Iterable[dict[str, Any]], rest: str = "") -> None:
        """Adds lines and flushes them to disk: a checkpoint never speaks of updates whose metrics are lost.

        `rest` is what the sentence ends with if that cannot be done.
        """
        append(path, "".join(map(line_of, records)).encode(), rest)

    def go_back(self, update: int, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Removes what comes after an update and will be made again: checkpoints, and records that are not to be kept.

        Nothing is removed where the records cannot be read. The checkpoints go first: with one of them, but without
        the records before it, a run that is killed in between would end without these.
        """
        if update > 0 and not self.metrics.exists():
            raise Refused(
                f"{self.metrics} is missing, and the run has come to update {update}: put it back, or begin a new run"
            )
        kept = [line_of(record) for record in read_records(self.metrics) if keep(record)]
        self.drop_after(update)
        prune(self.checkpoints, update, self.config.checkpoint_every)
        write_whole(self.metrics, "".join(kept).encode())

    def checkpoint_about(
        self, update: int, spec_version: str, window: dict[str, Any], trained: Network | None = None
    ) -> dict[str, Any]:
        """What a checkpoint says beside its arrays; older ones do not describe the network that is trained."""
        about = {"task": self.task, "config": to_json(self.config), "spec": spec_version, "update": update}
        return {**about, "window": window} | ({} if trained is None else {"network": trained.to_json()})

    def load(self, file: Path | None = None) -> Checkpoint | None:
        """The newest checkpoint, or the one in `file`; it must be of this very run's config."""
        checkpoint = newest(self.checkpoints) if file is None else read(file)
        if checkpoint is None:
            return None
        return self.check(checkpoint, file or self.checkpoints / file_name(checkpoint.about["update"]))

    def check(self, checkpoint: Checkpoint, name: Path) -> Checkpoint:
        """The checkpoint of the file `name`, if it is of this very run's config."""
        if checkpoint.about["task"] != self.task:
            raise Refused(f"{name} is a checkpoint of the task {checkpoint.about['task']!r}, not of {self.task!r}")
        theirs = from_json(type(self.config), checkpoint.about["config"], str(name))
        if difference := first_difference(theirs, self.config):
            raise Refused(f"{name} belongs to another run: {difference}")
        model = (checkpoint.about.get("network") or {}).get("model", {})
        ours = None if self.own is None else self.own.to_json()["model"]
        if ours != (model if model.get("kind") == network.OWN else None):
            raise Refused(f"{name} belongs to another run: its network is another one (--model)")
        return checkpoint

    def drop_after(self, update: int) -> None:
        """Removes the checkpoints of later updates, when the run goes on from an earlier one."""
        for number, path in listed(self.checkpoints).items():
            if number > update:
                try:
                    path.unlink()
                except OSError as error:
                    raise cannot_write(path, error) from None

    def command(self) -> str:
        return f"python -m tasks.{self.task}"

    def resume_command(self) -> str:
        return f"{self.command()} --out {shell_word(str(self.folder))} --resume{self.code_flags()}"

    def evaluate_command(self) -> str:
        return f"{self.command()} --evaluate {shell_word(str(self.folder))}{self.code_flags()}"

    @property
    def model(self) -> str | None:
        """What --model named, None for a network of the task, which has no checksum."""
        return self.own.model.name if self.own is not None and self.own.model.sha256 else None

    def code_flags(self) -> str:
        """What a command needs for somebody's own backend or network: the folder's word is not enough."""
        model = "" if self.model is None else f" --model {shell_word(self.model)}"
        return model + ("" if self.backend in FRAMEWORKS else f" --backend {shell_word(self.backend)}")


def is_shipped(folder: Path) -> bool:
    return os.path.isfile(folder / MODEL)


def open_trained(task: type[Task], name: str, file: str | None = None) -> tuple[Run, Checkpoint]:
    """Run and newest checkpoint (or the one in `file`) of a folder, or of the word "pretrained"."""
    folder = task.PRETRAINED if name == PRETRAINED else Path(name)
    if folder is None or (name == PRETRAINED and not is_shipped(folder)):
        raise Refused(f"no checkpoint of {task.NAME} is shipped here: train one with python -m tasks.{task.NAME}")
    if is_shipped(folder):
        if file is not None:
            raise Refused(f"--checkpoint goes with a run, and {folder} has a single checkpoint")
        found = read(folder / MODEL, PARAMETERS)
        if "config" not in found.about:
            raise Refused(
                f"{folder} has a network alone, without its task: --evaluate needs a run, or one that is shipped"
            )
        config = from_json(task.Config, found.about["config"], str(folder / MODEL))
        run = Run(folder, task.NAME, config, default_backend())
        return run, run.check(found, folder / MODEL)
    run = Run.open(folder, task.NAME, task.Config)
    found = run.load(None if file is None else Path(file))
    if found is None:
        raise Refused(f"there is no checkpoint in {run.checkpoints}")
    return run, found
