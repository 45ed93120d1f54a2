"""Threads that fetch images: each image whole, upright, of the size asked, or not at all."""

from __future__ import annotations

import errno
import io
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image, ImageOps

from radial.checks import DataError, check_size
from radial.open_images.http import Client, Gone, TooLarge, Unreachable, Waiting, check_address
from radial.open_images.manifest import Row
from radial.pictures import open_picture, rgb

BASE = "https://open-images-dataset.s3.amazonaws.com"
QUALITY = 95  # of JPEGs that are written anew

_LIMIT = 1 << 26  # bytes of an image
_JOIN = 1.0  # seconds for threads to end
_PNG_END = b"IEND\xaeB`\x82"
_TURNS = {
    90: Image.Transpose.ROTATE_90,  # counter-clockwise, as in the image lists
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_270,
}

Kind = Literal["got", "gone", "no image", "unreachable", "disk", "bug"]


@dataclass(frozen=True, kw_only=True)
class FetchSettings(Waiting):
    """How to fetch. Only ``size`` changes the files; the rest is how they come.

    Attributes:
        base: Address of the bucket: an image is at ``{base}/{subset}/{id}.jpg``.
        size: Shrink images whose short side is longer to this many pixels; None keeps them.
        connections: At the same time.
    """

    base: str = BASE
    size: int | None = None
    connections: int = 16

    def __post_init__(self) -> None:
        check_address(self.base)
        super().__post_init__()
        if self.size is not None:
            try:
                check_size("size", self.size)
            except ValueError as error:
                raise DataError(str(error)) from None


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
        self._client = Client(settings, stop=self._stop)
        self._threads: list[threading.Thread] = []
        self.waiting = 0  # rows asked for and not taken

    def ask(self, row: Row) -> None:
        if len(self._threads) < self._settings.connections:  # no more threads than there is work
            thread = threading.Thread(target=self._work, name="fetch", daemon=True)
            thread.start()
            self._threads.append(thread)
        self.waiting += 1
        self._tasks.put(row)

    def take(self, timeout: float = 0.5, gather: float = 0.02) -> list[Outcome]:
        """What there is within ``gather`` seconds of the first: one sync of the journal for all."""
        outcomes: list[Outcome] = []
        until = time.monotonic() + timeout
        with suppress(queue.Empty):
            while len(outcomes) < self.waiting:
                left = until - time.monotonic()
                outcomes.append(self._outcomes.get(timeout=max(0.0, left)))
                if len(outcomes) == 1:
                    until = time.monotonic() + gather
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
        until = time.monotonic() + _JOIN
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._client.close()

    def _work(self) -> None:
        while (row := self._tasks.get()) is not None and not self._stop.is_set():
            begun = time.monotonic()
            try:
                outcome = self._fetch(row)
            except Unreachable as error:
                outcome = Outcome(row, "unreachable", reason=str(error))
            except OSError as error:
                outcome = Outcome(row, "disk", reason=disk_reason(error, self._arriving))
            except BaseException as error:  # not to be lost in a thread
                outcome = Outcome(row, "bug", error=error)
            self._outcomes.put(outcome._replace(begun=begun, ended=time.monotonic()))

    def _fetch(self, row: Row) -> Outcome:
        settings, received, reason = self._settings, 0, ""
        url = f"{settings.base.rstrip('/')}/{row.subset}/{row.id}.jpg"
        for attempt in range(2):  # an answer that is no image may be a bad moment of the server
            if attempt:
                self._stop.wait(settings.backoff)
            try:
                content = self._client.get(url, limit=_LIMIT)
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


class NotWhole(DataError):
    """Bytes that are not an image, or only the beginning of one."""


def prepared(content: bytes, rotation: int = 0, size: int | None = None) -> bytes:
    """The file to keep: every pixel of it has been decoded.

    An image that needs neither turning nor shrinking keeps its bytes. Otherwise its pixels are
    turned by ``rotation`` degrees counter-clockwise (0: as its EXIF tag says), shrunk until the
    short side has ``size`` pixels (Lanczos; never enlarged), and encoded as JPEG of quality 95
    without subsampling or metadata: the same bytes from the same version of Pillow.

    A file that lacks its end is noticed. Damage within a JPEG that still decodes is not: its
    format has no check sum (see `http.Client.get` for those of servers).
    """
    if not content:
        raise NotWhole("an empty file")
    try:
        with open_picture(io.BytesIO(content), ("JPEG", "PNG")) as image:
            image.load()
            if image.format == "PNG":  # its pixels may be whole, its end not
                if _PNG_END not in content:
                    raise NotWhole("an image cut short")
                with open_picture(io.BytesIO(content), ("PNG",)) as again:
                    again.verify()
            large = size is not None and min(image.size) > size
            if not rotation and not large:
                return content
            pixels = image if image.mode in ("L", "RGB") else rgb(image)
            if rotation:
                pixels = pixels.transpose(_TURNS[rotation])
            else:
                with suppress(Exception):  # a tag that cannot be read says nothing
                    pixels = ImageOps.exif_transpose(pixels)
            if size is not None and large:
                pixels = pixels.resize(_shrunk(pixels.size, size), Image.Resampling.LANCZOS)
            return _encoded(pixels)
    except (NotWhole, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise nearly anything on broken files
        raise NotWhole(_why(content, error)) from None


def _shrunk(size: tuple[int, int], short: int) -> tuple[int, int]:
    """
    >>> _shrunk((1024, 683), 224)
    (336, 224)
    """
    side = min(size)
    width, height = (max(1, (2 * edge * short + side) // (2 * side)) for edge in size)
    return width, height


def _encoded(pixels: Image.Image) -> bytes:
    buffer = io.BytesIO()
    bare = Image.new(pixels.mode, pixels.size)  # no EXIF, profile or comment comes along
    bare.paste(pixels)
    bare.save(buffer, "JPEG", quality=QUALITY, subsampling=0, optimize=False, progressive=False)
    return buffer.getvalue()


def _why(content: bytes, error: Exception) -> str:
    start = content[:200].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page instead of an image"
    if isinstance(error, DataError):  # a decompression bomb
        return str(error)
    return "an image cut short" if "truncated" in str(error) else "not an image"
