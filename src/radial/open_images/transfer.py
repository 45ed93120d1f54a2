"""One HTTP GET that does not give up at once: into memory, or into a file with resume."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO

from radial.checks import DataError
from radial.files import write_atomically
from radial.open_images.connections import Connections, split
from radial.open_images.deadlines import Deadline
from radial.open_images.locks import lock

Progress = Callable[[int, int | None], None]  # bytes there, bytes in all where known

_AGAIN = (408, 425, 429)  # of the 4xx, those that may pass; of the 5xx, all
_CHUNK = 1 << 18


class Gone(DataError):
    """The server says that there is no such file (404, 410)."""


class Unreachable(DataError):
    """The file may be there, but did not come; another time it may."""


class TooLarge(DataError):
    """The file is there, and larger than the limit."""


class _Failed(Exception):
    """One attempt failed: why, and how long the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def get(
    url: str,
    *,
    connections: Connections | None = None,
    retries: int = 5,
    backoff: float = 0.5,
    longest_wait: float = 60.0,
    timeout: float = 30.0,
    limit: int = 1 << 28,
    stop: threading.Event | None = None,
) -> bytes:
    """The whole body, as long as its Content-Length says.

    Errors that may pass are retried after ``backoff`` · 2^attempt seconds (with jitter, and at
    least what Retry-After asks), each wait at most ``longest_wait``. ``timeout`` is for
    silence; an answer that trickles, its head included, has ten times as long in all. Where a
    server's ETags were seen to be MD5 sums, the body must have the one that it comes with. With
    ``connections`` (of this thread) a connection is used again. ``stop`` ends the waiting.
    """
    split(url)
    own = connections or Connections(timeout)
    try:
        attempt = 0
        while True:
            try:
                return _body(own, url, limit, 10 * timeout)
            except _Failed as failure:
                _wait(url, failure, attempt, retries, backoff, longest_wait, stop)
                attempt += 1
    finally:
        if connections is None:
            own.close()


def download(
    url: str,
    path: Path | str,
    *,
    progress: Progress | None = None,
    retries: int = 5,
    backoff: float = 0.5,
    longest_wait: float = 60.0,
    timeout: float = 30.0,
) -> None:
    """A large file, which takes its name when all of it is on disk; what is there is kept.

    Until then it is ``<name>.part``, and ``<name>.part.json`` says which version of the file it
    is the beginning of. The next call asks for the rest only, and begins anew where the server
    has another version by now. Only attempts that bring nothing count as retries.
    """
    split(url)
    path = Path(path)
    if path.is_file():
        return
    part = path.with_name(f"{path.name}.part")
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("ab")
    with file, Connections(timeout) as connections:
        lock(file, path)
        attempt = 0
        while True:
            before = _size(file)
            try:
                _append(connections, url, file, part, progress)
                break
            except _Failed as failure:
                attempt = 0 if _size(file) > before else attempt
                _wait(url, failure, attempt, retries, backoff, longest_wait)
                attempt += 1
        with _disk(path):
            file.flush()
            os.fsync(file.fileno())
    with _disk(path):
        part.replace(path)
        _note(part).unlink(missing_ok=True)


def _append(
    connections: Connections, url: str, file: IO[bytes], part: Path, progress: Progress | None
) -> None:
    """Ask for what ``part`` lacks, and write it there as it comes."""
    size = _size(file)
    version, total = _noted(part, url) if size else ("", None)
    if size and size == total:
        return
    headers = {"Range": f"bytes={size}-", "If-Range": version} if size and version else {}
    with (
        _transport(),
        _limited(connections, 10 * connections.timeout) as head,
        connections.answer(url, headers) as response,
    ):
        head.cancel()  # the body of a large file may take its time
        _check(response, url, allowed=(200, 206, 416) if headers else (200,))
        start, total = _span(response)
        if response.status == 416 and total == size:
            return
        if response.status != 200 and start != size:
            with _disk(part):
                file.truncate(0)
            raise _Failed(f"asked for what follows byte {size}, the server sent something else")
        if response.status == 200:
            with _disk(part):
                if size:
                    file.truncate(0)
                note = {"url": url, "version": _version(response), "total": total}
                write_atomically(_note(part), json.dumps(note))
            size = 0
        while piece := response.read1(_CHUNK):
            with _disk(part):
                file.write(piece)
                file.flush()
            size += len(piece)
            if progress is not None:
                progress(size, total)
        if total is not None and size != total:
            raise _Failed(f"the connection ended after {size:,} of {total:,} bytes")


