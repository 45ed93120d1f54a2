"""The first pass over a dataset: sizes, statistics, unreadable files; pixels if they fit.

N images, B of a block, S stored side.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radial.checks import DataError
from radial.data.decoded import PixelCache
from radial.data.images import Files, Images, Pixels, Readable, Split, resized
from radial.data.statistics import Counts, in_blocks, mean_std
from radial.files import write_atomically

LARGEST_NATIVE = 96  # folders of square images up to this size are trained at it, others
USUAL = 224  # at this

_FORMAT = 2  # of what is remembered; decoding changed
_BLOCK = 64  # images a thread decodes at a time
_CHUNK = 512  # images of a tensor counted at a time


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is known of image files after all of them have been read once."""

    image_size: int
    stored_size: int
    mean: list[float]  # of three channels
    std: list[float]
    bad: list[int]  # rows of unreadable images


class Found(NamedTuple):
    store: Tensor | Readable
    survey: Survey


def hold_pixels(pixels: Tensor, split: Split, image_size: int | None, *, limit: float) -> Found:
    """Images in memory already, (N, 3, s, s); resized now if that fits too, else when asked for."""
    native = pixels.shape[-1]
    image_size = image_size or native
    stored = stored_size(image_size, native)
    if stored != native and len(pixels) * 3 * stored**2 <= limit:
        pixels = torch.cat([resized(chunk, stored) for chunk in torch.split(pixels, 512)])
    mean, std = _normalisation(_count_values(Images(pixels, split.train, stored_size=stored)))
    survey = Survey(image_size=image_size, stored_size=stored, mean=mean, std=std, bad=[])
    return Found(pixels, survey)


def read_files(
    files: Readable,
    split: Split,
    image_size: int | None,
    *,
    root: Path,
    max_bad: int,
    limit: float,
    on_disk: float,
    threads: int,
) -> Found:
    """Read files once and keep their pixels if they take at most ``limit`` bytes.

    What was found of files is remembered below ``root`` until any of them changes. If pixels are
    not kept, that spares the pass over all files the next time. Decoded images are remembered
    there, too, in ``on_disk`` bytes at most.
    """
    memory = None
    if isinstance(files, Files):
        key = _survey_key(files, train=split.train, image_size=image_size)
        memory = root / "statistics" / f"{key[:40]}.json"
    known = None if memory is None else _recall(memory)
    if known:
        size, stored = known.image_size, known.stored_size
    else:
        accept = (
            range(1, LARGEST_NATIVE + 1)
            if image_size is None
            else range(image_size, image_size + 1)
        )
        native = native_side(files, accept)
        size = image_size or native or USUAL
        stored = stored_size(size, native)
    if isinstance(files, Files):
        files.cache = PixelCache(
            root / "pixels", files.root, count=len(files), size=stored, limit=on_disk
        )
    keep = len(files) * 3 * stored**2 <= limit
    if known and not keep and _still_bad(files, known.bad, stored, max_bad):
        _warn(files, known.bad)
        return Found(files, known)
    pixels, counts, bad = _read_all(
        files, stored, train=split.train, keep=keep, max_bad=max_bad, threads=threads
    )
    split.without(list(bad))  # raises if that leaves a split empty
    mean, std = _normalisation(counts)
    survey = Survey(image_size=size, stored_size=stored, mean=mean, std=std, bad=list(bad))
    if memory is not None and survey != known:
        _remember(memory, survey)
    _warn(files, survey.bad)
    return Found(files if pixels is None else pixels, survey)


def stored_size(image_size: int, native: int | None) -> int:
    """The side images are stored at: larger than trained at, unless they are small or fit.

    >>> stored_size(224, None), stored_size(96, 96), stored_size(32, None)
    (256, 96, 32)
    """
    return image_size if image_size in (native, *range(64)) else round(image_size * 8 / 7)


def native_side(files: Readable, accept: range) -> int | None:
    """The side all readable images share, if they are square and it is in ``accept``."""
    shared = None
    for index in range(len(files)):
        try:
            width, height = files.shape(index)
        except Exception:  # named and counted when the images are read
            continue
        if width != height or width not in accept or shared not in (None, width):
            return None
        shared = width
    return shared


