"""Generated stories, without end and the same for everyone, and a command that writes them as the released files.

    python -m tasks.babi.generate --out DIR --task 1-20 --questions 10000 --seed 0

Story number `index` of (seed, task, split) is a pure function of these. A story belongs to one split by a checksum of
its statements, whatever the seed, so that no whole story of one split ever occurs in another (what stands before an
early question of a story is short, and may do: so it is in the released files); tasks 4 and 17 have too few stories for
that (1,920 and 5,760 different sets of statements), their splits are independent draws that overlap.
"""

import itertools
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ponder_ref.checks import quoted
from ponder_ref.runtime.errors import Refused, cannot_write, one_sentence
from ponder_ref.runtime.files import TEMPORARY, alone, make_folder, write_whole
from ponder_ref.runtime.schemas import read_json
from ponder_ref.runtime.values import Choice, Integer
from tasks.babi import text
from tasks.babi.draws import Draws
from tasks.babi.files import UNFINISHED
from tasks.babi.stories import SPLITS, TASK_NAMES, TASKS, Story, first_questions
from tasks.babi.worlds import MAKE
from tasks.batches import STREAMS
from tasks.config import MAX_SEED
from tasks.flags import Parser, flag_value

OVERLAPPING = frozenset({4, 17})
SHARES = ("train",) * 8 + ("valid", "test")  # of ten stories
PART = 2**32  # story numbers of a part
QUESTIONS, SEEDS = Integer(1, 10**7), Integer(0, MAX_SEED)
LAYOUTS = ("en-10k", "en-valid-10k")


def stream_of(task: int, split: str) -> int:
    """The Philox stream of a task's split: 100, 101, 102 for task 1, then 200 and so on."""
    return 100 * task + STREAMS[split]


def home(story: Story) -> str:
    """The split that a story belongs to."""
    return SHARES[zlib.crc32("\n".join(story.statements()).encode()) % len(SHARES)]


def endless(task: int, split: str, seed: int, part: int = 0) -> Iterator[Story]:
    """All stories of a task's split, in order. Each part begins elsewhere: unlimited data, a set at a time."""
    make, stream = MAKE[task], stream_of(task, split)
    for index in itertools.count(part * PART):
        story = make(Draws(seed, stream, index))
        if task in OVERLAPPING or home(story) == split:
            yield story


def generated(task: int, split: str, questions: int, seed: int, part: int = 0) -> list[Story]:
    """The first stories of a split with exactly this many questions; the last one is cut where they are reached."""
    return list(first_questions(endless(task, split, seed, part), questions))


def parse_tasks(words: str, flag: str = "--task") -> tuple[int, ...]:
    """Task numbers in order from a list such as 1-5,17.

    >>> parse_tasks("15,1-3")
    (1, 2, 3, 15)
    """
    found: set[int] = set()
    for part in words.split(","):
        ends = part.strip().split("-")
        if len(ends) > 2 or not all(end.isdecimal() and len(end) <= 2 for end in ends):
            raise Refused(f"{flag} takes numbers and ranges such as 1-20 or 2,3,15, got {quoted(words)}")
        low, high = int(ends[0]), int(ends[-1])
        if not 1 <= low <= high <= len(TASKS):
            raise Refused(f"{flag} must lie in 1..{len(TASKS)}, got {quoted(part.strip())}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def counts(layout: str, questions: int) -> dict[str, int]:
    """Questions per split: train and a tenth for test; with validation files, a tenth of train is that."""
    tenth = max(1, questions // 10)
    if layout == "en-10k":
        return {"train": questions, "test": tenth}
    return {"train": max(1, questions - tenth), "valid": tenth, "test": tenth}


def file_name(layout: str, task: int, split: str) -> str:
    return f"qa{task}_{TASK_NAMES[task]}_{split}.txt" if layout == "en-10k" else f"qa{task}_{split}.txt"


class Unfinished(msgspec.Struct):
    """What the file of that name says while a set is written: the command's settings."""

    tasks: list[int]
    layout: str
    questions: int
    seed: int


def check_out(folder: Path, wanted: Unfinished) -> None:
    """The folder must be empty, or have what the same command had begun to write there."""
    try:
        names = {name for name in os.listdir(folder) if not TEMPORARY.fullmatch(name)}
    except OSError as error:
        raise cannot_write(folder, error) from None
    own = {file_name(wanted.layout, task, split) for task in wanted.tasks for split in SPLITS}
    if UNFINISHED in names and names <= {UNFINISHED, *own}:
        if read_json(folder / UNFINISHED, Unfinished) == wanted:
            return
    elif not names:
        return
    raise Refused(f"--out {folder} is not an empty folder: choose another")


def write_files(folder: Path, tasks: Sequence[int], layout: str, questions: int, seed: int) -> list[Path]:
    """Writes the files into a new or empty folder; their paths. Until all are there, the folder says UNFINISHED."""
    wanted = Unfinished(list(tasks), layout, questions, seed)
    make_folder(folder)
    paths = []
    with alone(folder, "writing to"):
        check_out(folder, wanted)
        write_whole(folder / UNFINISHED, msgspec.json.encode(wanted))
        for task in tasks:
            for split, count in counts(layout, questions).items():
                paths.append(folder / file_name(layout, task, split))
                write_whole(paths[-1], text.write(generated(task, split, count, seed), task).encode())
        try:
            (folder / UNFINISHED).unlink()
        except OSError as error:
            raise cannot_write(folder / UNFINISHED, error) from None
    return paths


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m tasks.babi.generate", description="Writes generated bAbI stories as text files.")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument("--task", default="1-20", help="such as 1-20 or 2,3,15 (default 1-20)")
    parser.add_argument("--questions", default="10000", help="of training, per task (default 10000)")
    parser.add_argument("--seed", default="0", help="default 0")
    parser.add_argument("--layout", default=LAYOUTS[0], help=f"{' or '.join(LAYOUTS)}, which has validation files too")
    options = parser.parse(arguments)
    questions, seed = flag_value(options, "questions", QUESTIONS), flag_value(options, "seed", SEEDS)
    layout = flag_value(options, "layout", Choice(LAYOUTS))
    paths = write_files(Path(options.out), parse_tasks(options.task), layout, questions, seed)
    print(f"{len(paths)} files in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
