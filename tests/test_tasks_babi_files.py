"""The released bAbI layouts in folders and archives, and the download against a local server."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ponder_ref.runtime.errors import Refused
from tasks.babi import download, files, generate, text
from tasks.babi.stories import TASK_NAMES, TASKS

ROOT = files.ARCHIVE_ROOT


def content(task: int, split: str, questions: int = 20) -> bytes:
    return text.write(generate.generated(task, split, questions, 0), task).encode()


def put(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def pack(members: list[tuple[tarfile.TarInfo | str, bytes]]) -> bytes:
    """A .tar.gz of the members; an entry given as TarInfo is taken as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for entry, data in members:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.mark.parametrize("where", ["", "en-valid-10k", f"{ROOT}/en-valid-10k", f"{ROOT}/en"])
@pytest.mark.parametrize("long", [False, True])
def test_layouts_with_long_and_short_names(tmp_path: Path, where: str, long: bool):
    middle = f"_{TASK_NAMES[6]}" if long else ""
    for split in ("train", "valid", "test"):
        put(tmp_path / where, f"qa6{middle}_{split}.txt", content(6, split))
    source = files.open_source(tmp_path)
    for split in ("train", "valid", "test"):
        assert source.stories(6, split) == generate.generated(6, split, 20, 0)


def test_a_split_needs_its_own_files_alone(tmp_path: Path):
    put(tmp_path, "qa6_test.txt", content(6, "test"))
    source = files.open_source(tmp_path)
    assert len(source.stories(6, "test")) == 4
    with pytest.raises(Refused, match=r"has no file qa6_train.txt or qa6_yes-no-questions_train.txt; .* it has test$"):
        source.stories(6, "train")
    with pytest.raises(Refused, match=r"has no file qa7_test.txt or qa7_counting_test.txt$"):
        source.stories(7, "test")
    with pytest.raises(Refused, match="--split must be one of train, valid, test, got 'dev'"):
        source.stories(6, "dev")


def test_without_validation_files_a_tenth_of_train_is_held_out(tmp_path: Path):
    put(tmp_path / "en-10k", "qa6_train.txt", content(6, "train", 200))
    source = files.open_source(tmp_path)
    train, valid = source.stories(6, "train"), source.stories(6, "valid")
    assert train + valid == generate.generated(6, "train", 200, 0)
    assert sum(len(story.questions()) for story in valid) == 20


def test_files_without_enough_questions_are_refused(tmp_path: Path):
    told = "1 Mary moved to the garden.\n"
    put(tmp_path / "none", "qa1_test.txt", told.encode())
    with pytest.raises(Refused, match=r"qa1_test\.txt has no question$"):
        files.open_source(tmp_path / "none").stories(1, "test")
    put(tmp_path / "one", "qa1_train.txt", (told + "2 Where is Mary?\tgarden\t1\n").encode())
    for split in ("train", "valid"):
        with pytest.raises(Refused, match=r"qa1_train\.txt has too few questions to hold some out for validation"):
            files.open_source(tmp_path / "one").stories(1, split)


def test_what_no_layout_has_is_not_kept_of_an_archive(tmp_path: Path):
    wanted = (f"{ROOT}/en/qa6_train.txt", "./en-10k/qa6_train.txt")
    other = (f"{ROOT}/hn/qa6_train.txt", "en/deeper/qa6_train.txt", "d1/qa6_train.txt")
    (tmp_path / "babi.tar.gz").write_bytes(pack([(name, content(6, "train", 5)) for name in (*wanted, *other)]))
    kept = [name for name, _ in files.members(tmp_path / "babi.tar.gz")]
    assert kept == [wanted[0], wanted[1].removeprefix("./")]


def test_a_layout_can_be_chosen(tmp_path: Path):
    put(tmp_path / "en-10k", "qa6_train.txt", content(6, "train", 30))
    put(tmp_path / "en", "qa6_train.txt", content(6, "train", 10))
    assert files.open_source(tmp_path).label.endswith("en-10k")
    assert files.open_source(tmp_path, "en").label.endswith("en")
    with pytest.raises(Refused, match="a folder en-valid with bAbI files"):
        files.open_source(tmp_path, "en-valid")
    with pytest.raises(Refused, match="--layout must be one of"):
        files.open_source(tmp_path, "hn")


def test_folders_without_data_and_files_twice(tmp_path: Path):
    with pytest.raises(Refused, match="there is no folder or archive"):
        files.open_source(tmp_path / "none")
    with pytest.raises(Refused, match="does not have any bAbI files"):
        files.open_source(tmp_path)
    put(tmp_path, "qa6_train.txt", content(6, "train"))
    put(tmp_path, "qa6_yes-no-questions_train.txt", content(6, "train"))
    with pytest.raises(Refused, match="are both task 6, train: remove one"):
        files.open_source(tmp_path)


