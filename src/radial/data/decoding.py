"""From image files to square uint8 RGB pixels.

N images, S stored side; pixels are uint8 (3, S, S).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from radial.data.errors import DataError

Pixels = NDArray[np.uint8]

_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")


class Files:
    """Image files below one folder, named by their path relative to it.

    The names are one byte array: a list of a million strings would be copied, page by page,
    into every DataLoader worker that so much as reads it.
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root = root
        self._names = np.array([os.fsencode(name) for name in names])

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self._names[index]))

    def path(self, index: int) -> str:
        return os.path.join(self.root, self.name(index))

    def decode(self, index: int, size: int) -> Pixels:
        try:
            return decode(self.path(index), size)
        except DataError as error:
            raise DataError(f"cannot read image {self.path(index)!r}: {error}") from None


def decode(path: str, size: int) -> Pixels:
    """The central square of an image, upright, in RGB, resized to ``size``: (3, size, size).

    Resizing is bilinear with antialiasing, and leaves an image of that size untouched. Alpha
    is dropped, 16-bit greys are scaled to 8 bits, of animations the first frame is taken.
    Whatever Pillow cannot or will not read (decompression bombs) is a DataError.
    """
    image = upright(path)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    if (width, height) != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def upright(path: str) -> Image.Image:
    """The whole image in RGB, turned as its EXIF data say."""
    try:
        with Image.open(path) as image:
            _refuse_bomb(image)
            ImageOps.exif_transpose(image, in_place=True)
            return rgb(image)
    except Exception as error:  # Pillow's readers raise nearly anything on broken files
        raise DataError(_reason(error)) from None


def _refuse_bomb(image: Image.Image) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise DataError(f"{image.width} × {image.height} pixels: a decompression bomb?")


def rgb(image: Image.Image) -> Image.Image:
    """Without alpha, 16-bit greys scaled to 8 bits."""
    if image.mode in _SIXTEEN_BIT:
        grey: Any = np.asarray(image).clip(0, 65535)
        image = Image.fromarray((grey / 257).round().astype(np.uint8))
    elif image.mode == "F":
        raise DataError("floating-point pixels have no known range")
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).splitlines()[0]
