"""Archives and servers that would take all memory or all time: how much is read before they are refused."""

import gzip
import io
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

import pytest

from ponder_ref.runtime.errors import Refused
from tasks.babi import download, files, http

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
    "file of negative size": (lambda: pax(size="-1024") + header("a") + RANDOM, "is not a whole"),
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


HEAD = b"HTTP/1.0 200 OK\r\nContent-Length: 1000000\r\n"


class Dripping(ThreadingTCPServer):
    """Sends `script`, pieces with the seconds that each takes: the clock is set by them, and nobody waits.

    Then it waits until the other side has had enough.
    """

    daemon_threads = True

    def __init__(self, script: list[tuple[float, bytes]]):
        self.script, self.now = script, 0.0
        super().__init__(("127.0.0.1", 0), self.Handler)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            assert isinstance(self.server, Dripping)
            while self.rfile.readline() not in (b"", b"\r\n"):
                pass
            try:
                for seconds, piece in self.server.script:
                    self.server.now += seconds
                    self.wfile.write(piece)
                self.rfile.read()
            except ConnectionError:
                pass


@pytest.fixture
def drip(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[tuple[float, bytes]]], str]]:
    """The address of a server that sends the pieces, by whose clock the download goes."""
    made: list[tuple[Dripping, threading.Thread]] = []

    def offer(script: list[tuple[float, bytes]]) -> str:
        server = Dripping(script)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        made.append((server, thread))
        monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: server.now))
        return f"http://127.0.0.1:{server.server_address[1]}/babi.tar.gz"

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield offer
    for server, thread in made:
        server.shutdown()
        server.server_close()
        thread.join()


def one_by_one(data: bytes, seconds: float = 0.5) -> list[tuple[float, bytes]]:
    return [(seconds, data[n : n + 1]) for n in range(len(data))]


@pytest.mark.parametrize(
    "script",
    [
        [(0.0, HEAD + b"\r\n"), *one_by_one(bytes(400))],
        [(0.0, HEAD), *one_by_one(b"X-Header: " + b"a" * 400)],
        one_by_one(b"HTTP/1.0 200 " + b"O" * 400),
        [(0.0, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), *one_by_one(b"1\r\na\r\n" * 80)],
    ],
    ids=["body", "header", "status", "chunks"],
)
def test_a_server_that_drips_is_given_up(script: list[tuple[float, bytes]], drip: Callable, tmp_path: Path):
    """A byte every half second: each comes in time."""
    url = drip(script)
    with pytest.raises(Refused, match=r"cannot be fetched \(too slow: \d+ bytes in \d+ seconds\)"):
        download.fetch(url, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_has_a_deadline(drip: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "DEADLINE", 100)
    monkeypatch.setattr(http, "LEAST_RATE", 0)
    url = drip([(0.0, HEAD + b"\r\n"), *([(1.0, bytes(2000))] * 110)])
    with pytest.raises(Refused, match=r"cannot be fetched \(not done after 100 seconds\)"):
        download.fetch(url, tmp_path)


def test_a_slow_start_is_forgiven(drip: Callable, tmp_path: Path):
    """A minute without much, then the rest: what came is read to its end, and found to be no archive."""
    url = drip([(50.0, b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n"), (5.0, b"<html>no</html>")])
    with pytest.raises(Refused, match="is not a whole"):
        download.fetch(url, tmp_path)


def test_what_a_server_says_is_quoted_on_one_line(drip: Callable, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("PONDERNET_CACHE", str(tmp_path))
    url = drip([(0.0, b"HTTP/1.0 404 \x1b[31mred\x07 " + b"a" * 5000 + b"\r\n\r\n")])
    assert download.main(["--url", url]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the server answered 404 \\x1b[31mred\\x07 aaa" in line and len(line) < 400 and line.isprintable()


def test_a_circle_of_redirections_gets_one_line(drip: Callable, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("PONDERNET_CACHE", str(tmp_path))
    answer = b"HTTP/1.0 302 Found\r\nLocation: /babi.tar.gz\r\nContent-Length: 0\r\n\r\n"
    assert download.main(["--url", drip([(0.0, answer)])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the server answered 302" in line and "infinite loop. The last" in line
    with pytest.raises(Refused, match="an address of http or https is needed"):
        download.fetch(drip([(0.0, answer.replace(b"/babi", b"ftp://127.0.0.1/babi"))]), tmp_path)