def test_a_malformed_file_is_named_with_its_line(tmp_path: Path):
    put(tmp_path, "qa6_train.txt", content(6, "train").replace(b"\n2 ", b"\n7 ", 1))
    with pytest.raises(Refused, match=r"qa6_train\.txt, line 2: the line's number should be 1 or 2, got 7"):
        files.open_source(tmp_path).stories(6, "train")


def test_an_archive_is_read_without_unpacking(tmp_path: Path):
    inner = ("en-valid-10k/qa6_train.txt", "hn/qa6_train.txt", "en/qa6_train.txt")
    members = [(f"{ROOT}/{name}", content(6, "train", n)) for n, name in zip((10, 20, 30), inner, strict=True)]
    (tmp_path / "babi.tar.gz").write_bytes(pack([*members, link(f"{ROOT}/again.txt", "en/qa6_train.txt")]))
    source = files.open_source(tmp_path / "babi.tar.gz", "en-valid-10k")
    # No validation files: of ten questions the last story is held out.
    assert source.stories(6, "train") + source.stories(6, "valid") == generate.generated(6, "train", 10, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["babi.tar.gz"]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_archive_is_refused(tmp_path: Path, kept: float):
    data = pack([(f"{ROOT}/en/qa{task}_train.txt", content(task, "train", 50)) for task in (1, 2)])
    (tmp_path / "babi.tar.gz").write_bytes(data[: int(kept * len(data))])
    with pytest.raises(Refused, match=r"is not a whole \.tar\.gz archive"):
        files.open_source(tmp_path / "babi.tar.gz")


@pytest.mark.parametrize("size", [15_000, 500])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch, size: int):
    (tmp_path / "babi.tar.gz").write_bytes(pack([("big", bytes(20_000)), ("more", bytes(20_000))]))
    monkeypatch.setattr(files, "MAX_UNPACKED", size)
    with pytest.raises(Refused, match=f"unpacks to more than {size} bytes"):
        files.open_source(tmp_path / "babi.tar.gz")


ESCAPES = [
    ("../outside.txt", b"x"),
    (f"{ROOT}/en-10k/../../../outside.txt", b"x"),
    ("/tmp/outside.txt", b"x"),
    ("C:\\outside.txt", b"x"),
    ("..\\outside.txt", b"x"),
    link(f"{ROOT}/out", "../../outside"),
    link(f"{ROOT}/out", "/etc"),
    link(f"{ROOT}/out", "../outside.txt", tarfile.LNKTYPE),
    link(f"{ROOT}/pipe", "", tarfile.FIFOTYPE),
]


@pytest.mark.parametrize("member", ESCAPES, ids=range(len(ESCAPES)))
def test_an_archive_that_reaches_out_is_refused(tmp_path: Path, member: tuple):
    (tmp_path / "babi.tar.gz").write_bytes(pack([(f"{ROOT}/en/qa6_train.txt", content(6, "train")), member]))
    with pytest.raises(Refused, match="is not safe: "):
        files.open_source(tmp_path / "babi.tar.gz")