def _read_all(
    files: Readable, size: int, *, train: Tensor, keep: bool, max_bad: int, threads: int
) -> tuple[Tensor | None, Counts, dict[int, str]]:
    """Pixels (N, 3, S, S) if kept, counts of training values (3, 256), reasons of bad rows.

    NumPy throughout: torch's threads would spin between blocks, on the cores that decode.
    """
    in_train = np.isin(np.arange(len(files)), train.numpy())
    pixels = np.zeros((len(files) if keep else 0, 3, size, size), dtype=np.uint8)
    counts = np.zeros((3, 256), dtype=np.int64)
    bad: dict[int, str] = {}

    def read(rows: range) -> _Block:
        good, bad = {}, {}
        for row in rows:
            try:
                good[row] = files.read(row, size)
            except DataError as error:
                bad[row] = str(error)
        pixels = np.stack(list(good.values())) if good else np.empty((0, 3, size, size), np.uint8)
        return _Block(np.array(list(good), dtype=np.int64), pixels, bad)

    for _, block in in_blocks(len(files), _BLOCK, threads, read):
        bad |= block.bad
        _check_bad(files, bad, max_bad)
        if keep:
            pixels[block.rows] = block.pixels
        counts += _histogram(block.pixels[in_train[block.rows]])
    return torch.from_numpy(pixels) if keep else None, counts, bad


class _Block(NamedTuple):
    rows: NDArray[np.int64]  # (B,) of readable images
    pixels: Pixels  # (B, 3, S, S)
    bad: dict[int, str]


def _still_bad(files: Readable, rows: list[int], size: int, max_bad: int) -> bool:
    """Whether all of them are still unreadable: a disk may have been away only for a while."""
    bad = {}
    for row in rows:
        try:
            files.read(row, size)
        except DataError as error:
            bad[row] = str(error)
    _check_bad(files, bad, max_bad)
    return len(bad) == len(rows)


def _check_bad(files: Readable, bad: dict[int, str], max_bad: int) -> None:
    if len(bad) > max_bad:
        first = ", ".join(f"{files.name(row)!r} ({why})" for row, why in [*bad.items()][:3])
        raise DataError(
            f"more images in {files.root} cannot be read than the {max_bad} that may be "
            f"skipped (max_bad; --max-bad-images): "
            f"{first}{', …' if len(bad) > 3 else ''}"
        )


def _warn(files: Readable, bad: list[int]) -> None:
    if bad:
        names = ", ".join(repr(files.name(row)) for row in bad[:3])
        warnings.warn(
            f"{len(bad)} of {len(files)} images in {files.root} cannot be read and are left "
            f"out: {names}{', …' if len(bad) > 3 else ''}",
            stacklevel=4,
        )


def _normalisation(counts: Counts) -> tuple[list[float], list[float]]:
    """Mean and std of training pixels; a std of at least 1/255, so that it can be divided by."""
    mean, std = mean_std(counts)
    return list(mean), [max(value, 1 / 255) for value in std]


def _histogram(pixels: NDArray[np.uint8]) -> Counts:
    """How often each value occurs in each channel: (B, 3, S, S) -> (3, 256)."""
    channels = pixels.swapaxes(0, 1).reshape(3, -1)
    return np.stack([np.bincount(channel, minlength=256) for channel in channels])


def _count_values(images: Images) -> Counts:
    """How often each value is in each channel, (3, 256)."""
    counts = np.zeros((3, 256), dtype=np.int64)
    for start in range(0, len(images), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(images)))
        counts += _histogram(images.__getitems__(rows).numpy())
    return counts


def _survey_key(files: Files, *, train: Tensor, image_size: int | None) -> str:
    """Changes with any file's name, size or time, the size asked for, and the training split."""
    digest = hashlib.sha256(f"{_FORMAT} {image_size} {len(files)}\n".encode())
    for index in range(len(files)):
        name = files.name(index)
        try:
            stat = os.stat(files.path(index))
            known = f"{stat.st_size} {stat.st_mtime_ns}"
        except OSError:
            known = "gone"
        digest.update(f"{name}\0{known}\n".encode(errors="surrogateescape"))
    digest.update(train.numpy().tobytes())
    return digest.hexdigest()


def _recall(path: Path) -> Survey | None:
    """None if nothing is remembered, or if what is there is not whole."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["sha256"] != _checksum(saved["survey"]):
            return None
        return Survey(**saved["survey"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _remember(path: Path, survey: Survey) -> None:
    saved = {"survey": asdict(survey), "sha256": _checksum(asdict(survey))}
    try:
        write_atomically(path, json.dumps(saved, indent=1))
    except OSError as error:
        warnings.warn(f"cannot remember the statistics in {path}: {error}", stacklevel=2)


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
