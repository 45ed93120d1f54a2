"""HTTP GETs that do not give up at once: into memory, or into a file with resume.

Connections, their reuse, TLS, proxies and redirects are urllib3's. What is added: an attempt counts
only when the whole body has come, and no answer lasts for ever, however slowly it trickles.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import math
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader

from radial.checks import DataError, check_number, check_size, one_line
from radial.documents import parse_json
from radial.files import write_atomically
from radial.open_images.journal import alone

Progress = Callable[[int, int | None], None]  # bytes there, bytes in all where known

_AGAIN = (408, 425, 429)  # of the 4xx, those that may pass; of the 5xx, all
_CHUNK = 1 << 18
_LEFT = 1 << 16  # bytes of an answer nobody wants that are read to keep its connection
_REDIRECTS = 5
_LOOK = 0.25  # seconds from look to look at the clock and at ``stop``
_PATIENCE = 10  # times the timeout: what a whole answer may take, though it never falls silent


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


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How servers are asked, and how long and how often.

    Attributes:
        connections: Kept open to one server.
        retries: Of what may pass: other errors than 404 and 410, bodies that break off.
        backoff: Seconds before the first retry; they double, with jitter, and are at least what
            Retry-After asks for.
        longest_wait: Seconds before a retry at most.
        timeout: Seconds of silence. An answer that trickles, its head included, has ten times as
            long in all; a large file has that for its head.
    """

    connections: int = 1
    retries: int = 5
    backoff: float = 0.5
    longest_wait: float = 60.0
    timeout: float = 30.0

    def __post_init__(self) -> None:
        try:
            check_size("connections", self.connections)
            check_size("retries", self.retries, minimum=0)
            check_number("backoff", self.backoff)
            check_number("longest_wait", self.longest_wait)
            check_number("timeout", self.timeout, low=1e-3)
        except ValueError as error:
            raise DataError(str(error)) from None
        if self.connections > 256:
            raise DataError(f"connections must be at most 256, not {self.connections}")


