"""Downloads against a server that breaks off, fails, and changes its files."""

from __future__ import annotations

import base64
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from open_images_server import Bucket, serving
from radial.data import DataError
from radial.open_images.http import (
    Client,
    Gone,
    TooLarge,
    Unreachable,
    Waiting,
    _Failed,
    _redirected,
)
from radial.open_images.journal import alone

BODY = np.random.default_rng(0).bytes(100_000)


def client(**changes: Any) -> Client:
    how = {name: changes.pop(name) for name in ("stop", "clock") if name in changes}
    return Client(Waiting(**{"backoff": 0.001, "timeout": 60.0} | changes), **how)


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@contextmanager
def one(rule: str = "", body: bytes = BODY) -> Iterator[Bucket]:
    with serving({"/a.csv": body}, {"/a.csv": rule}) as server:
        yield server


@pytest.mark.parametrize(
    "rule", ["", "500 once", "429 once", "cut once", "hang up once", "chunked"]
)
def test_a_body_comes_whole(rule: str) -> None:
    with one(rule) as server:
        assert client().get(f"{server.base}/a.csv") == BODY
        assert server.requests["/a.csv"] == 1 + rule.endswith("once")


class Letters:
    """A server that sends a text letter by letter, and a clock that goes only as letters are sent.

    A letter is sent when somebody looks at the clock, so nothing depends on how fast either is.
    """

    def __init__(self, text: bytes, seconds: float = 1.0) -> None:
        self.text, self.seconds, self.sent = text, seconds, 0
        self.looked, self.over = threading.Event(), threading.Event()

    def clock(self) -> float:
        self.looked.set()
        return self.seconds * self.sent

    def serve(self, request: socket.socket) -> None:
        request.recv(10_000)
        for letter in self.text:
            self.looked.wait()
            self.looked.clear()
            if self.over.is_set():
                return
            request.sendall(bytes([letter]))
            self.sent += 1
        self.over.wait()


@contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does as told with whoever connects."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                serve(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/a"
        finally:
            server.shutdown()
            thread.join()


def saying(text: bytes) -> Callable[[socket.socket], None]:
    def serve(request: socket.socket) -> None:
        request.recv(10_000)
        request.sendall(text)

    return serve


@pytest.mark.parametrize("what", ["get", "download"])
@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nX-A: " + 400 * b"a",
        b"HTTP/1.1 200 OK\r\nX-A: a\r\n" + 40 * b"X: aaaaaa\r\n",
        20 * b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + 400 * b"a",
        b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n" + 399 * b"a",
    ],
)
def test_an_answer_that_trickles_ends(text: bytes, what: str, tmp_path: Path) -> None:
    """Its head, too, though there is never silence; and what came is not taken for the whole."""
    if what == "download" and b"\r\n\r\n" in text and b"Continue" not in text:
        return  # the body of a large file may take its time
    letters = Letters(text)
    asking = client(retries=0, timeout=20.0, clock=letters.clock)
    with answering(letters.serve) as url:
        try:
            with pytest.raises(Unreachable, match="too slow: not whole after 200 seconds"):
                asking.get(url) if what == "get" else asking.download(url, tmp_path / "a")
        finally:
            letters.over.set()
            letters.looked.set()
    assert letters.sent >= 200
    assert not (tmp_path / "a").exists()


