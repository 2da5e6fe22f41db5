"""The released data: a folder or its .tar.gz, in any of its layouts, with long or short names.

    en-10k/qa1_single-supporting-fact_train.txt        10,000 questions a task, no validation files
    en-valid-10k/qa1_train.txt                         the same split into 9,000 and 1,000
    en, en-valid                                       1,000 questions

The files may also lie right in the folder. Where a layout has no validation files, the last tenth of the training
questions (whole stories) is taken out for it. Nothing is read before it is asked for, so that a split's own files are
enough for that split.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from re import compile as pattern

from ponder_ref.checks import quoted
from ponder_ref.runtime.errors import Refused, reason
from tasks.babi import text, vocabulary
from tasks.babi.stories import SPLITS, TASK_NAMES, Story

LAYOUTS = ("en-valid-10k", "en-10k", "en-valid", "en")  # the first that is there is taken
ARCHIVE_ROOT = "tasks_1-20_v1-2"
NAME = pattern(r"qa([1-9]|1[0-9]|20)(?:_([a-z-]+))?_(train|valid|test)\.txt")
UNFINISHED = ".pondernet-unfinished.json"  # in a folder that tasks.babi.generate has not filled yet
MAX_BYTES = 64 * 2**20  # of a file; the largest released one has 5 MB
MAX_UNPACKED = 2**29  # of an archive
MAX_HEADER = 2**16  # bytes from one member's data to the next's: its header, long names, lists of its own
MAX_MEMBERS = 10_000  # the released archive has some hundreds

Read = Callable[[], bytes]


class Source:
    """Files by (task, split), each with its name for messages and a way to read it."""

    def __init__(self, label: str, files: dict[tuple[int, str], tuple[str, Read]]):
        self.label, self.files = label, files

    def stories(self, task: int, split: str) -> list[Story]:
        """The stories of a task's split, their words checked."""
        if split not in SPLITS:
            raise Refused(f"--split must be one of {', '.join(SPLITS)}, got {quoted(split)}")
        if (task, split) in self.files and (split != "train" or self.has_validation()):
            return self.read(task, split)
        if split != "test" and not self.has_validation() and (task, "train") in self.files:
            stories = self.read(task, "train")
            first = held_out(stories)
            if first == 0:
                raise Refused(f"{self.files[task, 'train'][0]} has too few questions to hold some out for validation")
            return stories[first:] if split == "valid" else stories[:first]
        long, short = f"qa{task}_{TASK_NAMES[task]}_{split}.txt", f"qa{task}_{split}.txt"
        there = sorted({split for number, split in self.files if number == task})
        hint = f"; of task {task} it has {' and '.join(there)}" if there else ""
        raise Refused(f"{self.label} has no file {short} or {long}{hint}")

    def read(self, task: int, split: str) -> list[Story]:
        name, read = self.files[task, split]
        stories = text.read(read(), name, vocabulary.check_line)
        if not any(story.questions() for story in stories):
            raise Refused(f"{name} has no question")
        return stories

    def has_validation(self) -> bool:
        return any(split == "valid" for _, split in self.files)


def held_out(stories: list[Story]) -> int:
    """The index of the first story that is held out: those from it on have a tenth of the questions, or just more."""
    counts = [len(story.questions()) for story in stories]
    wanted = sum(counts) / 10
    for index in range(len(stories) - 1, -1, -1):
        wanted -= counts[index]
        if wanted <= 0:
            return index
    return 0


def open_source(path: str | Path, layout: str | None = None) -> Source:
    """The data in a folder or an archive; `layout` chooses where there are several. A folder may be one of them."""
    path = Path(path)
    if layout is not None and layout not in LAYOUTS:
        raise Refused(f"--layout must be one of {', '.join(LAYOUTS)}, got {quoted(layout)}")
    found = list_archive(path) if path.is_file() else list_folder(path)
    wanted = [layout, *[""] * (path.name == layout)] if layout else ["", *LAYOUTS]
    for name in wanted:
        if found.get(name):
            return Source(str(path / name) if name else str(path), found[name])
    where = f"a folder {layout} with" if layout else "any"
    raise Refused(f"{path} does not have {where} bAbI files such as en-10k/qa1_single-supporting-fact_train.txt")


Found = dict[str, dict[tuple[int, str], tuple[str, Read]]]


def add(found: Found, layout: str, name: str, shown: str, read: Read) -> None:
    """Enters a file by its name, if it is one of the released names."""
    match = NAME.fullmatch(name)
    if match is None or match[2] not in (None, TASK_NAMES[int(match[1])]):
        return
    files = found.setdefault(layout, {})
    key = int(match[1]), match[3]
    if key in files:
        raise Refused(f"{files[key][0]} and {shown} are both task {key[0]}, {key[1]}: remove one")
    files[key] = (shown, read)


