"""The run folder: config.json, metrics.jsonl, sessions.jsonl, evaluations.jsonl, checkpoints/, figures/.

A resumed run ends with the same folder as an unbroken one; only sessions.jsonl, which has the wall times, tells them
apart.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tasks.checkpoint import Checkpoint, file_name, listed, newest, read, write_whole
from tasks.config import from_json, to_json
from tasks.errors import Refused, cannot_write, reason, shell_word
from tasks.options import first_difference
from tasks.records import EVALUATIONS, METRICS, SESSIONS, line_of, read_records

CONFIG = "config.json"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path.parent} is not a run folder: it has no {path.name}") from None
    except OSError as error:
        raise Refused(f"cannot read {path}: {reason(error)}") from None
    except ValueError:
        raise Refused(f"{path} is not JSON") from None


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keeps other processes from training in the folder, where the system can; ends with the process, however."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Refused(f"cannot open {path}: {reason(error)}") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another process is training in {path}: wait for it or stop it") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(folder)


def drop_half_line(file: BinaryIO) -> None:
    """Removes the end of a file that a crash cut short, so that the next line does not go on with it."""
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def make_folder(path: Path) -> None:
    """Makes the folder of a run, and those above it, where they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Refused(f"{path} is a file, not a folder") from None
    except OSError as error:
        raise cannot_write(path, error) from None


class Origin(NamedTuple):
    """Checksums of what a run has from elsewhere, None where there is no such thing or it was not noted."""

    began_with: str | None = None  # the parameters of --start
    data: str | None = None  # the files that it is trained and validated on

    def as_json(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class Run:
    """A folder with the task's name, its config, the backend it was begun with, and what it has from elsewhere."""

    def __init__(self, folder: Path, task: str, config: Any, backend: str, origin: Origin | None = None):
        self.folder, self.task, self.config, self.backend = folder, task, config, backend
        self.origin = origin or Origin()
        self.metrics, self.sessions, self.evaluations = folder / METRICS, folder / SESSIONS, folder / EVALUATIONS
        self.checkpoints, self.figures = folder / "checkpoints", folder / "figures"

    @classmethod
    def create(cls, folder: Path, task: str, config: Any, backend: str, origin: Origin | None = None) -> "Run":
        """A new run in a new or empty folder; what a crash left before config.json was whole does not count.

        Where others may begin one there at the same moment, the folder is made and locked before (`alone`).
        """
        make_folder(folder)
        try:
            names = {path.name for path in folder.iterdir() if not path.name.endswith(".tmp")}
        except OSError as error:
            raise cannot_write(folder, error) from None
        if names:
            what = "add --resume to go on with it or choose" if CONFIG in names else "choose"
            raise Refused(f"--out {folder} is not empty: {what} another folder")
        run = cls(folder, task, config, backend, origin)
        content = {"task": task, "backend": backend, "config": to_json(config), **run.origin.as_json()}
        write_whole(folder / CONFIG, (json.dumps(content, indent=2) + "\n").encode())
        return run

    @classmethod
    def open(cls, folder: Path, task: str, config_type: type) -> "Run":
        """An existing run of this task."""
        if not folder.is_dir():
            raise Refused(f"there is no run folder {folder}")
        content = read_json(folder / CONFIG)
        if not isinstance(content, dict) or not {"task", "backend", "config"} <= content.keys():
            raise Refused(f"{folder / CONFIG} is not the config of a run")
        if content["task"] != task:
            raise Refused(f"{folder} is a run of the task {content['task']!r}, not of {task!r}")
        if not isinstance(content["backend"], str) or not content["backend"]:
            raise Refused(f"{folder / CONFIG}: the backend must be a name, got {content['backend']!r}")
        origin = {name: content[name] for name in Origin._fields if name in content}
        for name, value in origin.items():
            if not isinstance(value, str):
                raise Refused(f"{folder / CONFIG}: {name} must be a checksum, got {value!r}")
        config = from_json(config_type, content["config"], str(folder / CONFIG))
        return cls(folder, task, config, content["backend"], Origin(**origin))

    def clear_leftovers(self) -> None:
        """Removes files that a killed process had begun to write."""
        for path in (*self.folder.glob("*.tmp"), *self.checkpoints.glob("*.tmp")):
            if path.is_file() and not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.unlink()

    def make_folders(self) -> None:
        try:
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(self.checkpoints, error) from None

    def append(self, path: Path, records: Iterable[dict[str, Any]], rest: str = "") -> None:
        """Adds lines and flushes them to disk: a checkpoint never speaks of updates whose metrics are lost.

        `rest` is what the sentence ends with if that cannot be done.
        """
        try:
            with open(path, "a+b") as file:
                drop_half_line(file)
                file.write("".join(map(line_of, records)).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(path, error, rest) from None

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
        write_whole(self.metrics, "".join(kept).encode())

    def checkpoint_about(self, update: int, spec_version: str, window: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint says beside its arrays."""
        return {
            "task": self.task,
            "config": to_json(self.config),
            "spec": spec_version,
            "update": update,
            "window": window,
        }

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
        return f"{self.command()} --out {shell_word(str(self.folder))} --resume"

    def evaluate_command(self) -> str:
        return f"{self.command()} --evaluate {shell_word(str(self.folder))}"