def test_a_download_that_takes_its_time_is_no_trickle(tmp_path: Path) -> None:
    letters = Letters(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n" + 400 * b"a")
    with answering(letters.serve) as url:
        client(retries=0, timeout=20.0, clock=letters.clock).download(url, tmp_path / "a")
        letters.over.set()
    assert (tmp_path / "a").read_bytes() == 400 * b"a"


@pytest.mark.parametrize("target", [b"http://[::1/", b"file:///etc/passwd", b"http://a:b/"])
def test_redirects_to_what_is_no_address(target: bytes) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target
    said = pytest.raises(Unreachable, match=r"redirected to .*, no address")
    with answering(saying(head)) as url, said:
        client(retries=0).get(url)


def test_no_redirect_leaves_https() -> None:
    assert _redirected("https://host/a", "/b") == "https://host/b"
    assert _redirected("http://host/a", "https://host/b") == "https://host/b"
    with pytest.raises(_Failed, match="redirected from https to http://host/a"):
        _redirected("https://host/a", "http://host/a")


def test_no_redirect_leads_to_another_host() -> None:
    for target in ("https://other/b", "//other/b", "https://host.other/b", "https://host@other/"):
        with pytest.raises(_Failed, match=r"redirected to (another host|.*, no address)"):
            _redirected("https://host/a", target)


def test_a_password_is_not_printed() -> None:
    for url in ("https://me:secret@host/a", "https://me:secret@host:port/a", "ftp://a:secret@b"):
        with pytest.raises(DataError) as told:
            client().get(url)
        assert "secret" not in str(told.value)


@pytest.mark.parametrize("header", ["Content-Length: %s", "Content-Range: bytes 0-1/%s"])
def test_no_file_has_that_many_bytes(header: str) -> None:
    status = "206 Partial Content" if "Range" in header else "200 OK"
    head = f"HTTP/1.1 {status}\r\n{header % ('9' * 5000)}\r\n\r\n".encode()
    with answering(saying(head)) as url, pytest.raises(Unreachable):
        client(retries=0).get(url)


def test_redirects_are_followed() -> None:
    with serving({"/a": b"", "/a?moved": BODY}, {"/a": "moved"}) as server:
        assert client().get(f"{server.base}/a") == BODY
        server.rules["/a?moved"] = "moved"
        with pytest.raises(Unreachable, match="more than 5 redirects"):
            client(retries=0).get(f"{server.base}/a")


@pytest.mark.parametrize("rule", ["404", "410"])
def test_what_is_gone_is_not_asked_for_again(rule: str, tmp_path: Path) -> None:
    with one(rule) as server:
        with pytest.raises(Gone, match=rf"a\.csv: the server answers {rule}"):
            client().get(f"{server.base}/a.csv")
        with pytest.raises(Gone):
            client().download(f"{server.base}/a.csv", tmp_path / "a.csv")
        assert server.requests["/a.csv"] == 2


@pytest.mark.parametrize(
    ("rule", "reason", "asked"),
    [
        ("500", "the server answers 500 No, 3 times", 3),
        ("403", "the server answers 403 No", 1),
        ("cut", "the connection ended after 50,000 of 100,000 bytes, 3 times", 3),
        ("hang up", "Remote end closed connection without response, 3 times", 3),
    ],
)
def test_other_errors_end_after_the_retries(rule: str, reason: str, asked: int) -> None:
    with one(rule) as server, pytest.raises(Unreachable) as error:
        client(retries=2).get(f"{server.base}/a.csv")
    assert str(error.value) == f"{server.base}/a.csv: {reason}"
    assert server.requests["/a.csv"] == asked


def test_silence_ends_after_the_retries() -> None:
    """By a clock that goes only while the client waits."""
    looks, asked, over = count(), [], threading.Event()

    def silent(request: socket.socket) -> None:
        asked.append(request.recv(10_000))
        over.wait()

    with answering(silent) as url:
        asking = client(retries=2, timeout=3.0, clock=lambda: float(next(looks)))
        with pytest.raises(Unreachable, match="a: no answer in time, 3 times"):
            asking.get(url)
        over.set()
    assert len(asked) == 3


def test_no_server_is_unreachable() -> None:
    with one() as server:
        base = server.base
    with pytest.raises(Unreachable, match="Connection refused, 2 times"):
        client(retries=1).get(f"{base}/a.csv")


def test_a_large_body_is_refused_before_and_while_it_comes() -> None:
    for rule in ("", "chunked"):
        with one(rule) as server, pytest.raises(TooLarge, match="limit of 1,000"):
            client().get(f"{server.base}/a.csv", limit=1000)


@pytest.mark.parametrize(
    "url", ["ftp://host/a", "http://", "file:///etc/passwd", "http://a b/", "http://h:x/", ""]
)
def test_addresses_are_checked(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not an address"):
        client().get(url)
    with pytest.raises(DataError, match="not an address"):
        client().download(url, tmp_path / "a")
    assert not list(tmp_path.iterdir())


class Waits(threading.Event):
    """Notes how long it was to be waited, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


def test_waits_grow_are_bounded_and_do_as_the_server_asks() -> None:
    waits = Waits()
    with one("500") as server, pytest.raises(Unreachable):
        client(retries=8, backoff=1.0, longest_wait=20.0, stop=waits).get(f"{server.base}/a.csv")
    for attempt, wait in enumerate(waits.seconds):
        assert min(20, 0.5 * 2**attempt) <= wait <= min(20, 2**attempt)
    assert len(waits.seconds) == 8


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [
        ("12", 12, 12), ("1000000", 300, 300), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 1),
        ("soon", 0, 1), ("-3", 0, 1), ("Fri, 01 Jan 2100 00:00:00 GMT", 300, 300),
    ],
)  # fmt: skip
def test_retry_after_is_waited_for(asked: str, low: float, high: float) -> None:
    waits = Waits()
    head = f"HTTP/1.1 503 Busy\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n"
    with answering(saying(head.encode())) as url, pytest.raises(Unreachable):
        client(retries=1, backoff=1.0, longest_wait=300.0, stop=waits).get(url)
    assert low <= waits.seconds[0] <= high


def test_a_stop_ends_the_waiting() -> None:
    stop = threading.Event()
    stop.set()
    with one("500") as server, pytest.raises(Unreachable):
        client(backoff=1e9, longest_wait=1e9, stop=stop).get(f"{server.base}/a.csv")


def test_one_connection_serves_many_requests_and_is_renewed_when_it_was_closed() -> None:
    files = {f"/{number}": BODY[:number] for number in range(50)}
    rules = {"/20": "404", "/30": "cut once"}
    with serving(files, rules) as server:
        asking = client()
        for path, body in files.items():
            if path != "/20":
                assert asking.get(f"{server.base}{path}") == body
                continue
            with pytest.raises(Gone):
                asking.get(f"{server.base}{path}")
        assert server.opened == 2  # the cut one was not used again
        server.rules["/1"] = "hang up once"
        server.requests.clear()
        assert asking.get(f"{server.base}/1") == BODY[:1]
        asking.close()


def stop_after(count: int) -> Callable[[int, int | None], None]:
    def progress(size: int, total: int | None) -> None:
        if size >= count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("tags", [True, False])
def test_a_download_goes_on_where_it_stopped(tmp_path: Path, tags: bool) -> None:
    path, seen = tmp_path / "new" / "a.csv", []
    body = BODY * 20
    with one("", body) as server:
        server.tags = tags
        with pytest.raises(KeyboardInterrupt):
            client().download(f"{server.base}/a.csv", path, progress=stop_after(1_000_000))
        kept = path.with_name("a.csv.part").stat().st_size
        assert not path.exists()
        assert kept >= 1_000_000
        client().download(f"{server.base}/a.csv", path, progress=lambda *now: seen.append(now))
        assert server.ranges == [("/a.csv", f"bytes={kept}-")]
    assert path.read_bytes() == body
    assert [entry.name for entry in path.parent.iterdir()] == ["a.csv"]
    assert seen[-1] == (len(body), len(body))
    assert all(kept < size for size, _ in seen)
    client().download("http://127.0.0.1:9/a.csv", path)  # it is there


@pytest.mark.parametrize("case", ["changed", "no ranges", "no note", "other address"])
def test_a_download_begins_anew_where_the_rest_would_not_fit(tmp_path: Path, case: str) -> None:
    path, part = tmp_path / "a.csv", tmp_path / "a.csv.part"
    with one("no ranges" if case == "no ranges" else "") as server:
        url = f"{server.base}/a.csv"
        note = {"url": url, "version": "", "total": len(BODY)}
        part.write_bytes(BODY[:5000] if case == "no ranges" else b"x" * 5000)
        note["version"] = '"another version"'
        if case == "other address":
            note["url"] = f"{server.base}/b.csv"
        if case != "no note":
            part.with_name("a.csv.part.json").write_text(json.dumps(note))
        client().download(url, path)
    assert path.read_bytes() == BODY
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_a_part_that_is_whole_is_only_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with one() as server:
        url = f"{server.base}/a.csv"
        path.with_name("a.csv.part").write_bytes(BODY)
        note = {"url": url, "version": '"v"', "total": len(BODY)}
        path.with_name("a.csv.part.json").write_text(json.dumps(note))
        client().download(url, path)
        assert not server.requests
    assert path.read_bytes() == BODY


def test_a_download_that_is_cut_again_and_again_arrives(tmp_path: Path) -> None:
    """Each attempt brings half of what is left: more attempts than retries."""
    with one("half") as server:
        client(retries=1).download(f"{server.base}/a.csv", tmp_path / "a.csv")
        assert server.requests["/a.csv"] > 5
    assert (tmp_path / "a.csv").read_bytes() == BODY


def test_a_failed_download_keeps_its_part_and_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with one("cut") as server:
        with pytest.raises(Unreachable, match="50,000 of 100,000"):
            client(retries=1).download(f"{server.base}/a.csv", tmp_path / "a.csv")
        assert (tmp_path / "a.csv.part").read_bytes() == BODY[:50_000]
        (tmp_path / "full.part").symlink_to("/dev/full")
        server.recovered = True
        with pytest.raises(DataError, match=r"cannot write .*full.*: No space left on device"):
            client().download(f"{server.base}/a.csv", tmp_path / "full")
        assert not (tmp_path / "full").exists()


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with (
        one() as server,
        alone(tmp_path / "a.csv.lock", "a.csv"),
        pytest.raises(DataError, match="another process is at work on"),
    ):
        client().download(f"{server.base}/a.csv", tmp_path / "a.csv")


def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://images.example:81/a.csv"
    with serving({address: BODY}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base)
        monkeypatch.setenv("no_proxy", "other.example")
        assert client().get(address) == BODY
        monkeypatch.setenv("no_proxy", "images.example")
        with pytest.raises(Unreachable):
            client(retries=0).get(address)


def test_a_proxy_is_told_name_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heads.append(self.request.recv(10_000))
            self.request.sendall(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        for scheme in ("http", "https"):
            address = f"http://user:p%40ss@localhost:{proxy.server_address[1]}"
            monkeypatch.setenv(f"{scheme}_proxy", address)
            with pytest.raises(Unreachable, match="407"):
                client(retries=0).get(f"{scheme}://images.example/a.jpg")
        proxy.shutdown()
        thread.join()
    assert [head.split()[0] for head in heads] == [b"GET", b"CONNECT"]
    told = b": Basic " + base64.b64encode(b"user:p@ss")
    assert all(told in head and b"proxy-authorization" in head.lower() for head in heads)
    monkeypatch.setenv("http_proxy", "http://user:secret@no place")
    with pytest.raises(DataError, match="http_proxy of the environment is not an address") as wrong:
        client(retries=0).get("http://images.example/a.jpg")
    assert "secret" not in str(wrong.value)
