"""Decoded images on disk, so that a JPEG is decoded once and not once an epoch.

One file for each folder and size: a table of headers, then as many places for images, read through
a memory map. No locks: an image lies at one of the places that its key leads to, and its header
says whose it is and what the pixels sum up to. Whatever was torn, by kill -9 or by two processes
at one place, does not sum up, and is decoded again.

S stored side; pixels are uint8 (3, S, S).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
import zlib
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radial.checks import DataError

GIB = 2**30
LIMIT = 16.0  # GiB, unless RADIAL_PIXELS says otherwise

_FORMAT = 1  # to be raised when a file would be decoded otherwise
_SUFFIX = ".pixels"
_PROBES = 32  # places that a key leads to
_HEADER = np.dtype([("key", "<u8", 2), ("sum", "<u4"), ("", "<u4")])  # key 0: nobody's


class PixelCache:
    """The images of one folder at one size, bounded; nothing in it is needed.

    Args:
        folder: of all such files; beyond ``limit`` the least recently opened go.
        of: the folder of the images.
        count: how many images there are.
        size: S.
        limit: bytes of all such files together; none is begun that would fill half of the disk's
            free room.

    Example:
        >>> import tempfile
        >>> cache = PixelCache(Path(tempfile.mkdtemp()), Path("photos"), count=1, size=8, limit=1e6)
        >>> cache.put("a.jpg", np.ones((3, 8, 8), np.uint8))
        >>> cache.get("a.jpg").sum(), cache.get("b.jpg")
        (np.uint64(192), None)
    """

    def __init__(self, folder: Path, of: Path, *, count: int, size: int, limit: float) -> None:
        self.folder, self.of, self.count, self.size, self.limit = folder, of, count, size, limit
        self._refused = not hasattr(os, "pwrite")

    def __reduce__(self) -> Any:  # a memory map would be pickled with all that is in it
        return _again, (self.folder, self.of, self.count, self.size, self.limit)

    def get(self, name: str) -> NDArray[np.uint8] | None:
        """Pixels as they were put there, or None; ``name`` stands for a file and its state."""
        if self._table is None:
            return None
        key, places = self._places(name)
        for place in places[(self._table.headers["key"][places] == key).all(1)]:
            pixels = np.array(self._table.pixels[place])
            if zlib.crc32(pixels.data) == self._table.headers["sum"][place]:
                return pixels
        return None

    def put(self, name: str, pixels: NDArray[np.uint8]) -> None:
        """Keep pixels, if there is a place; images that are there stay, so none is in vain."""
        if self._table is None or self._refused:
            return
        key, places = self._places(name)
        found = self._table.headers["key"][places]
        free = places[(found == key).all(1) | (found == 0).all(1)]
        if not len(free):
            return
        place, capacity = int(free[0]), len(self._table.headers)
        header = np.zeros((), _HEADER)
        header["key"], header["sum"] = key, zlib.crc32(pixels.tobytes())
        start = capacity * _HEADER.itemsize + place * pixels.nbytes
        try:  # not through the map: there, a full disk would end the process
            if os.pwrite(self._table.file, pixels.tobytes(), start) == pixels.nbytes:
                os.pwrite(self._table.file, header.tobytes(), place * _HEADER.itemsize)
        except OSError as error:
            self._refused = True
            line = f"cannot keep more decoded images in {self.folder}: {error}"
            warnings.warn(line, stacklevel=2)

    def _places(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        assert self._table is not None
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).digest()
        key = np.frombuffer(digest[:16], "<u8") | 1
        first = int.from_bytes(digest[16:22], "little")
        return key, (first + np.arange(_PROBES)) % len(self._table.headers)

    @cached_property
    def _table(self) -> _Table | None:
        each = 3 * self.size**2 + _HEADER.itemsize
        try:
            wanted = max(_PROBES, 1 << (5 * self.count // 4).bit_length())
            capacity = min(wanted, int(self.limit // each))
            if capacity < _PROBES:
                return None
            path = self._path(capacity)
            if not path.is_file():
                self.folder.mkdir(parents=True, exist_ok=True)
                if min(self.count, capacity) * each > shutil.disk_usage(self.folder).free / 2:
                    return None
                self._make(path, capacity * each)
            os.utime(path)  # used last, now
            headers = np.memmap(path, _HEADER, "r", shape=(capacity,))
            start, shape = headers.nbytes, (capacity, 3, self.size, self.size)
            pixels = np.memmap(path, np.uint8, "r", offset=start, shape=shape)
            return _Table(os.open(path, os.O_RDWR), headers, pixels)
        except (OSError, ValueError):  # not to be written: the survey, kept beside, says so
            return None

    def _path(self, capacity: int) -> Path:
        what = f"{_FORMAT} {os.path.realpath(self.of)} {self.size} {capacity}"
        digest = hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()
        return self.folder / f"{digest[:32]}{_SUFFIX}"

    def _make(self, path: Path, size: int) -> None:
        """A file of that size, whole or not there; before it, room for it."""
        known = []
        for other in self.folder.glob(f"*{_SUFFIX}*"):
            with suppress(OSError):  # another process makes room, too
                stat = other.stat()
                known.append((stat.st_mtime_ns, stat.st_size, other))
        total = size + sum(known_size for _, known_size, _ in known)
        for _, known_size, other in sorted(known):
            if total <= self.limit:
                break
            with suppress(OSError):  # who has it open keeps it until the end
                other.unlink()
                total -= known_size
        with NamedTemporaryFile(dir=self.folder, prefix=path.name, delete=False) as file:
            file.truncate(size)  # holes: the disk holds what is written
        with suppress(FileExistsError):  # another process was quicker
            os.link(file.name, path)
        os.unlink(file.name)


class _Table(NamedTuple):
    file: int  # descriptor
    headers: NDArray[Any]  # (places,)
    pixels: NDArray[np.uint8]  # (places, 3, S, S)


def _again(folder: Path, of: Path, count: int, size: int, limit: float) -> PixelCache:
    return PixelCache(folder, of, count=count, size=size, limit=limit)


def disk_limit() -> float:
    """Bytes of decoded images on disk: RADIAL_PIXELS in GiB, 16 by default, 0 for none.

    Raises:
        DataError: a RADIAL_PIXELS that is no such number.
    """
    told = os.environ.get("RADIAL_PIXELS") or str(LIMIT)
    with suppress(ValueError):
        if 0 <= (gib := float(told)) < float("inf"):
            return GIB * gib
    raise DataError(f"RADIAL_PIXELS must be a number of GiB, not {told!r}")
