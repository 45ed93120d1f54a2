"""Statistics of a folder of images: pixels, resolution, counts; in one pass over the files.

N images, V = 256 values of a channel.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from radial.checks import DataError, check_size
from radial.data.images import Files
from radial.data.sources import open_folder
from radial.pictures import read_picture

if TYPE_CHECKING:
    from rich.console import Console

Channels = tuple[float, float, float]
Counts = NDArray[np.int64]  # (3, V): how often each value occurs in each channel

Block = TypeVar("Block")

_BLOCK = 16  # images a thread takes at a time; sums run block by block, whatever the threads
_NAMED = 20  # unreadable files a terminal shows
_VALUES = np.arange(256, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class FolderStatistics:
    """Channels are R, G, B in [0, 1]; names of files are relative to ``path``."""

    path: str
    images: int  # readable ones: all figures are of these
    classes: dict[str, int]  # images of each; none if the images are not in class folders
    image_size: int | None  # the side images were resized to; None: as they are
    width: float  # mean of the files, upright, before resizing
    height: float
    pixels: int  # counted, after resizing
    mean: Channels  # over all pixels
    std: Channels  # over all pixels
    image_mean: Channels  # mean of the means of images
    image_std: Channels  # mean of the stds of images, n − 1 in the denominator: as published
    unreadable: dict[str, str]  # name and reason

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it; what cannot be printed of a name is replaced."""
        values = asdict(self)
        for key, value in values.items():
            if isinstance(value, tuple):
                values[key] = list(value)
            elif isinstance(value, dict):
                values[key] = {printable(name): entry for name, entry in value.items()}
        return values | {"path": printable(self.path)}


