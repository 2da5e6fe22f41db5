"""The public archive of the bAbI tasks: fetched once, every file checked, kept under the user's cache folder.

    python -m tasks.babi.download [--url URL]

Kept are the forty files of en-10k. Each must have its known SHA-256 (of one, task 3 train, only the size is known).
Nothing of the archive is unpacked by name: the wanted files are read and written one by one.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ponder_ref.runtime.checkpoint import write_whole
from ponder_ref.runtime.errors import Refused, cannot_write, one_sentence
from tasks.babi.files import ARCHIVE_ROOT, members
from tasks.babi.http import save
from tasks.babi.stories import TASK_NAMES
from tasks.flags import Parser

URL = "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"
LAYOUT = "en-10k"
SUMS = Path(__file__).with_name("en-10k.sha256")
SIZES = {"qa3_three-supporting-facts_train.txt": 5_317_883}  # files without a known sum
MAX_ARCHIVE = 256 * 2**20  # bytes; the archive has some 15 million


def known_sums(path: Path = SUMS) -> dict[str, str]:
    """SHA-256 by file name, from a file in the manner of sha256sum."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def wanted() -> list[str]:
    return [f"qa{task}_{name}_{split}.txt" for task, name in TASK_NAMES.items() for split in ("train", "test")]


def cache_folder() -> Path:
    """$PONDERNET_CACHE, else the system's folder for caches."""
    if own := os.environ.get("PONDERNET_CACHE"):
        return Path(own)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pondernet"


def check(name: str, data: bytes, sums: dict[str, str], sizes: dict[str, int]) -> None:
    """Refuses a file that is not the released one."""
    if name in sums:
        if hashlib.sha256(data).hexdigest() != sums[name]:
            raise Refused(f"{name} is not the released file: its SHA-256 should be {sums[name]}")
    elif len(data) != sizes.get(name):
        raise Refused(f"{name} is not the released file: it should have {sizes.get(name)} bytes, got {len(data)}")


def is_whole(folder: Path, sums: dict[str, str], sizes: dict[str, int]) -> bool:
    """Whether the folder has all forty files, each as released."""
    try:
        for name in wanted():
            check(name, (folder / name).read_bytes(), sums, sizes)
    except (OSError, Refused):
        return False
    return True


def fetch(
    url: str = URL,
    cache: Path | None = None,
    sums: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
) -> Path:
    """The folder of en-10k in the cache; the archive is fetched if it is not there whole."""
    sums, sizes = known_sums() if sums is None else sums, SIZES if sizes is None else sizes
    folder = (cache or cache_folder()) / "babi" / LAYOUT
    if is_whole(folder, sums, sizes):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            archive = Path(place) / "archive.tar.gz"
            save(url, archive, MAX_ARCHIVE)
            try:
                files = chosen(archive)
                for name in wanted():
                    if name not in files:
                        raise Refused(f"the archive has no file {LAYOUT}/{name}")
                    check(name, files[name], sums, sizes)
            except Refused as error:
                raise Refused(f"{url}: {str(error).removeprefix(f'{archive} ').removeprefix(f'{archive}: ')}") from None
        for name in wanted():
            write_whole(folder / name, files[name])
    except OSError as error:
        raise cannot_write(folder, error) from None
    return folder


def choose_folder(data_dir: str | None, download: bool, url: str | None) -> str | None:
    """Where --data-dir, --download and --url say that the stories are; None without any: they are generated."""
    if url is not None and not download:
        raise Refused("--url goes with --download")
    if download and data_dir is not None:
        raise Refused("--data-dir and --download are two sources: choose one")
    return str(fetch(url or URL)) if download else data_dir


def chosen(archive: Path) -> dict[str, bytes]:
    """The files of en-10k in the archive by name, wherever its root is."""
    found = {}
    for name, data in members(archive):
        if name.removeprefix(f"{ARCHIVE_ROOT}/").rpartition("/")[0] == LAYOUT:
            found[name.rpartition("/")[2]] = data
    return found


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m tasks.babi.download", description="Fetches the released bAbI tasks (en-10k).")
    parser.add_argument("--url", default=URL, help=f"of the archive (default {URL})")
    print(fetch(parser.parse(arguments).url))
    return 0


if __name__ == "__main__":
    sys.exit(main())