class Client:
    """For any number of threads; a connection is used again once its answer was read.

    Redirects are followed, never from https to http, never to another host. The proxies of the
    environment (``https_proxy``, ``no_proxy`` …) are used, with name and password where they have
    them.

    Args:
        waiting: How long and how often.
        stop: Ends all waiting when it is set.
        clock: Seconds, as `time.monotonic`.
    """

    def __init__(
        self,
        waiting: Waiting | None = None,
        *,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waiting = waiting or Waiting()
        self.stop, self.clock = stop or threading.Event(), clock
        self.end = threading.local()  # .time: when the attempt of a thread is over
        self._pools: dict[str | None, urllib3.PoolManager] = {}  # by proxy
        self._md5: set[str] = set()  # servers whose ETags were the MD5 of what came

    def close(self) -> None:
        """Close the connections that nobody uses."""
        for pool in list(self._pools.values()):
            pool.clear()

    def get(self, url: str, *, limit: int = 1 << 28) -> bytes:
        """The whole body, as long as its Content-Length says.

        Where a server's ETags were seen to be MD5 sums, it must have the one it comes with.

        Raises:
            Gone: The server says that there is no such file.
            TooLarge: It has more than ``limit`` bytes.
            Unreachable: It did not come in ``retries`` + 1 attempts.
        """
        check_address(url)
        for attempt in count():
            try:
                return self._body(url, limit)
            except _Failed as failure:
                self._wait(url, failure, attempt)
        raise AssertionError("unreachable")

    def download(self, url: str, path: Path | str, *, progress: Progress | None = None) -> None:
        """A large file, which takes its name when all of it is on disk; what is there is kept.

        Until then it is ``<name>.part``, and ``<name>.part.json`` says which version of the file
        it is the beginning of. The next call asks for the rest only, and begins anew where the
        server has another version by now. Only attempts that bring nothing count as retries.

        Raises:
            Gone, Unreachable: As `get`.
            DataError: The disk is full, or another process is at work on the file.
        """
        check_address(url)
        path = Path(path)
        part = path.with_name(f"{path.name}.part")
        lock = path.with_name(f"{path.name}.lock")
        if path.is_file():
            return
        with _disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with alone(lock, path):
            if not path.is_file():
                self._download(url, path, part, progress)
            lock.unlink(missing_ok=True)

    def _download(self, url: str, path: Path, part: Path, progress: Progress | None) -> None:
        with _disk(path):
            file = part.open("ab")
        with file:
            attempt = 0
            while True:
                before = _size(file)
                try:
                    self._append(url, file, part, progress)
                    break
                except _Failed as failure:
                    attempt = 0 if _size(file) > before else attempt
                    self._wait(url, failure, attempt)
                    attempt += 1
            with _disk(path):
                os.fsync(file.fileno())
        with _disk(path):
            part.replace(path)
            _note(part).unlink(missing_ok=True)

    def _append(self, url: str, file: IO[bytes], part: Path, progress: Progress | None) -> None:
        """Ask for what ``part`` lacks, and write it there as it comes."""
        size = _size(file)
        version, total = _noted(part, url) if size else ("", None)
        if size and size == total:
            return
        headers = {"Range": f"bytes={size}-", "If-Range": version} if size and version else {}
        with self._answer(url, headers, (200, 206, 416) if headers else (200,)) as response:
            self.end.time = math.inf  # the body of a large file may take its time
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
            for piece in _pieces(response):
                with _disk(part):
                    file.write(piece)
                    file.flush()
                size += len(piece)
                if progress is not None:
                    progress(size, total)
            _check_whole(size, total)

    def _body(self, url: str, limit: int) -> bytes:
        with self._answer(url) as response:
            _, total = _span(response)
            pieces, size = [], 0
            for piece in _pieces(response) if (total or 0) <= limit else ():
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    break
            if max(size, total or 0) > limit:
                raise TooLarge(
                    f"{url}: {max(size, total or 0):,} bytes, over the limit of {limit:,}"
                )
            _check_whole(size, total)
            body = b"".join(pieces)
            self._compare(urlsplit(url).netloc, response.headers.get("ETag", ""), body)
        return body

    def _compare(self, server: str, tag: str, body: bytes) -> None:
        """With an ETag that is an MD5 sum; which some are only in form, so one must have fitted."""
        if re.fullmatch(r'"[0-9a-f]{32}"', tag):
            if hashlib.md5(body, usedforsecurity=False).hexdigest() == tag.strip('"'):
                self._md5.add(server)
            elif server in self._md5:
                raise _Failed("what came is not what its ETag says")

    @contextmanager
    def _answer(
        self, url: str, headers: Mapping[str, str] | None = None, allowed: tuple[int, ...] = (200,)
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """An answer of one of the statuses allowed, its body not yet read.

        Whatever the network does before all of it is read becomes one failed attempt.
        """
        seconds = _PATIENCE * self.waiting.timeout
        self.end.time = end = self.clock() + seconds
        _thread.client = self
        response = None
        try:
            response = self._ask(url, headers or {})
            _check_status(response, url, allowed)
            yield response
        except (HTTPError, OSError, http.client.HTTPException) as error:
            slow = self.clock() >= min(end, self.end.time)
            why = f"too slow: not whole after {seconds:g} seconds" if slow else _reason(error)
            raise _Failed(why) from error
        finally:
            if response is not None:
                with suppress(HTTPError, OSError, http.client.HTTPException):
                    if response.status >= 400:
                        response.read(_LEFT)
                response.close()  # unless all was read: then it was given back already

    def _ask(self, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Redirects are followed here, as urllib3 would go from https to http, or to no address."""
        plain = {"User-Agent": "radial-ssl", "Accept-Encoding": "identity"}  # the file's own bytes
        for _ in range(1 + _REDIRECTS):
            response = self._pool(url).request(
                "GET",
                url,
                headers=plain | dict(headers),
                timeout=self.waiting.timeout,
                retries=False,  # an attempt that brought no body is counted here
                redirect=False,
                preload_content=False,
                decode_content=False,
                enforce_content_length=False,  # a resumed file is checked as a whole
            )
            target = response.get_redirect_location()
            if not target:
                return response
            response.drain_conn()
            url = _redirected(url, target)
        raise _Failed(f"more than {_REDIRECTS} redirects")

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        if proxy not in self._pools:
            self._pools[proxy] = _new_pool(parts.scheme, proxy, self.waiting.connections)
        return self._pools[proxy]

    def _wait(self, url: str, failure: _Failed, attempt: int) -> None:
        if attempt < self.waiting.retries:
            jitter = random.uniform(0.5, 1.0)  # so that many do not come back at the same moment
            seconds = max(failure.wait, self.waiting.backoff * 2**attempt * jitter)
            if not self.stop.wait(min(self.waiting.longest_wait, seconds)):
                return
        tries = f", {attempt + 1} times" if attempt else ""
        raise Unreachable(f"{url}: {failure}{tries}") from failure


_thread = threading.local()  # .client: that asks in this thread


class _PatientReader(io.RawIOBase):
    """A socket read in short waits: a stop and the end of an attempt are noticed within any line.

    A timeout of the socket alone begins anew with every byte.
    """

    def __init__(self, sock: socket.socket, file: IO[bytes]) -> None:
        self._sock, self._file, self._client = sock, file, cast(Client, _thread.client)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        clock, silence = self._client.clock, self._sock.gettimeout()
        until = min(self._client.end.time, clock() + (math.inf if silence is None else silence))
        try:
            while not self._client.stop.is_set():
                left = until - clock()
                if left <= 0:
                    raise TimeoutError
                self._sock.settimeout(min(left, _LOOK))
                with suppress(TimeoutError):
                    return self._sock.recv_into(buffer)
            raise ConnectionAbortedError("stopped")
        finally:
            self._sock.settimeout(silence)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *rest: Any, **more: Any) -> None:
        super().__init__(sock, *rest, **more)
        self.fp = io.BufferedReader(_PatientReader(sock, self.fp))


class _HTTPPool(urllib3.HTTPConnectionPool):
    class ConnectionCls(urllib3.connection.HTTPConnection):
        response_class = _Response


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    class ConnectionCls(urllib3.connection.HTTPSConnection):
        response_class = _Response


def _redirected(url: str, target: str) -> str:
    try:
        joined = urljoin(url, target)
        check_address(joined)
    except ValueError:  # a DataError, too
        raise _Failed(f"redirected to {target!r}, no address") from None
    if url.startswith("https:") and not joined.startswith("https:"):
        raise _Failed(f"redirected from https to {joined}")
    if urlsplit(url).hostname != urlsplit(joined).hostname:
        raise _Failed(f"redirected to another host, {urlsplit(joined).hostname}")
    return joined


def _new_pool(scheme: str, proxy: str | None, connections: int) -> urllib3.PoolManager:
    options: dict[str, Any] = {"maxsize": connections, "ssl_context": _certificates()}
    if proxy is None:
        pool = urllib3.PoolManager(**options)
    else:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        try:
            _check_form(proxy)
        except DataError:  # whose text may have a password in it
            raise DataError(f"{scheme}_proxy of the environment is not an address") from None
        words = unquote(urlsplit(proxy).netloc.rpartition("@")[0])
        told = urllib3.make_headers(proxy_basic_auth=words) if words else None
        pool = urllib3.ProxyManager(proxy, proxy_headers=told, **options)
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


@cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()  # reading the certificates takes longer than a request


def check_address(url: str) -> None:
    """A DataError unless it can be asked for: http or https, a host, no spaces, no password."""
    _check_form(url)
    if "@" in urlsplit(url).netloc:  # which is not shown: addresses are, in errors and journals
        host = urlsplit(url).hostname
        raise DataError(
            f"an address with a name or password in it is not asked for: that of {host}"
        )


def _check_form(url: str) -> None:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        known = False
    if not known or any(ord(letter) <= 32 or ord(letter) >= 127 for letter in url):
        shown = re.sub(r"//.*@", "//…@", url)
        raise DataError(f"not an address of the form https://host/path: {shown!r}")


def _check_status(response: urllib3.BaseHTTPResponse, url: str, allowed: tuple[int, ...]) -> None:
    status = response.status
    if status in allowed:
        return
    reason = f"the server answers {status} {response.reason}".strip()
    if status in (404, 410):
        raise Gone(f"{url}: {reason}")
    if status not in _AGAIN and status < 500:
        raise Unreachable(f"{url}: {reason}")
    wait = 0.0
    with suppress(InvalidHeader):
        wait = urllib3.Retry().get_retry_after(response) or 0.0
    raise _Failed(reason, wait)


def _reason(error: BaseException) -> str:
    """What lies at the bottom of it, on one line; urllib3 says "Connection aborted."."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    if isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        return "no answer in time"
    return one_line(error)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    while piece := response.read1(_CHUNK):
        yield piece


def _check_whole(size: int, total: int | None) -> None:
    if total is not None and size != total:
        raise _Failed(f"the connection ended after {size:,} of {total:,} bytes")


def _span(response: urllib3.BaseHTTPResponse) -> tuple[int, int | None]:
    """First byte and size of the whole file (None: not said)."""
    if response.status == 200:
        length = response.headers.get("Content-Length", "")
        chunked = "Transfer-Encoding" in response.headers  # then the end is marked
        return 0, _number(length) if not chunked else None
    unit, _, span = response.headers.get("Content-Range", "").partition(" ")
    first, _, total = span.partition("/")
    first = first.partition("-")[0]
    start = _number(first) if unit == "bytes" else None
    return -1 if start is None else start, _number(total)


def _number(text: str) -> int | None:
    """Of bytes; None where it says none, an error where no file has as many."""
    if not (text.isascii() and text.isdecimal()):
        return None
    if len(text) > 18:
        raise _Failed(f"the server tells of a number of bytes with {len(text):,} digits")
    return int(text)


def _version(response: urllib3.BaseHTTPResponse) -> str:
    """What If-Range can be asked with: a strong ETag, or a date; '' where there is neither."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _noted(part: Path, url: str) -> tuple[str, int | None]:
    try:
        note = parse_json(_note(part).read_bytes())
        version, total = note["version"], note["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", None
    if note["url"] != url or not isinstance(version, str):
        return "", None
    return version, total if isinstance(total, int) else None


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
