"""Downloads against a server that breaks off, fails, and changes its files."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from open_images_server import Bucket, serving
from radial.data import DataError
from radial.open_images import transfer
from radial.open_images.connections import Connections
from radial.open_images.transfer import Gone, TooLarge, Unreachable, download, get

BODY = np.random.default_rng(0).bytes(100_000)
QUICK = {"backoff": 0.001, "timeout": 1.0}


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@contextmanager
def one(rule: str = "", body: bytes = BODY) -> Iterator[Bucket]:
    with serving({"/a.csv": body}, {"/a.csv": rule}) as server:
        yield server


@pytest.mark.parametrize(
    "rule", ["", "500 once", "429 once", "cut once", "hang up once", "chunked", "slow"]
)
def test_a_body_comes_whole(rule: str) -> None:
    with one(rule) as server:
        assert get(f"{server.base}/a.csv", **QUICK) == BODY
        assert server.requests["/a.csv"] == 1 + rule.endswith("once")


@contextmanager
def speaking(text: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that sends ``text`` letter by letter to whoever asks; its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(10_000)
            with suppress(OSError):
                for letter in text:
                    self.request.sendall(bytes([letter]))
                    time.sleep(pause)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/a"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nX-A: " + 400 * b"a",
        b"HTTP/1.1 200 OK\r\nX-A: a\r\n" + 40 * b"X: aaaaaa\r\n",
        20 * b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + 400 * b"a",
    ],
)
def test_an_answer_that_trickles_ends(text: bytes, tmp_path: Path) -> None:
    """Its head, too, though there is never silence; and what came is not taken for the whole."""
    start = time.monotonic()
    with speaking(text, 0.01) as url:
        with pytest.raises(Unreachable, match=r"too slow: not whole after 0\.5 seconds"):
            get(url, retries=0, timeout=0.05)
        if b"chunked" not in text:
            with pytest.raises(Unreachable, match="too slow"):
                download(url, tmp_path / "a", retries=0, timeout=0.05)
    assert time.monotonic() - start < 3
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("target", [b"http://[::1/", b"file:///etc/passwd", b"http://a:b/"])
def test_redirects_to_what_is_no_address(target: bytes) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target
    with speaking(head) as url, pytest.raises(Unreachable, match=r"redirected to .*, no address"):
        get(url, retries=0)


def test_redirects_are_followed() -> None:
    with serving({"/a": b"", "/a?moved": BODY}, {"/a": "moved"}) as server:
        assert get(f"{server.base}/a", **QUICK) == BODY
        server.rules["/a?moved"] = "moved"
        with pytest.raises(Unreachable, match="more than 5 redirects"):
            get(f"{server.base}/a", retries=0, **QUICK)


@pytest.mark.parametrize("rule", ["404", "410"])
def test_what_is_gone_is_not_asked_for_again(rule: str, tmp_path: Path) -> None:
    with one(rule) as server:
        with pytest.raises(Gone, match=rf"a\.csv: the server answers {rule}"):
            get(f"{server.base}/a.csv", **QUICK)
        with pytest.raises(Gone):
            download(f"{server.base}/a.csv", tmp_path / "a.csv", **QUICK)
        assert server.requests["/a.csv"] == 2


@pytest.mark.parametrize(
    ("rule", "reason", "asked"),
    [
        ("500", "the server answers 500 No, 3 times", 3),
        ("403", "the server answers 403 No", 1),
        ("cut", "the connection ended after 50,000 of 100,000 bytes, 3 times", 3),
        ("hang up", "Remote end closed connection without response, 3 times", 3),
        ("silence", "no answer in time, 3 times", 3),
    ],
)
def test_other_errors_end_after_the_retries(rule: str, reason: str, asked: int) -> None:
    with one(rule) as server, pytest.raises(Unreachable) as error:
        get(f"{server.base}/a.csv", retries=2, backoff=0.001, timeout=0.2)
    assert str(error.value) == f"{server.base}/a.csv: {reason}"
    assert server.requests["/a.csv"] == asked


def test_no_server_is_unreachable() -> None:
    with one() as server:
        base = server.base
    with pytest.raises(Unreachable, match="Connection refused, 2 times"):
        get(f"{base}/a.csv", retries=1, **QUICK)


def test_a_large_body_is_refused_before_and_while_it_comes() -> None:
    for rule in ("", "chunked"):
        with one(rule) as server, pytest.raises(TooLarge, match="limit of 1,000"):
            get(f"{server.base}/a.csv", limit=1000, **QUICK)


@pytest.mark.parametrize(
    "url", ["ftp://host/a", "http://", "file:///etc/passwd", "http://a b/", "http://h:x/", ""]
)
def test_addresses_are_checked(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not an address"):
        get(url)
    with pytest.raises(DataError, match="not an address"):
        download(url, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_waits_grow_are_bounded_and_do_as_the_server_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, seconds: waits.append(seconds))
    url, failed = "http://h/", transfer._Failed("no", 0.0)
    for attempt in range(8):
        transfer._wait(url, failed, attempt, 8, backoff=1.0, longest=20.0)
    for attempt, wait in enumerate(waits):
        assert min(20, 0.5 * 2**attempt) <= wait <= min(20, 2**attempt)
    transfer._wait(url, transfer._Failed("no", 7.0), 0, 8, backoff=1.0, longest=20.0)
    transfer._wait(url, transfer._Failed("no", 1e6), 0, 8, backoff=1.0, longest=20.0)
    assert waits[-2:] == [7.0, 20.0]
    assert transfer._asked("12") == 12
    assert transfer._asked("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert transfer._asked("soon") == transfer._asked(None) == transfer._asked("-3") == 0
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    assert 95 < transfer._asked(later) < 105


def test_retry_after_is_waited_for() -> None:
    with one("503 once") as server:
        start = time.monotonic()
        assert get(f"{server.base}/a.csv", **QUICK) == BODY
        assert time.monotonic() - start >= 1.0


def test_a_stop_ends_the_waiting() -> None:
    stop = threading.Event()
    stop.set()
    with one("500") as server, pytest.raises(Unreachable):
        get(f"{server.base}/a.csv", backoff=1000.0, stop=stop)


def test_one_connection_serves_many_requests_and_is_renewed_when_it_was_closed() -> None:
    files = {f"/{number}": BODY[:number] for number in range(50)}
    rules = {"/20": "404", "/30": "cut once"}
    with serving(files, rules) as server, Connections(1.0) as connections:
        opened = server.opened
        for path, body in files.items():
            if path != "/20":
                found = get(f"{server.base}{path}", connections=connections, **QUICK)
                assert found == body
                continue
            with pytest.raises(Gone):
                get(f"{server.base}{path}", connections=connections, **QUICK)
        assert server.opened == opened + 2  # the cut one was not used again
        server.rules["/1"] = "hang up once"
        server.requests.clear()
        assert get(f"{server.base}/1", connections=connections, retries=0) == BODY[:1]


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
            download(f"{server.base}/a.csv", path, progress=stop_after(1_000_000), **QUICK)
        kept = path.with_name("a.csv.part").stat().st_size
        assert not path.exists()
        assert kept >= 1_000_000
        download(f"{server.base}/a.csv", path, progress=lambda *now: seen.append(now), **QUICK)
        assert server.ranges == [("/a.csv", f"bytes={kept}-")]
    assert path.read_bytes() == body
    assert [entry.name for entry in path.parent.iterdir()] == ["a.csv"]
    assert seen[-1] == (len(body), len(body))
    assert all(kept < size for size, _ in seen)
    download("http://127.0.0.1:9/a.csv", path)  # it is there


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
        download(url, path, **QUICK)
    assert path.read_bytes() == BODY
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_a_part_that_is_whole_is_only_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with one() as server:
        url = f"{server.base}/a.csv"
        path.with_name("a.csv.part").write_bytes(BODY)
        note = {"url": url, "version": '"v"', "total": len(BODY)}
        path.with_name("a.csv.part.json").write_text(json.dumps(note))
        download(url, path)
        assert not server.requests
    assert path.read_bytes() == BODY


def test_a_download_that_is_cut_again_and_again_arrives(tmp_path: Path) -> None:
    """Each attempt brings half of what is left: more attempts than retries."""
    with one("half") as server:
        download(f"{server.base}/a.csv", tmp_path / "a.csv", retries=1, **QUICK)
        assert server.requests["/a.csv"] > 5
    assert (tmp_path / "a.csv").read_bytes() == BODY


def test_a_failed_download_keeps_its_part_and_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with one("cut") as server:
        with pytest.raises(Unreachable, match="50,000 of 100,000"):
            download(f"{server.base}/a.csv", tmp_path / "a.csv", retries=1, **QUICK)
        assert (tmp_path / "a.csv.part").read_bytes() == BODY[:50_000]
        (tmp_path / "full.part").symlink_to("/dev/full")
        server.recovered = True
        with pytest.raises(DataError, match=r"cannot write .*full.*: No space left on device"):
            download(f"{server.base}/a.csv", tmp_path / "full", **QUICK)
        assert not (tmp_path / "full").exists()


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with one() as server, (tmp_path / "a.csv.part").open("ab") as file:
        transfer.lock(file, "a.csv")
        with pytest.raises(DataError, match="another process is at work on"):
            download(f"{server.base}/a.csv", tmp_path / "a.csv", **QUICK)


def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://images.example:81/a.csv"
    with serving({address: BODY}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base)
        monkeypatch.setenv("no_proxy", "other.example")
        assert get(address, **QUICK) == BODY
        monkeypatch.setenv("no_proxy", "images.example")
        with pytest.raises(Unreachable):
            get(address, retries=0, **QUICK)


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
                get(f"{scheme}://images.example/a.jpg", retries=0, timeout=5.0)
        proxy.shutdown()
        thread.join()
    assert [head.split()[0] for head in heads] == [b"GET", b"CONNECT"]
    wanted = b"Proxy-Authorization: Basic " + base64.b64encode(b"user:p@ss")
    assert all(wanted in head for head in heads)
    monkeypatch.setenv("http_proxy", "http://user:secret@no place")
    with pytest.raises(DataError, match="http_proxy of the environment is not an address") as wrong:
        get("http://images.example/a.jpg", retries=0)
    assert "secret" not in str(wrong.value)