def folder_statistics(
    path: Path | str,
    *,
    image_size: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FolderStatistics:
    """Read every image once; layouts of folders are those of ``folder:PATH``.

    ``mean`` and ``std`` are over all pixels, summed in whole numbers: exact, whatever the number
    of images and threads. An image of twice the area counts twice. ``image_mean`` and
    ``image_std`` are means over images, so each image counts once. With ``image_size`` whole
    images are resized to squares first (bilinear, antialiased); then the two means are equal.

    The published figures of Open Images V7 subsets are ``image_mean`` and ``image_std`` at
    ``image_size=224``. A mean of stds is not the std: it lacks how images differ from each
    other, and where all have one ``image_size`` it is never larger, about .23 where the pixels'
    std is .28. Of images of various sizes it may be: a large even one counts little in it.

    progress
        Called with the number of images read so far and of all.
    """
    if image_size is not None:
        check_size("image_size", image_size)
    if threads is not None:
        check_size("threads", threads)
    path = Path(path).expanduser()
    collection = open_folder(path)
    files = collection.store
    assert isinstance(files, Files)
    labels = [-1] * len(files) if collection.labels is None else collection.labels.tolist()
    total, counts = _Sums(), dict.fromkeys(collection.classes, 0)

    def read(rows: range) -> _Sums:
        block = _Sums()
        for row in rows:
            try:
                block.add(_one(files.path(row), image_size, row))
            except DataError as error:
                block.unreadable[files.name(row)] = str(error)
        return block

    for rows, block in in_blocks(len(files), _BLOCK, threads or os.cpu_count() or 1, read):
        total.add(block)
        for row in block.rows:
            if labels[row] >= 0:
                counts[collection.classes[labels[row]]] += 1
        if progress:
            progress(rows.stop, len(files))
    n = len(total.rows)
    if not n:
        name, reason = next(iter(total.unreadable.items()))
        raise DataError(
            f"none of {len(files)} images in {path} can be read, the first {name!r}: {reason}"
        )
    mean, std = mean_std(total.counts)
    return FolderStatistics(
        path=str(path),
        images=n,
        classes=counts,
        image_size=image_size,
        width=total.width / n,
        height=total.height / n,
        pixels=int(total.counts[0].sum()),
        mean=mean,
        std=std,
        image_mean=_channels(total.means / n),
        image_std=_channels(total.stds / n),
        unreadable=total.unreadable,
    )


def print_statistics(stats: FolderStatistics, console: Console) -> None:
    """A table for people; ``to_dict`` has the same with all digits."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text

    few, many = min(stats.classes.values(), default=0), max(stats.classes.values(), default=0)
    each = f"{few:,} each" if few == many else f"{few:,} to {many:,} each"
    plural = "" if len(stats.classes) == 1 else "es"
    of = f" in {len(stats.classes):,} class{plural}, {each}" if stats.classes else ", unlabelled"
    size = f"resized to {stats.image_size} × {stats.image_size} px" if stats.image_size else "as is"
    console.print(Text(f"{stats.images:,} image{'s' * (stats.images != 1)}{of}", style="bold"))
    console.print(Text(f"mean resolution {stats.width:.0f} × {stats.height:.0f} px; here {size}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for channel in ("red", "green", "blue"):
        table.add_column(channel, justify="right")
    for name, values in (
        ("mean of all pixels", stats.mean),
        ("std of all pixels", stats.std),
        ("mean of images' means", stats.image_mean),
        (f"mean of images' stds{', as published' * (stats.image_size == 224)}", stats.image_std),
    ):
        table.add_row(name, *(f"{value:.5f}" for value in values))
    console.print()
    console.print(table)
    if stats.classes:
        console.print()
        entries = [
            Text(printable(name) if few == many else f"{printable(name)} {count:,}")
            for name, count in stats.classes.items()
        ]
        console.print(Columns(entries, padding=(0, 3), column_first=True))
    if stats.unreadable:
        bad = len(stats.unreadable)
        console.print()
        console.print(Text(f"{bad:,} file{'s' * (bad != 1)} cannot be read:", style="yellow"))
        for name, reason in [*stats.unreadable.items()][:_NAMED]:
            console.print(Text(f"  {printable(name)}: {reason}"))
        if bad > _NAMED:
            console.print(Text(f"  … and {bad - _NAMED:,} more"))


def printable(name: str) -> str:
    """A file's name with line breaks, control characters and bytes of no encoding replaced."""
    return "".join(letter if letter.isprintable() else "�" for letter in name)


@dataclass
class _Sums:
    """Of a block of images, and of all."""

    rows: list[int] = field(default_factory=list)  # readable
    unreadable: dict[str, str] = field(default_factory=dict)
    width: int = 0
    height: int = 0
    counts: Counts = field(default_factory=lambda: np.zeros((3, 256), np.int64))
    means: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    stds: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    def add(self, other: _Sums) -> None:
        self.rows += other.rows
        self.unreadable |= other.unreadable
        self.width += other.width
        self.height += other.height
        self.counts += other.counts
        self.means += other.means
        self.stds += other.stds


def in_blocks(
    n: int, size: int, threads: int, read: Callable[[range], Block]
) -> Iterator[tuple[range, Block]]:
    """Rows 0 … n − 1 and what ``read`` made of them, block by block, in their order."""
    starts = range(0, n, size)
    ahead = 4 * threads  # blocks: what is decoded ahead has to fit into memory
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(starts), ahead):
            blocks = [range(s, min(s + size, n)) for s in starts[first : first + ahead]]
            yield from zip(blocks, pool.map(read, blocks))


def _one(path: str, size: int | None, row: int) -> _Sums:
    image = read_picture(path)
    width, height = image.size
    if size and (width, height) != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    counts = np.array(image.histogram(), dtype=np.int64).reshape(3, 256)  # Pillow's: 10 × quicker
    mean, std = mean_std(counts)
    n = image.width * image.height
    unbiased = math.sqrt(n / (n - 1)) if n > 1 else 1.0
    return _Sums([row], {}, width, height, counts, np.array(mean), np.array(std) * unbiased)


def mean_std(counts: Counts) -> tuple[Channels, Channels]:
    """Of pixels in [0, 1], from how often each value occurs: (3, V).

    In whole numbers up to one division and one root, so exact whatever the number of pixels.
    This is the std over all pixels; the mean of per-image stds, which some tables print, is
    smaller.
    """
    means, stds = [], []
    for channel in counts:
        n, first = int(channel.sum()), int(channel @ _VALUES)
        second = int(channel @ _VALUES**2)
        means.append(first / n / 255)
        stds.append((n * second - first * first) ** 0.5 / n / 255)
    return _channels(means), _channels(stds)


def _channels(values: Sequence[float] | NDArray[np.float64]) -> Channels:
    red, green, blue = map(float, values)
    return red, green, blue
