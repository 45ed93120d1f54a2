"""Threads that fetch images: each with a connection of its own, each image whole or not at all."""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from radial.data.open_images.connections import Connections
from radial.data.open_images.manifest import Row
from radial.data.open_images.pictures import NotWhole, prepared
from radial.data.open_images.transfer import Gone, TooLarge, Unreachable, get

_LIMIT = 1 << 26  # bytes of an image

Kind = Literal["got", "gone", "no image", "unreachable", "disk", "bug"]


class Manner(Protocol):
    """How to ask; the settings of a fetch have it."""

    @property
    def base(self) -> str: ...
    @property
    def size(self) -> int | None: ...
    @property
    def connections(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def backoff(self) -> float: ...
    @property
    def longest_wait(self) -> float: ...
    @property
    def timeout(self) -> float: ...


class Outcome(NamedTuple):
    row: Row
    kind: Kind
    size: int = 0  # of the file
    received: int = 0
    reason: str = ""
    error: BaseException | None = None


class Workers:
    """``ask`` for rows, ``take`` what became of them, in any order."""

    def __init__(self, manner: Manner, arriving: Path) -> None:
        self._manner, self._arriving = manner, arriving
        self._tasks: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._connections = [Connections(manner.timeout) for _ in range(manner.connections)]
        self._threads: list[threading.Thread] = []
        self.waiting = 0  # rows asked for and not taken

    def ask(self, row: Row) -> None:
        if len(self._threads) < len(self._connections):  # no more threads than there is work
            connections = self._connections[len(self._threads)]
            thread = threading.Thread(target=self._work, args=(connections,), daemon=True)
            thread.start()
            self._threads.append(thread)
        self.waiting += 1
        self._tasks.put(row)

    def take(self, timeout: float = 0.5, gather: float = 0.02) -> list[Outcome]:
        """What there is within ``gather`` seconds of the first: one sync of the journal for all."""
        outcomes: list[Outcome] = []
        until = time.monotonic() + timeout
        try:
            while len(outcomes) < self.waiting:
                left = until - time.monotonic()
                outcomes.append(self._outcomes.get(timeout=max(0.0, left)))
                if len(outcomes) == 1:
                    until = time.monotonic() + gather
        except queue.Empty:
            pass
        self.waiting -= len(outcomes)
        return outcomes

    def stop(self) -> None:
        """End at once, also where an answer is awaited."""
        self._stop.set()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            while thread.is_alive():
                for connections in self._connections:
                    connections.abort()
                thread.join(0.05)

    def _work(self, connections: Connections) -> None:
        with connections:
            while (row := self._tasks.get()) is not None and not self._stop.is_set():
                try:
                    outcome = self._fetch(row, connections)
                except Unreachable as error:
                    outcome = Outcome(row, "unreachable", reason=str(error))
                except OSError as error:
                    outcome = Outcome(row, "disk", reason=disk_reason(error, self._arriving))
                except BaseException as error:  # not to be lost in a thread
                    outcome = Outcome(row, "bug", error=error)
                self._outcomes.put(outcome)

    def _fetch(self, row: Row, connections: Connections) -> Outcome:
        url = f"{self._manner.base.rstrip('/')}/{row.subset}/{row.id}.jpg"
        manner, received, reason = self._manner, 0, ""
        for attempt in range(2):  # an answer that is no image may be a bad moment of the server
            if attempt:
                self._stop.wait(manner.backoff)
            try:
                content = get(
                    url,
                    connections=connections,
                    retries=manner.retries,
                    backoff=manner.backoff,
                    longest_wait=manner.longest_wait,
                    timeout=manner.timeout,
                    limit=_LIMIT,
                    stop=self._stop,
                )
                received += len(content)
                kept = prepared(content, row.rotation, manner.size)
            except Gone as error:
                return Outcome(row, "gone", received=received, reason=str(error))
            except TooLarge as error:
                return Outcome(row, "no image", received=received, reason=str(error))
            except NotWhole as error:
                reason = f"{url}: {error}"
            else:
                _write(self._arriving / f"{row.id}.jpg", kept)
                return Outcome(row, "got", len(kept), received)
        return Outcome(row, "no image", received=received, reason=reason)


@contextmanager
def working(manner: Manner, arriving: Path) -> Iterator[Workers]:
    workers = Workers(manner, arriving)
    try:
        yield workers
    finally:
        workers.stop()


def disk_reason(error: OSError, place: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {place}: make room, then go on"
    return f"cannot write to {place}: {error.strerror or error}"


def _write(path: Path, content: bytes) -> None:
    """Whole and synced; it is renamed by the journal."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
