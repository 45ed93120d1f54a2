"""Decoded images on disk: the same pixels, once decoded, whatever is killed or written beside."""

from __future__ import annotations

import errno
import hashlib
import inspect
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from radial.data import DataError, images, load_data
from radial.data.decoded import PixelCache, disk_limit

SIZE = 8


def cache_in(folder: Path, *, count: int = 64, limit: float = 1e6, of: str = "of") -> PixelCache:
    return PixelCache(folder, Path(of), count=count, size=SIZE, limit=limit)


def pixels_of(name: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).integers(0, 256, (3, SIZE, SIZE), np.uint8)


WRITER = f"""
import hashlib, sys
from pathlib import Path
import numpy as np
from radial.data.decoded import PixelCache
SIZE = {SIZE}
{inspect.getsource(cache_in)}
{inspect.getsource(pixels_of)}
cache, number = cache_in(Path(sys.argv[1])), int(sys.argv[2])
while True:
    number = (number * 5 + 1) % 64
    cache.put(str(number), pixels_of(str(number)))
    print("put", flush=True)
"""


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were decoded."""
    seen: list[str] = []
    real = images.decode

    def spy(path: str, size: int) -> np.ndarray:
        seen.append(path)
        return real(path, size)

    monkeypatch.setattr(images, "decode", spy)
    return seen


@pytest.mark.parametrize("memory_limit", [0.0, 2.0])
def test_a_file_is_decoded_once(make_folder, decoded: list[str], memory_limit: float) -> None:
    path = make_folder({"a": 20, "b": 20}, size=(40, 30), suffix="jpg")
    options = {"image_size": 16, "memory_limit": memory_limit}
    first = load_data(f"folder:{path}", **options)
    assert len(decoded) == 40
    second = load_data(f"folder:{path}", **options)
    for data in (first, second):
        for i in range(len(data.train)):
            name = str(path / first.train.name(i)) if not memory_limit else None
            if name:
                assert np.array_equal(
                    data.train[i], images.square(images.read_picture(name, 16), 16)
                )
    assert len(decoded) == 40
    changed = path / "a" / "03.jpg"
    changed.write_bytes((path / "a" / "04.jpg").read_bytes())
    load_data(f"folder:{path}", **options)
    assert decoded[40:] == [str(changed)]  # by file
    load_data(f"folder:{path}", **{**options, "image_size": 20})
    assert len(decoded) == 81  # by size


def test_workers_share_it(make_folder, decoded: list[str]) -> None:
    data = load_data(f"folder:{make_folder({'a': 20})}", memory_limit=0)
    again = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 20_000  # without the pixels
    assert np.array_equal(again.train[0], data.train[0])
    assert len(decoded) == 20


def test_what_was_torn_does_not_count(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    for name in "abc":
        cache.put(name, pixels_of(name))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    at = content.index(pixels_of("b").tobytes())
    content[at + 5] ^= 1
    file.write_bytes(content)
    again = cache_in(tmp_path)
    assert again.get("b") is None
    assert np.array_equal(again.get("a"), pixels_of("a"))
    again.put("b", pixels_of("b"))
    assert np.array_equal(again.get("b"), pixels_of("b"))


def test_killed_and_contended_writers_leave_only_whole_images(tmp_path: Path) -> None:
    """Three processes write the same 64 images to one file and are killed, again and again."""
    reader, found = cache_in(tmp_path), 0
    for _ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path), str(number)],
                stdout=subprocess.PIPE,
            )
            for number in range(3)
        ]
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            for _ in range(20 * (number + 1)):
                writer.stdout.readline()
            os.kill(writer.pid, signal.SIGKILL)
            writer.communicate()
        for name in map(str, range(64)):
            pixels = reader.get(name)
            found += pixels is not None
            assert pixels is None or np.array_equal(pixels, pixels_of(name))
    assert found > 64
    assert [path.suffix for path in tmp_path.iterdir()] == [".pixels"]


def test_it_is_bounded_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    each = 3 * SIZE**2 + 24
    limit = 300 * each  # two files of 128 places
    for number, of in enumerate(("old", "middle", "new")):
        cache = cache_in(tmp_path, limit=limit, of=of)
        cache.put("a", pixels_of("a"))
        for path in tmp_path.iterdir():
            os.utime(path, (number, number)) if path.stat().st_mtime > 1e6 else None
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
    assert cache_in(tmp_path, limit=limit, of="middle").get("a") is not None
    assert cache_in(tmp_path, limit=limit, of="old").get("a") is None
    few = cache_in(tmp_path / "few", count=10_000, limit=40 * each)
    for number in range(100):
        few.put(str(number), pixels_of(str(number)))
    assert sum(few.get(str(number)) is not None for number in range(100)) == 40
    none = cache_in(tmp_path / "none", limit=0)
    none.put("a", pixels_of("a"))
    assert none.get("a") is None
    assert not (tmp_path / "none").exists()


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = cache_in(tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(UserWarning, match="cannot keep more decoded images.*No space left") as told:
        cache.put("a", pixels_of("a"))
    assert len(told) == 1
    cache.put("b", pixels_of("b"))  # a warning would be an error here
    assert cache.get("a") is None


def test_how_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_limit() == 16 * 2**30
    monkeypatch.setenv("RADIAL_PIXELS", "0.5")
    assert disk_limit() == 2**29
    for wrong in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv("RADIAL_PIXELS", wrong)
        with pytest.raises(DataError, match=f"must be a number of GiB, not '{wrong}'"):
            disk_limit()
