"""A bucket of small images on this machine, and a server that misbehaves by rule."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from radial.open_images.fetch import FetchSettings, fetch
from radial.open_images.manifest import Manifest, Row, read_manifest, write_manifest

PAGE = b"<!DOCTYPE html><html><body>We will be back soon.</body></html>"
LOSSES = ("404", "410", "html", "empty", "cut jpeg", "no jpeg")  # rules that lose an image


class Bucket(socketserver.ThreadingTCPServer):
    """Serves ``files`` (path → bytes) over HTTP/1.1 with keep-alive, Range and If-Range.

    ``rules`` (path → rule) say how it misbehaves; "… once" does so the first time only, and
    nothing does when ``recovered`` is set. ``requests`` counts what was asked for.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files: dict[str, bytes], rules: dict[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.rules = files, rules or {}
        self.requests: Counter[str] = Counter()
        self.ranges: list[tuple[str, str]] = []  # path and Range of requests that had one
        self.connections = self.most = self.opened = 0
        self.recovered = False
        self.broken_after: int | None = None  # so many requests, then a page for everyone
        self.over = threading.Event()  # ends the silence
        self.hold_after: int | None = None  # so many requests, then no answer until ``over``
        self.wrong_tags = False
        self.tags = True  # send ETag, else Last-Modified only
        self.guard = threading.Lock()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def rule(self, path: str) -> str:
        with self.guard:
            self.requests[path] += 1
            first = self.requests[path] == 1
            if self.broken_after is not None and self.requests.total() > self.broken_after:
                return "html"
            held = self.hold_after is not None and self.requests.total() > self.hold_after
        if held:
            return "silence"
        rule = "" if self.recovered else self.rules.get(path, "")
        name, _, _ = rule.partition(" once")
        return name if first or rule == name else ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that are killed


@contextmanager
def serving(files: dict[str, bytes], rules: dict[str, str] | None = None) -> Iterator[Bucket]:
    with Bucket(files, rules) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


class _Handler(socketserver.BaseRequestHandler):
    server: Bucket

    def handle(self) -> None:
        with self.server.guard:
            self.server.connections += 1
            self.server.opened += 1
            self.server.most = max(self.server.most, self.server.connections)
        try:
            self._serve()
        except OSError:
            pass
        finally:
            with self.server.guard:
                self.server.connections -= 1

    def _serve(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request.settimeout(20)
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                piece = self.request.recv(65536)
                if not piece:
                    return
                rest += piece
            head, _, rest = rest.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:])
            if not self._answer(lines[0].split()[1], headers):
                return

    def _answer(self, path: str, headers: dict[str, str]) -> bool:
        """Whether the connection stays open."""
        server, rule = self.server, self.server.rule(path)
        body = server.files.get(path, server.files.get(path.partition("?")[0]))
        if body is None or rule in ("404", "410"):
            return self._send("410 Gone" if rule == "410" else "404 Not Found", b"<Error/>")
        if rule in ("500", "503", "429", "403"):
            after = {"Retry-After": "1"} if rule == "503" else {}
            return self._send(f"{rule} No", b"<Error/>", after)
        if rule == "hang up":
            return False
        if rule == "silence":
            server.over.wait()
            return False
        if rule == "cut":  # promises more than it sends
            self._part("200 OK", body, {}, "half")
            return False
        if rule == "moved nowhere":
            return self._send("302 Found", b"", {"Location": "http://[::1/"})
        if rule == "moved":
            return self._send("302 Found", b"", {"Location": path.partition("?")[0] + "?moved"})
        wrong = {"html": PAGE, "empty": b"", "cut jpeg": body[: len(body) // 2], "no jpeg": b"GIF8"}
        if rule in wrong:
            return self._send("200 OK", wrong[rule])
        if rule == "chunked":
            pieces = (body[start : start + 100] for start in range(0, len(body), 100))
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.request.sendall(body + b"0\r\n\r\n")
            return True
        return self._whole(path, body, headers, rule)

    def _whole(self, path: str, body: bytes, headers: dict[str, str], rule: str) -> bool:
        digest = hashlib.md5(body[self.server.wrong_tags :], usedforsecurity=False).hexdigest()
        date = formatdate(int(digest[:6], 16), usegmt=True)
        version = f'"{digest}"' if self.server.tags else date
        if rule == "damaged":  # of the right length
            body = body[:-20] + bytes(18) + body[-2:]
        names = {"ETag" if self.server.tags else "Last-Modified": version}
        wanted = headers.get("range")
        if wanted:
            self.server.ranges.append((path, wanted))
        if not wanted or rule == "no ranges" or headers.get("if-range", "") != version.lower():
            return self._part("200 OK", body, names, rule)
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(body):
            names["Content-Range"] = f"bytes */{len(body)}"
            return self._send("416 Range Not Satisfiable", b"", names)
        names["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self._part("206 Partial Content", body[start:], names, rule)

    def _part(self, status: str, body: bytes, names: dict[str, str], rule: str) -> bool:
        if rule != "half" or len(body) < 10:
            return self._send(status, body, names)
        self._send(status, body[: len(body) // 2], {**names, "Content-Length": str(len(body))})
        return False

    def _send(self, status: str, body: bytes, names: dict[str, str] | None = None) -> bool:
        names = {"Content-Length": str(len(body)), **(names or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        self.request.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
        return True


def jpeg(seed: int, side: tuple[int, int] | None = None) -> bytes:
    """A small picture with a bright corner at the top left."""
    random = np.random.default_rng(seed)
    width, height = side or tuple(random.integers(8, 25, 2))
    pixels = random.integers(0, 90, (height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] += 160
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def bucket_and_manifest(sizes: dict[str, int], chosen: int) -> tuple[dict[str, bytes], Manifest]:
    """Images of each class, ``chosen`` of them chosen, a few of them lying on their side."""
    rows, files = [], {}
    for kind, name in enumerate(sorted(sizes)):
        for rank in range(sizes[name]):
            number = 100_000 * kind + rank
            identity = hashlib.sha256(f"{number}".encode()).hexdigest()[:16]
            subset = ("train", "train", "validation", "test")[number % 4]
            rotation = {5: 90, 11: 180, 23: 270}.get(number % 40, 0)
            role = "chosen" if rank < chosen else "reserve"
            row = Row(identity, subset, f"/m/0{kind}", name, rank, role, rotation)
            rows.append(row)
            files[address(row)] = jpeg(number)
    return files, Manifest(rows=tuple(rows), settings={"seed": 42})


def address(row: Row) -> str:
    return f"/{row.subset}/{row.id}.jpg"


def expected(manifest: Manifest, rules: dict[str, str]) -> dict[str, list[Row]]:
    """The subset by its definition: first in hash order, of what is there, equal in number."""
    there = {
        name: [row for row in rows if rules.get(address(row), "") not in LOSSES]
        for name, rows in manifest.by_class().items()
    }
    count = min(manifest.per_class, *map(len, there.values()))
    return {name: rows[:count] for name, rows in there.items()}


def ran_out(manifest: Manifest, rules: dict[str, str]) -> str | None:
    """The first class by name of which no image is left, where one had too few."""
    wanted = expected(manifest, rules)
    count = len(next(iter(wanted.values())))
    for name, rows in manifest.by_class().items():
        there = [row for row in rows if rules.get(address(row), "") not in LOSSES]
        if len(there) == count < manifest.per_class:
            return name
    return None


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder and its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def small_bucket(path: Path) -> Iterator[tuple[Bucket, Manifest]]:
    """Three classes with 4 chosen images each; of the first there are no more."""
    files, manifest = bucket_and_manifest({"Cat": 4, "Dog": 7, "Red panda": 9}, 4)
    write_manifest(path, manifest)
    with serving(files) as server:
        yield server, manifest


def settings(server: Bucket, **changes: object) -> FetchSettings:
    quick = FetchSettings(base=server.base, backoff=0.002, timeout=10.0, connections=32)
    return replace(quick, **changes)


def check(out: Path, manifest: Manifest, files: dict[str, bytes], rules: dict[str, str]) -> None:
    """The directory holds the subset by its definition, and the manifest says so."""
    final, wanted = read_manifest(out / "manifest.csv"), expected(manifest, rules)
    found = {path.name: sorted(file.stem for file in path.iterdir()) for path in folders(out)}
    assert found == {name: sorted(row.id for row in rows) for name, rows in wanted.items()}
    assert len({len(names) for names in found.values()}) == 1
    for name, rows in wanted.items():
        for row in rows:
            content = (out / name / f"{row.id}.jpg").read_bytes()
            if not row.rotation:
                assert content == files[address(row)]
            with Image.open(io.BytesIO(content)) as image:
                image.load()
    chosen = {row.id for rows in wanted.values() for row in rows}
    assert {row.id for row in final.rows if row.role == "chosen"} == chosen
    limit = ran_out(manifest, rules)
    assert final.settings["fetch"]["limited_by"] == limit
    for before, after in zip(manifest.rows, final.rows, strict=True):
        assert after == before._replace(role=after.role)
        lost = rules.get(address(after)) in LOSSES
        last = max(row.rank for row in wanted[after.class_name])
        if after.rank <= last or after.class_name == limit:
            assert after.role == ("gone" if lost else "chosen")
        else:
            assert after.role == ("cut" if before.role == "chosen" else "reserve")
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "manifest.csv", "manifest.csv.json",
    ]  # fmt: skip
    assert not (out / ".fetch").exists()


def folders(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.is_dir() and path.name != ".fetch")


def rows_of(manifest: Manifest, name: str) -> list[str]:
    return [address(row) for row in manifest.by_class()[name]]


def die_at(step: int, manifest: Path, out: Path, settings: FetchSettings) -> None:
    """Fetch, but end the process, as ``kill -9`` would, at its n-th change to the disk."""
    left = step
    guard = threading.Lock()

    def dying(change: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            with guard:
                left -= 1
                if left == 0:
                    os._exit(9)
            return change(*arguments, **options)

        return run

    for name in ("replace", "fsync", "unlink", "mkdir", "rmdir"):
        setattr(os, name, dying(getattr(os, name)))
    fetch(manifest, out, settings)