class Server:
    """Answers every address with what `answers` has for it: status, bytes, and the length it claims."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, int]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, data, length = outer.answers.get(self.path, (404, b"", 0))
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=partial(self.http.serve_forever, 0.01), daemon=True)
        self.thread.start()

    def offer(self, name: str, data: bytes, length: int | None = None) -> str:
        self.answers[f"/{name}"] = (200, data, len(data) if length is None else length)
        return f"http://127.0.0.1:{self.http.server_port}/{name}"


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()
    made.thread.join()


@pytest.fixture(scope="module")
def released() -> dict[str, bytes]:
    """Forty small files under the released names."""
    return {
        f"qa{task}_{name}_{split}.txt": content(task, split, 2)
        for task, name in TASK_NAMES.items()
        for split in ("train", "test")
    }


@pytest.fixture(scope="module")
def known(released) -> tuple[dict[str, str], dict[str, int]]:
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in released.items()}
    unknown = next(iter(download.SIZES))
    del sums[unknown]
    return sums, {unknown: len(released[unknown])}


def archive_of(released: dict[str, bytes], *more: tuple) -> bytes:
    return pack([*((f"{ROOT}/en-10k/{name}", data) for name, data in released.items()), *more])


def test_the_archive_is_fetched_once_and_checked(tmp_path: Path, server: Server, released, known):
    url = server.offer("babi.tar.gz", archive_of(released, (f"{ROOT}/README", b"read me")))
    folder = download.fetch(url, tmp_path, *known)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == released
    assert [path.name for path in folder.parent.iterdir()] == ["en-10k"]
    assert files.open_source(folder).stories(20, "test") == text.read(released["qa20_agents-motivations_test.txt"], "")
    download.fetch(url, tmp_path, *known)
    assert len(server.asked) == 1
    (folder / "qa1_single-supporting-fact_train.txt").write_bytes(b"damaged")
    assert download.is_whole(download.fetch(url, tmp_path, *known), *known)
    assert len(server.asked) == 2


def bad_sum(released: dict[str, bytes]) -> bytes:
    return archive_of({**released, "qa4_two-arg-relations_test.txt": released["qa1_single-supporting-fact_test.txt"]})


def bad_size(released: dict[str, bytes]) -> bytes:
    name = next(iter(download.SIZES))
    return archive_of({**released, name: released[name] + b"\n"})


def missing(released: dict[str, bytes]) -> bytes:
    return archive_of({name: data for name, data in released.items() if not name.startswith("qa7_")})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (bad_sum, "qa4_two-arg-relations_test.txt is not the released file: its SHA-256 should be"),
        (bad_size, "qa3_three-supporting-facts_train.txt is not the released file: it should have"),
        (missing, "the archive has no file en-10k/qa7_counting_train.txt"),
        (lambda released: archive_of(released)[:-2000], "is not a whole .tar.gz archive"),
        (lambda _: b"<html>no</html>", "is not a whole .tar.gz archive"),
        (lambda released: archive_of(released, ESCAPES[0]), "is not safe: '../outside.txt' reaches outside"),
        (lambda released: archive_of(released, ESCAPES[2]), "is not safe: '/tmp/outside.txt' names an absolute path"),
        (lambda released: archive_of(released, ESCAPES[5]), f"is not safe: '{ROOT}/out' reaches outside"),
    ],
)
def test_what_is_not_the_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, server: Server, released, known, make, sentence: str
):
    url = server.offer("babi.tar.gz", make(released))
    with pytest.raises(Refused) as caught:
        download.fetch(url, tmp_path / "cache", *known)
    assert str(caught.value).startswith(f"{url}: {sentence}"), caught.value
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_that_is_cut_short_or_not_there(tmp_path: Path, server: Server, released, known, monkeypatch):
    data = archive_of(released)
    with pytest.raises(Refused, match=r"cut short|cannot be fetched"):
        download.fetch(server.offer("short", data, len(data) + 1000), tmp_path, *known)
    with pytest.raises(Refused, match="the server answered 404 Not Found"):
        download.fetch(server.offer("x", data) + "/none", tmp_path, *known)
    with pytest.raises(Refused, match="cannot be fetched"):
        download.fetch("no address", tmp_path, *known)
    monkeypatch.setattr(download, "MAX_ARCHIVE", 1000)
    with pytest.raises(Refused, match="larger than 1000 bytes"):
        download.fetch(server.offer("long", data), tmp_path, *known)


def test_the_known_sums_are_those_of_39_files(monkeypatch, tmp_path: Path):
    sums = download.known_sums()
    assert len(sums) == 39 and set(sums) | set(download.SIZES) == set(download.wanted())
    assert len(download.wanted()) == 2 * len(TASKS) and {len(digest) for digest in sums.values()} == {64}
    monkeypatch.setenv("PONDERNET_CACHE", str(tmp_path))
    assert download.cache_folder() == tmp_path


def test_flags_choose_the_source(tmp_path: Path, server: Server, released, known, monkeypatch):
    put(tmp_path, "qa6_test.txt", content(6, "test"))
    assert download.choose_folder(None, False, None) is None
    assert download.choose_folder(str(tmp_path), False, None) == str(tmp_path)
    with pytest.raises(Refused, match="--url goes with --download"):
        download.choose_folder(None, False, "http://x")
    with pytest.raises(Refused, match="two sources: choose one"):
        download.choose_folder(str(tmp_path), True, None)
    monkeypatch.setenv("PONDERNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "known_sums", lambda: known[0])
    monkeypatch.setattr(download, "SIZES", known[1])
    folder = download.choose_folder(None, True, server.offer("babi.tar.gz", archive_of(released)))
    assert folder is not None and (20, "train") in files.open_source(folder).files


def test_the_command_says_where_it_failed(server: Server, capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PONDERNET_CACHE", str(tmp_path))
    assert download.main(["--url", server.offer("x", b"") + "y"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the server answered 404" in line
