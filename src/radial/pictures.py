"""The one place that opens image files: only formats that are meant, whole, upright, in RGB.

Left to itself, Pillow looks at what is in a file, not at its name, and hands PostScript to
Ghostscript: an image folder from anywhere could run another program.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from radial.checks import DataError, one_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")

_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")


@contextmanager
def open_picture(
    source: str | Path | IO[bytes], formats: tuple[str, ...] = FORMATS
) -> Iterator[Image.Image]:
    """An image, its pixels not yet decoded; decompression bombs are refused.

    Args:
        source: A path, or a file opened for reading bytes.
        formats: Those that are tried, by what is in the file.

    Raises:
        DataError: Where an image has more pixels than Pillow deems safe. Else whatever Pillow's
            readers raise, which is nearly anything on broken files: `unreadable` says it in words.
    """
    with Image.open(source, formats=formats) as image:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise DataError(f"{image.width} × {image.height} pixels: a decompression bomb?")
        yield image


def read_picture(path: str, size: int | None = None) -> Image.Image:
    """The whole image in RGB, turned as its EXIF data say; a DataError where that cannot be.

    Of a JPEG that is to be made as small as ``size``, libjpeg decodes an eighth, a quarter or half
    of the side where that leaves twice the size: as good, in a fraction of the time.
    """
    try:
        with _regular(path) as file, open_picture(file) as image:
            if size is not None:
                image.draft(None, (2 * size, 2 * size))
            ImageOps.exif_transpose(image, in_place=True)
            return rgb(image)
    except Exception as error:
        raise DataError(unreadable(error)) from None


def _regular(path: str) -> IO[bytes]:
    """Opened without waiting: a pipe in a folder of images would have no end, or no beginning."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("not a regular file")
    return open(descriptor, "rb")


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


def unreadable(error: Exception) -> str:
    """Why a file is no image, on one line."""
    if isinstance(error, UnidentifiedImageError):
        return f"not an image ({', '.join(FORMATS)})"
    return one_line(getattr(error, "strerror", None) or error)
