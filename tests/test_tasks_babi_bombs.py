"""Archives and servers that would take all memory or all time: how much is read before they are refused."""

import gzip
import io
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from tasks.babi import download, files
from tasks.errors import Refused

ROOT = files.ARCHIVE_ROOT
RANDOM = random.Random(0).randbytes(2**21)  # which gzip cannot make shorter: bytes of the file are bytes unpacked
BUFFERS = 2**18  # bytes that gzip may read ahead
HUGE = 3 * 2**30


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, **settings: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for key, value in settings.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(**values: str) -> bytes:
    """A pax header with records, such as "17 path=en/a.txt"."""
    records = b""
    for key, value in values.items():
        line = f" {key.replace('__', '.')}={value}\n".encode()
        records += next(
            b"%d%b" % (n, line) for n in range(len(line) + 1, len(line) + 9) if len(b"%d%b" % (n, line)) == n
        )
    return header("pax", len(records), tarfile.XHDTYPE) + block(records)


def many_members() -> bytes:
    return b"".join(header(f"{n}", 1024) + RANDOM[1024 * n : 1024 * (n + 1)] for n in range(2048))


def chained_names() -> bytes:
    """Long names one after another: tarfile reads the next header inside the one before."""
    one = (
        header("././@LongLink", 512, tarfile.GNUTYPE_LONGNAME) + RANDOM[512 * n : 512 * (n + 1)] for n in range(4096)
    )
    return b"".join(one)


def sparse_map() -> bytes:
    """A list of a billion numbers, which tarfile would read on and on."""
    about = pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name="a", GNU__sparse__realsize="9")
    digits = "".join(f"{byte}\n" for byte in RANDOM)[: 2**21].encode()
    return about + header("a", 2**21) + b"1000000000\n" + digits


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "long name": (
        lambda: header("././@LongLink", HUGE, tarfile.GNUTYPE_LONGNAME) + RANDOM,
        "has a header of more than 4096 bytes",
    ),
    "long link": (
        lambda: header("././@LongLink", HUGE, tarfile.GNUTYPE_LONGLINK) + RANDOM,
        "has a header of more than 4096 bytes",
    ),
    "pax header": (lambda: header("pax", HUGE, tarfile.XHDTYPE) + RANDOM, "has a header of more than 4096 bytes"),
    "global pax header": (lambda: header("p", HUGE, tarfile.XGLTYPE) + RANDOM, "has a header of more than 4096 bytes"),
    "long name behind a file": (
        lambda: header("a", 512) + bytes(512) + header("././@LongLink", HUGE, tarfile.GNUTYPE_LONGNAME) + RANDOM,
        "has a header of more than 4096 bytes",
    ),
    "long names": (chained_names, "has a header of more than 4096 bytes"),
    "sparse map": (sparse_map, "has a header of more than 4096 bytes"),
    "members": (many_members, "has more than 50 members"),
    "file": (lambda: header("a", HUGE) + RANDOM, "unpacks to more than 1048576 bytes"),
    "wanted file": (lambda: header(f"{ROOT}/en/qa1_train.txt", 2**20) + RANDOM, "unpacks to more than 1048576 bytes"),
    "file of negative size": (lambda: pax(size="-1024") + header("a") + RANDOM, "is not a whole|has more than 50 members"),
}


class Counting(io.FileIO):
    """A file that counts what is read of it."""

    taken = 0

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        data = super().read(size)
        Counting.taken += len(data)
        return data

    def readinto(self, buffer) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        Counting.taken += count or 0
        return count  # type: ignore[return-value]


@pytest.mark.parametrize("name", BOMBS)
def test_an_archive_is_refused_before_it_is_unpacked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make, sentence = BOMBS[name]
    path = tmp_path / "babi.tar.gz"
    path.write_bytes(gzip.compress(make(), 1))
    assert path.stat().st_size > 3 * BUFFERS
    monkeypatch.setattr(files, "MAX_HEADER", 4096)
    monkeypatch.setattr(files, "MAX_MEMBERS", 50)
    monkeypatch.setattr(files, "MAX_UNPACKED", 2**20)
    monkeypatch.setattr(files, "open", lambda path, mode: Counting(path), raising=False)
    monkeypatch.setattr(Counting, "taken", 0)
    with pytest.raises(Refused, match=sentence):
        files.open_source(path)
    assert 0 < Counting.taken <= BUFFERS + 50 * 2048
