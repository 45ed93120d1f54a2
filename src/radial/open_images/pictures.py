"""From what a server sent to the file that is kept: a whole image, upright, of the size asked."""

from __future__ import annotations

import io
from contextlib import suppress

from PIL import Image, ImageOps

from radial.checks import DataError
from radial.pictures import open_picture, rgb

QUALITY = 95  # of JPEGs that are written anew

_PNG_END = b"IEND\xaeB`\x82"
_TURNS = {
    90: Image.Transpose.ROTATE_90,  # counter-clockwise, as in the image lists
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_270,
}


class NotWhole(DataError):
    """Bytes that are not an image, or only the beginning of one."""


def prepared(content: bytes, rotation: int = 0, size: int | None = None) -> bytes:
    """The file to keep: every pixel of it has been decoded.

    An image that needs neither turning nor shrinking keeps its bytes. Otherwise its pixels are
    turned by ``rotation`` degrees counter-clockwise (0: as its EXIF tag says), shrunk until the
    short side has ``size`` pixels (Lanczos; never enlarged), and encoded as JPEG of quality 95
    without subsampling or metadata: the same bytes from the same version of Pillow.

    A file that lacks its end is noticed. Damage within a JPEG that still decodes is not: its
    format has no check sum (see `radial.open_images.transfer.get` for those of servers).
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
        raise NotWhole(_reason(content, error)) from None


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


def _reason(content: bytes, error: Exception) -> str:
    start = content[:200].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page instead of an image"
    return "an image cut short" if "truncated" in str(error) else "not an image"
