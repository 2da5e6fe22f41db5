"""One address, fetched into a file under an overall deadline: a server that drips bytes cannot hold a command up."""

import io
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from ponder_ref.runtime.errors import Refused, on_one_line

TIMEOUT = 60  # seconds without a byte
DEADLINE = 3600  # seconds for all, redirections and headers included
PATIENCE, LEAST_RATE = 60, 1024  # after so many seconds, the fewest bytes per second on average


class Watch:
    """Counts what comes and how long it takes; raises TimeoutError where that is too little or too long."""

    def __init__(self) -> None:
        self.began, self.bytes = time.monotonic(), 0

    def seen(self, count: int) -> None:
        self.bytes += count
        took = time.monotonic() - self.began
        if took > DEADLINE:
            raise TimeoutError(f"not done after {DEADLINE} seconds")
        if took > PATIENCE and self.bytes < LEAST_RATE * took:
            raise TimeoutError(f"too slow: {self.bytes} bytes in {took:.0f} seconds")


class Watched(io.RawIOBase):
    """The bytes of a connection, watched as they come in: the headers, too."""

    def __init__(self, raw: io.RawIOBase, watch: Watch):
        self.raw, self.watch = raw, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self.raw.readinto(buffer)
        self.watch.seen(count or 0)
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """urllib's way to http and https, with every connection watched."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def do_open(self, http_class: Any, req: Any, **settings: Any) -> Any:
        def response(*arguments: Any, **about: Any) -> HTTPResponse:
            made = HTTPResponse(*arguments, **about)
            made.fp = io.BufferedReader(Watched(made.fp.detach(), self.watch))
            return made

        def connection(*arguments: Any, **about: Any) -> HTTPConnection:
            made = http_class(*arguments, **about)
            made.response_class = response
            return made

        return super().do_open(connection, req, **settings)


class NoFtp(urllib.request.FTPHandler):
    """Its connections could not be watched."""

    def ftp_open(self, req: Any) -> Any:
        raise urllib.error.URLError("an address of http or https is needed")


def said(text: object) -> str:
    """What a server or a library says, on one line and not too long."""
    return on_one_line(" ".join(str(text).split()))[:200]


def save(url: str, path: Path, most: int) -> None:
    """Fetches an address into a file; one that is cut short, too slow, or longer than `most` bytes is refused."""
    watch = Watch()
    opener = urllib.request.build_opener(Handler(watch), NoFtp)
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "pondernet"})
        with opener.open(request, timeout=TIMEOUT) as answer, open(path, "wb") as file:
            while data := answer.read(2**16):
                file.write(data)
                if file.tell() > most:
                    raise Refused(f"{url}: larger than {most} bytes, not the archive of the bAbI tasks")
            expected = answer.headers.get("Content-Length")
        if expected is not None and path.stat().st_size != int(expected):
            raise Refused(f"{url}: cut short, {path.stat().st_size} of {int(expected)} bytes came")
    except urllib.error.HTTPError as error:
        error.close()
        raise Refused(f"{url}: the server answered {error.code} {said(error.reason)}") from None
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise Refused(f"{url}: cannot be fetched ({said(reason) or type(error).__name__})") from None