def list_folder(path: Path) -> Found:
    if not path.is_dir():
        raise Refused(f"there is no folder or archive {path}")
    found: Found = {}
    for layout in ("", *LAYOUTS):
        for root in (path, path / ARCHIVE_ROOT) if layout else (path,):
            try:
                files = sorted((root / layout).iterdir()) if (root / layout).is_dir() else []
            except OSError as error:
                raise Refused(f"cannot read {root / layout}: {reason(error)}") from None
            for file in files:
                if file.name == UNFINISHED:
                    raise Refused(f"{file.parent} is unfinished: give the command of tasks.babi.generate again")
                if file.is_file():
                    add(found, layout, file.name, str(file), lambda file=file: read_file(file))
    return found


def read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Refused(f"{path} is larger than {MAX_BYTES} bytes: not a file of the bAbI tasks")
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {path}: {reason(error)}") from None


def list_archive(path: Path) -> Found:
    """The files in a .tar.gz; all of the wanted ones are read into memory at once, nothing is written."""
    found: Found = {}
    for name, data in members(path):
        layout = layout_of(name)
        assert layout is not None  # others are no members
        add(found, layout, name.rpartition("/")[2], f"{path}: {name}", lambda data=data: data)
    return found


def layout_of(name: str) -> str | None:
    """The layout that a member of an archive is of by its folder, "" at the top, None where no layout has it.

    >>> layout_of("tasks_1-20_v1-2/en/qa1_train.txt"), layout_of("qa1_train.txt"), layout_of("hn/qa1_train.txt")
    ('en', '', None)
    """
    folders = name.split("/")[:-1]
    folders = folders[1:] if folders[:1] == [ARCHIVE_ROOT] else folders
    layout = "/".join(folders)
    return layout if layout in ("", *LAYOUTS) else None


class Bounded:
    """An archive's unpacked bytes as tarfile reads them: no more than `left` of them before that is set again.

    tarfile takes a header's word for how long a name or a list of its own is, and reads as much into memory.
    """

    def __init__(self, stream: gzip.GzipFile, path: Path):
        self.stream, self.path, self.left = stream, path, MAX_HEADER

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise Refused(f"{self.path} has a header of more than {MAX_HEADER} bytes: not an archive of the bAbI tasks")
        self.left -= size
        self.within(self.tell() + size)
        return self.stream.read(size)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        self.within(position)
        return self.stream.seek(position, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def within(self, position: int) -> None:
        """Refuses what lies beyond the limit before anything up to there is unpacked."""
        if position > MAX_UNPACKED:
            raise Refused(f"{self.path} unpacks to more than {MAX_UNPACKED} bytes: not an archive of the bAbI tasks")


def members(path: Path) -> list[tuple[str, bytes]]:
    """Names and bytes of an archive's text files of these tasks. One that reaches outside itself is refused.

    So is one with too many members or too long headers, before they are read, and one that unpacks to too much.
    """
    try:
        with open(path, "rb") as file, gzip.GzipFile(fileobj=file) as stream:
            bounded = Bounded(stream, path)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[arg-type]
                found = wanted_members(path, archive, bounded)
            while stream.read(2**20):  # to the end, where the checksum of the whole stands
                bounded.within(stream.tell())
            return found
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, UnicodeError, RecursionError) as error:
        raise Refused(f"{path} is not a whole .tar.gz archive ({type(error).__name__})") from None


def wanted_members(path: Path, archive: tarfile.TarFile, bounded: Bounded) -> list[tuple[str, bytes]]:
    found = []
    for number, member in enumerate(archive, start=1):
        if number > MAX_MEMBERS:
            raise Refused(f"{path} has more than {MAX_MEMBERS} members: not an archive of the bAbI tasks")
        name = member.name.removeprefix("./")
        check_inside(path, member)
        bounded.within(member.offset_data + member.size)
        if member.size < 0:  # a pax header can say so
            raise ValueError("a size below 0")
        if member.isfile() and layout_of(name) is not None and NAME.fullmatch(name.rpartition("/")[2]):
            if member.size > MAX_BYTES:
                raise Refused(f"{path}: {name} is larger than {MAX_BYTES} bytes")
            bounded.left = member.size
            file = archive.extractfile(member)
            assert file is not None  # a regular file
            data = file.read()
            if len(data) != member.size:
                raise EOFError("short member")
            found.append((name, data))
        bounded.left = MAX_HEADER
    return found


def check_inside(path: Path, member: tarfile.TarInfo) -> None:
    """Refuses absolute names, names and links that climb out, and what is neither file, folder nor link."""
    reached = [member.name]
    if member.issym():  # from where it stands; a hard link is from the root
        reached.append(f"{member.name}/../{member.linkname}")
    elif member.islnk():
        reached.append(member.linkname)
    if any(name.startswith(("/", "\\")) or name[1:2] == ":" for name in (member.name, member.linkname)):
        raise Refused(f"{path} is not safe: {quoted(member.name)} names an absolute path")
    if any(map(climbs_out, reached)):
        raise Refused(f"{path} is not safe: {quoted(member.name)} reaches outside the archive")
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise Refused(f"{path} is not safe: {quoted(member.name)} is a device")


def climbs_out(name: str) -> bool:
    """Whether a path leaves its root on the way.

    >>> climbs_out("a/../../b"), climbs_out("a/../b")
    (True, False)
    """
    depth = 0
    for part in name.replace("\\", "/").split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
