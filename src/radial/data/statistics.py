"""Mean and std over all training pixels, and what a first pass over files found, remembered."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radial.data.decoding import Files
from radial.data.images import Images
from radial.files import write_atomically

_FORMAT = 1
_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is known of image files after all of them have been read once."""

    image_size: int
    stored_size: int
    mean: list[float]  # of three channels
    std: list[float]
    bad: list[int]  # rows of unreadable images


def mean_std(counts: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Of pixels in [0, 1], from how often each of 256 values occurs: (3, 256).

    Summed in whole numbers, so exact whatever the number of pixels. This is the std over all
    pixels; the mean of per-image stds, which some tables print, is smaller.
    """
    means, stds = [], []
    for channel in counts.tolist():
        n = sum(channel)
        first = sum(value * count for value, count in enumerate(channel))
        second = sum(value * value * count for value, count in enumerate(channel))
        means.append(first / n / 255)
        stds.append(max((n * second - first * first) ** 0.5 / n, 1.0) / 255)
    return means, stds


def histogram(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often each value occurs in each channel: (B, 3, S, S) -> (3, 256)."""
    channels = pixels.swapaxes(0, 1).reshape(3, -1)
    return np.stack([np.bincount(channel, minlength=256) for channel in channels])


def count_values(images: Images) -> NDArray[np.int64]:
    """(3, 256)"""
    counts = np.zeros((3, 256), dtype=np.int64)
    for start in range(0, len(images), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(images)))
        counts += histogram(images.__getitems__(rows).numpy())
    return counts


def fingerprint(files: Files, *, train: Tensor, image_size: int | None) -> str:
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


def recall(path: Path) -> Survey | None:
    """None if nothing is remembered, or if what is there is not whole."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["sha256"] != _checksum(saved["survey"]):
            return None
        return Survey(**saved["survey"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def remember(path: Path, survey: Survey) -> None:
    saved = {"survey": asdict(survey), "sha256": _checksum(asdict(survey))}
    try:
        write_atomically(path, json.dumps(saved, indent=1))
    except OSError as error:
        warnings.warn(f"cannot remember the statistics in {path}: {error}", stacklevel=2)


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
