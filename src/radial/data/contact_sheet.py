"""One picture of a folder: some images of each class, under its name.

S side of an image; a block is one class: its name, and a row of images.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from radial.checks import DataError, check_size
from radial.data.images import Files, decode, hash_order
from radial.data.sources import open_folder
from radial.data.statistics import printable
from radial.files import atomic

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}

_ASPECT = 1.5  # width by height that the sheet comes near to
_LARGEST = 150_000_000  # pixels
_LONGEST = 16_000  # pixels of a side: what any viewer, and WebP, take

_PAPER, _EMPTY = (250, 250, 248), (238, 238, 234)
_INK, _PALE = (34, 36, 40), (142, 144, 150)


@dataclass(frozen=True)
class Layout:
    """Where everything goes, in pixels; all lengths follow from the side of an image."""

    classes: int
    per_class: int
    side: int

    @property
    def text(self) -> int:
        return max(11, round(0.19 * self.side))

    @property
    def gap(self) -> int:  # between images
        return max(2, self.side // 24)

    @property
    def margin(self) -> int:  # around the sheet, and between columns
        return max(12, round(0.36 * self.side))

    @property
    def label(self) -> int:  # from the top of a name to the top of its images
        return round(1.5 * self.text)

    @property
    def block(self) -> tuple[int, int]:
        width = self.per_class * (self.side + self.gap) - self.gap
        return max(width, 8 * self.text), self.label + self.side  # room for a name

    @property
    def below(self) -> int:  # between a block and the next
        return round(0.22 * self.side)

    @cached_property
    def columns(self) -> int:
        """As many as bring the sheet nearest to its aspect, with none left empty."""

        def off(columns: int) -> float:
            width, height = self._size(columns)
            return abs(math.log(width / height / _ASPECT))

        best = min(range(1, self.classes + 1), key=off)
        return math.ceil(self.classes / math.ceil(self.classes / best))

    @property
    def size(self) -> tuple[int, int]:
        return self._size(self.columns)

    @property
    def title(self) -> int:
        return self._title(self.columns)

    def corner(self, number: int) -> tuple[int, int]:
        """Of the block of a class; classes run down the columns."""
        column, row = divmod(number, math.ceil(self.classes / self.columns))
        width, height = self.block
        left = self.margin + column * (width + self.margin)
        return left, self.margin + 2 * self.title + row * (height + self.below)

    def _width(self, columns: int) -> int:
        return columns * (self.block[0] + self.margin) + self.margin

    def _title(self, columns: int) -> int:  # larger on a larger sheet
        return round(max(1.4 * self.text, 0.012 * self._width(columns)))

    def _size(self, columns: int) -> tuple[int, int]:
        rows = math.ceil(self.classes / columns)
        blocks = rows * (self.block[1] + self.below) - self.below
        return self._width(columns), 2 * self._title(columns) + blocks + 2 * self.margin


def contact_sheet(
    root: Path | str, out: Path | str, *, per_class: int = 8, size: int = 96, seed: int = 0
) -> Path:
    """Write a picture with ``per_class`` images of each class in ``root``, each ``size`` px wide.

    Layouts of folders are those of ``folder:PATH``. Images are the first readable ones in the
    order of a hash of ``seed`` and their id, so that the sheet is the same wherever it is made;
    each is its central square. The suffix of ``out`` says the format: PNG, JPEG or WebP.
    """
    check_size("per_class", per_class)
    check_size("size", size, 16)
    root, out = Path(root).expanduser(), Path(out).expanduser()
    if out.suffix.lower() not in FORMATS:
        raise DataError(f"cannot write {str(out)!r}: known suffixes are {', '.join(FORMATS)}")
    collection = open_folder(root)
    files = collection.store
    assert isinstance(files, Files)
    _check_place(out, files.root, collection.classes)
    if collection.labels is None:
        groups = {"unlabelled": list(range(len(files)))}
    else:
        groups = {name: [] for name in collection.classes}
        for row, label in enumerate(collection.labels.tolist()):
            if label >= 0:
                groups[collection.classes[label]].append(row)
    layout = Layout(len(groups), min(per_class, max(map(len, groups.values()))), size)
    width, height = layout.size
    if max(width, height) > _LONGEST or width * height > _LARGEST:
        raise DataError(
            f"a sheet of {len(groups)} classes with {per_class} images of {size} px is "
            f"{width} × {height} pixels: give fewer per_class, or a smaller size"
        )
    sheet = Image.new("RGB", (width, height), _PAPER)
    what = f"{len(files):,} image{'s' * (len(files) != 1)}"
    if collection.classes:
        what = f"{len(groups):,} class{'es' * (len(groups) != 1)}, {what}"
    _write_title(sheet, layout, printable(root.resolve().name), what)
    mask = _rounded(size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        chosen = pool.map(
            lambda rows: list(_readable(files, rows, layout.per_class, size, seed)), groups.values()
        )
        for number, ((name, rows), images) in enumerate(zip(groups.items(), chosen)):
            _write_block(sheet, layout, number, printable(name), len(rows))
            left, top = layout.corner(number)
            for place in range(min(layout.per_class, len(rows))):
                tile = (
                    images[place] if place < len(images) else Image.new("RGB", (size, size), _EMPTY)
                )
                box = (left + place * (size + layout.gap), top + layout.label)
                sheet.paste(tile, box, mask)
    with atomic(out, "wb") as file:
        sheet.save(file, format=FORMATS[out.suffix.lower()], quality=90)
    return out


def _check_place(out: Path, root: Path, classes: tuple[str, ...]) -> None:
    """Not among the images, where it would be one of them from now on."""
    inside = [root / name for name in classes] if classes else [root]
    for folder in inside:
        if out.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{out} would lie among the images of {folder}: choose another place")


def _readable(
    files: Files, rows: list[int], wanted: int, size: int, seed: int
) -> Iterator[Image.Image]:
    of_class = {files.name(row): row for row in rows}
    found = 0
    for name in hash_order(of_class, seed):
        if found == wanted:
            return
        try:
            pixels = decode(files.path(of_class[name]), size)
        except DataError:
            continue  # the next one takes its place
        found += 1
        yield Image.fromarray(pixels.transpose(1, 2, 0))


def _write_title(sheet: Image.Image, layout: Layout, name: str, what: str) -> None:
    draw = ImageDraw.Draw(sheet)
    big, small = _font(layout.title), _font(round(0.7 * layout.title))
    left, right = layout.margin, sheet.width - layout.margin
    base = layout.margin + layout.title
    room: float = right - left - 2 * layout.title
    beside = draw.textlength(what, small)
    if beside < room / 2:
        draw.text((right, base), what, _PALE, small, anchor="rs")
        room -= beside
    draw.text((left, base), _fitted(draw, name, big, room), _INK, big, anchor="ls")
    line = base + round(0.4 * layout.title)
    draw.line((left, line, right - 1, line), _EMPTY, max(1, layout.title // 16))


def _write_block(sheet: Image.Image, layout: Layout, number: int, name: str, count: int) -> None:
    draw = ImageDraw.Draw(sheet)
    font, small = _font(layout.text), _font(round(0.85 * layout.text))
    left, top = layout.corner(number)
    right, base = left + layout.block[0], top + layout.text
    shown = f"{count:,}"
    room = right - left - draw.textlength(shown, small) - 2 * layout.gap
    draw.text((left, base), _fitted(draw, name, font, room), _INK, font, anchor="ls")
    draw.text((right, base), shown, _PALE, small, anchor="rs")


def _fitted(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, room: float) -> str:
    if draw.textlength(text, font) <= room:
        return text
    while text and draw.textlength(text + "…", font) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size=size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


def _rounded(side: int) -> Image.Image:
    """The mask of a square with round corners, drawn large so that they are smooth."""
    large = Image.new("L", (4 * side, 4 * side))
    ImageDraw.Draw(large).rounded_rectangle((0, 0, 4 * side - 1, 4 * side - 1), side // 6, 255)
    return large.resize((side, side), Image.Resampling.LANCZOS)
