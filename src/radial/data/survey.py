"""The first pass over a dataset: sizes, statistics, unreadable files; pixels if they fit.

N images, B of a block, S stored side.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from radial.data.decoding import Files, Pixels, decode
from radial.data.errors import DataError
from radial.data.images import Images, resized
from radial.data.splits import Split
from radial.data.statistics import (
    Survey,
    count_values,
    fingerprint,
    histogram,
    mean_std,
    recall,
    remember,
)

LARGEST_NATIVE = 96  # folders of square images up to this size are trained at it, others
USUAL = 224  # at this

_BLOCK = 64  # images a thread decodes at a time


class Found(NamedTuple):
    store: Tensor | Files
    survey: Survey


def hold_pixels(pixels: Tensor, split: Split, image_size: int | None, *, limit: float) -> Found:
    """Images in memory already, (N, 3, s, s); resized now if that fits too, else when asked for."""
    native = pixels.shape[-1]
    image_size = image_size or native
    stored = stored_size(image_size, native)
    if stored != native and len(pixels) * 3 * stored**2 <= limit:
        pixels = torch.cat([resized(chunk, stored) for chunk in torch.split(pixels, 512)])
    mean, std = mean_std(count_values(Images(pixels, split.train, stored_size=stored)))
    survey = Survey(image_size=image_size, stored_size=stored, mean=mean, std=std, bad=[])
    return Found(pixels, survey)


def read_files(
    files: Files,
    split: Split,
    image_size: int | None,
    *,
    root: Path,
    max_bad: int,
    limit: float,
    threads: int,
) -> Found:
    """Read files once and keep their pixels if they take at most ``limit`` bytes.

    What was found is remembered below ``root`` until any of the files changes. If pixels are
    not kept, that spares the pass over all files the next time.
    """
    key = fingerprint(files, train=split.train, image_size=image_size)
    memory = root / "statistics" / f"{key[:40]}.json"
    known = recall(memory)
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
    keep = len(files) * 3 * stored**2 <= limit
    if known and not keep and _still_bad(files, known.bad, stored, max_bad):
        _warn(files, known.bad)
        return Found(files, known)
    pixels, counts, bad = _read_all(
        files, stored, train=split.train, keep=keep, max_bad=max_bad, threads=threads
    )
    split.without(list(bad))  # raises if that leaves a split empty
    mean, std = mean_std(counts)
    survey = Survey(image_size=size, stored_size=stored, mean=mean, std=std, bad=list(bad))
    if survey != known:
        remember(memory, survey)
    _warn(files, survey.bad)
    return Found(files if pixels is None else pixels, survey)


def stored_size(image_size: int, native: int | None) -> int:
    """The side images are stored at: larger than trained at, unless they are small or fit.

    >>> stored_size(224, None), stored_size(96, 96), stored_size(32, None)
    (256, 96, 32)
    """
    return image_size if image_size in (native, *range(64)) else round(image_size * 8 / 7)


def native_side(files: Files, accept: range) -> int | None:
    """The side all readable images share, if they are square and it is in ``accept``."""
    shared = None
    for index in range(len(files)):
        try:
            with Image.open(files.path(index)) as image:
                width, height = image.size
        except Exception:  # named and counted when the images are read
            continue
        if width != height or width not in accept or shared not in (None, width):
            return None
        shared = width
    return shared


def _read_all(
    files: Files, size: int, *, train: Tensor, keep: bool, max_bad: int, threads: int
) -> tuple[Tensor | None, NDArray[np.int64], dict[int, str]]:
    """Pixels (N, 3, S, S) if kept, counts of training values (3, 256), reasons of bad rows.

    NumPy throughout: torch's threads would spin between blocks, on the cores that decode.
    """
    in_train = np.isin(np.arange(len(files)), train.numpy())
    pixels = np.zeros((len(files) if keep else 0, 3, size, size), dtype=np.uint8)
    counts = np.zeros((3, 256), dtype=np.int64)
    bad: dict[int, str] = {}
    for block in _blocks(files, size, threads):
        bad |= block.bad
        _check_bad(files, bad, max_bad)
        if keep:
            pixels[block.rows] = block.pixels
        counts += histogram(block.pixels[in_train[block.rows]])
    return torch.from_numpy(pixels) if keep else None, counts, bad


class _Block(NamedTuple):
    rows: NDArray[np.int64]  # (B,) of readable images
    pixels: Pixels  # (B, 3, S, S)
    bad: dict[int, str]


def _blocks(files: Files, size: int, threads: int) -> Iterator[_Block]:
    def read(start: int) -> _Block:
        good, bad = {}, {}
        for row in range(start, min(start + _BLOCK, len(files))):
            try:
                good[row] = decode(files.path(row), size)
            except DataError as error:
                bad[row] = str(error)
        pixels = np.stack(list(good.values())) if good else np.empty((0, 3, size, size), np.uint8)
        return _Block(np.array(list(good), dtype=np.int64), pixels, bad)

    stride = 4 * threads * _BLOCK  # what is decoded ahead has to fit into memory
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(files), stride):
            yield from pool.map(read, range(first, min(first + stride, len(files)), _BLOCK))


def _still_bad(files: Files, rows: list[int], size: int, max_bad: int) -> bool:
    """Whether all of them are still unreadable: a disk may have been away only for a while."""
    bad = {}
    for row in rows:
        try:
            decode(files.path(row), size)
        except DataError as error:
            bad[row] = str(error)
    _check_bad(files, bad, max_bad)
    return len(bad) == len(rows)


def _check_bad(files: Files, bad: dict[int, str], max_bad: int) -> None:
    if len(bad) > max_bad:
        first = ", ".join(f"{files.name(row)!r} ({why})" for row, why in [*bad.items()][:3])
        raise DataError(
            f"more images in {files.root} cannot be read than the {max_bad} that may be "
            f"skipped (max_bad; --max-bad-images): "
            f"{first}{', …' if len(bad) > 3 else ''}"
        )


def _warn(files: Files, bad: list[int]) -> None:
    if bad:
        names = ", ".join(repr(files.name(row)) for row in bad[:3])
        warnings.warn(
            f"{len(bad)} of {len(files)} images in {files.root} cannot be read and are left "
            f"out: {names}{', …' if len(bad) > 3 else ''}",
            stacklevel=4,
        )
