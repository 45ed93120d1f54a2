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
from typing import Literal, NamedTuple

from radial.open_images.connections import Connections
from radial.open_images.manifest import Row
from radial.open_images.pictures import NotWhole, prepared
from radial.open_images.settings import FetchSettings
from radial.open_images.transfer import Gone, TooLarge, Unreachable, get

_LIMIT = 1 << 26  # bytes of an image
_PATIENCE = 1.0  # seconds for threads to end

Kind = Literal["got", "gone", "no image", "unreachable", "disk", "bug"]


class Outcome(NamedTuple):
    row: Row
    kind: Kind
    size: int = 0  # of the file
    received: int = 0
    reason: str = ""
    error: BaseException | None = None
    begun: float = 0.0  # when it was asked for (time.monotonic)
    ended: float = 0.0


class Workers:
    """``ask`` for rows, ``take`` what became of them, in any order."""

    def __init__(self, settings: FetchSettings, arriving: Path) -> None:
        self._settings, self._arriving = settings, arriving
        self._tasks: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._connections = [Connections(settings.timeout) for _ in range(settings.connections)]
        for connections in self._connections:  # what one learns about a server holds for all
            connections.md5 = self._connections[0].md5
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
        """End within about a second, also where an answer is awaited.

        A thread that is still connecting then cannot be woken. It is left to itself: what it
        gets is not written, and it does not keep the process from ending.
        """
        self._stop.set()
        for _ in self._threads:
            self._tasks.put(None)
        until = time.monotonic() + _PATIENCE
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < until:
                for connections in self._connections:
                    connections.abort()
                thread.join(0.05)

    def _work(self, connections: Connections) -> None:
        with connections:
            while (row := self._tasks.get()) is not None and not self._stop.is_set():
                begun = time.monotonic()
                try:
                    outcome = self._fetch(row, connections)
                except Unreachable as error:
                    outcome = Outcome(row, "unreachable", reason=str(error))
                except OSError as error:
                    outcome = Outcome(row, "disk", reason=disk_reason(error, self._arriving))
                except BaseException as error:  # not to be lost in a thread
                    outcome = Outcome(row, "bug", error=error)
                self._outcomes.put(outcome._replace(begun=begun, ended=time.monotonic()))

    def _fetch(self, row: Row, connections: Connections) -> Outcome:
        url = f"{self._settings.base.rstrip('/')}/{row.subset}/{row.id}.jpg"
        settings, received, reason = self._settings, 0, ""
        for attempt in range(2):  # an answer that is no image may be a bad moment of the server
            if attempt:
                self._stop.wait(settings.backoff)
            try:
                content = get(
                    url,
                    connections=connections,
                    retries=settings.retries,
                    backoff=settings.backoff,
                    longest_wait=settings.longest_wait,
                    timeout=settings.timeout,
                    limit=_LIMIT,
                    stop=self._stop,
                )
                received += len(content)
                kept = prepared(content, row.rotation, settings.size)
            except Gone as error:
                return Outcome(row, "gone", received=received, reason=str(error))
            except TooLarge as error:
                return Outcome(row, "no image", received=received, reason=str(error))
            except NotWhole as error:
                reason = f"{url}: {error}"
            else:
                if self._stop.is_set():
                    break
                _write(self._arriving / f"{row.id}.jpg", kept)
                return Outcome(row, "got", len(kept), received)
        return Outcome(row, "no image", received=received, reason=reason)


@contextmanager
def working(settings: FetchSettings, arriving: Path) -> Iterator[Workers]:
    workers = Workers(settings, arriving)
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