def _body(connections: Connections, url: str, limit: int, seconds: float) -> bytes:
    with (
        _transport(),
        _limited(connections, seconds),
        connections.answer(url) as response,
    ):
        _check(response, url, allowed=(200,))
        _, total = _span(response)
        if total is not None and total > limit:
            raise TooLarge(f"{url}: {total:,} bytes, more than the limit of {limit:,}")
        pieces, size = [], 0
        while piece := response.read1(_CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise TooLarge(f"{url}: more than the limit of {limit:,} bytes")
        if total is not None and size != total:
            raise _Failed(f"the connection ended after {size:,} of {total:,} bytes")
        body = b"".join(pieces)
        _compare(connections, url, response.getheader("ETag") or "", body)
    return body


def _compare(connections: Connections, url: str, tag: str, body: bytes) -> None:
    """With an ETag that is an MD5 sum; which some are only in form, so one must have fitted."""
    if not re.fullmatch(r'"[0-9a-f]{32}"', tag):
        return
    server = split(url).netloc
    if hashlib.md5(body, usedforsecurity=False).hexdigest() == tag.strip('"'):
        connections.md5.add(server)
    elif server in connections.md5:
        raise _Failed("what came is not what its ETag says")


@contextmanager
def _limited(connections: Connections, seconds: float) -> Iterator[Deadline]:
    """End an attempt after so many seconds, wherever it is: also while a head trickles."""
    connections.aborted = False
    deadline = Deadline(seconds, connections.abort)
    try:
        yield deadline
    except Exception:
        if not deadline.over:
            raise
    finally:
        deadline.cancel()
    if deadline.over:  # what came may look whole: a head that ends early is a shorter head
        raise _Failed(f"too slow: not whole after {seconds:g} seconds")


def _check(response: http.client.HTTPResponse, url: str, allowed: tuple[int, ...]) -> None:
    status = response.status
    if status in allowed:
        return
    reason = f"the server answers {status} {response.reason}".strip()
    if status in (404, 410):
        raise Gone(f"{url}: {reason}")
    if status in _AGAIN or status >= 500:
        raise _Failed(reason, _asked(response.getheader("Retry-After")))
    raise Unreachable(f"{url}: {reason}")


@contextmanager
def _transport() -> Iterator[None]:
    """Whatever the network does becomes one failed attempt."""
    try:
        yield
    except TimeoutError:
        raise _Failed("no answer in time") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(" ".join(str(error).split()) or type(error).__name__) from error


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def _wait(
    url: str,
    failure: _Failed,
    attempt: int,
    retries: int,
    backoff: float,
    longest: float,
    stop: threading.Event | None = None,
) -> None:
    if attempt < retries:
        jitter = random.uniform(0.5, 1.0)  # so that many do not come back at the same moment
        seconds = min(longest, max(failure.wait, backoff * 2**attempt * jitter))
        if not (stop or threading.Event()).wait(seconds):
            return
    tries = f", {attempt + 1} times" if attempt else ""
    raise Unreachable(f"{url}: {failure}{tries}") from failure


def _asked(text: str | None) -> float:
    """Seconds that Retry-After asks for, as a number or a date; 0 where it says nothing."""
    if not text:
        return 0.0
    try:
        return max(0.0, float(text) if text.isdecimal() else _until(text))
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time.time()


def _span(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """First byte and size of the whole file (None: not said)."""
    if response.status == 200:
        length = response.getheader("Content-Length")
        chunked = response.chunked  # then the end is marked, and a length would be wrong
        return 0, int(length) if length and length.isdecimal() and not chunked else None
    unit, _, span = (response.getheader("Content-Range") or "").partition(" ")
    first, _, total = span.partition("/")
    first = first.partition("-")[0]
    start = int(first) if unit == "bytes" and first.isdecimal() else -1
    return start, int(total) if total.isdecimal() else None


def _version(response: http.client.HTTPResponse) -> str:
    """What If-Range can be asked with: a strong ETag, or a date; '' where there is neither."""
    tag = response.getheader("ETag") or ""
    return tag if tag.startswith('"') else response.getheader("Last-Modified") or ""


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _noted(part: Path, url: str) -> tuple[str, int | None]:
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
        version, total = note["version"], note["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", None
    if note["url"] != url or not isinstance(version, str):
        return "", None
    return version, total if isinstance(total, int) else None


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
