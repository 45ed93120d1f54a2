"""What data are to the rest of the package: three splits of square uint8 images.

N images of a split, B of a batch, S stored side; decoded pixels are uint8 (3, S, S).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from radial.checks import DataError
from radial.pictures import read_picture

Pixels = NDArray[np.uint8]


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
    image = read_picture(path)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    if (width, height) != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


class Images(Dataset[Tensor]):
    """One split: uint8 RGB images of one size, held in memory or decoded when asked for.

    ``labels`` are int64 (N,) with −1 where an image has none, or None where none has one.
    A DataLoader asks for whole batches (``__getitems__``), so its ``collate_fn`` has nothing
    left to do.
    """

    def __init__(
        self,
        store: Tensor | Files,
        index: Tensor,
        *,
        stored_size: int,
        labels: Tensor | None = None,
        classes: tuple[str, ...] = (),
    ) -> None:
        self.stored_size = stored_size
        self.labels = labels
        self.classes = classes
        self.index = index  # (N,) rows of the store, which the splits share
        self._store = store

    @property
    def in_memory(self) -> bool:
        return isinstance(self._store, Tensor)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        """(B, 3, S, S)"""
        rows = self.index[torch.as_tensor(indices, dtype=torch.int64)]
        if isinstance(self._store, Tensor):
            return resized(self._store[rows], self.stored_size)
        size = self.stored_size
        images = [torch.from_numpy(self._store.decode(row, size)) for row in rows.tolist()]
        return torch.stack(images) if images else torch.empty(0, 3, size, size, dtype=torch.uint8)

    def name(self, index: int) -> str:
        """The file an image comes from, or its number in the whole dataset."""
        row = int(self.index[index])
        return self._store.name(row) if isinstance(self._store, Files) else str(row)

    def subset(self, indices: Sequence[int] | Tensor) -> Images:
        rows = torch.as_tensor(indices, dtype=torch.int64)
        return Images(
            self._store,
            self.index[rows],
            stored_size=self.stored_size,
            labels=None if self.labels is None else self.labels[rows],
            classes=self.classes,
        )


@dataclass(frozen=True, kw_only=True)
class Data:
    """A dataset in three splits, with the statistics needed to normalise it."""

    name: str
    train: Images
    val: Images
    test: Images
    image_size: int  # the side models are trained at; images are stored at this size or larger
    mean: Tensor  # (3,) over all pixels of the stored training images, in [0, 1]
    std: Tensor  # (3,) likewise; at least 1/255, so that a constant channel can be divided by it
    split: str  # which split this is, in words
    skipped: tuple[str, ...] = ()  # unreadable images, left out
    files: Files | None = None  # what the rows are, also where their pixels are held in memory

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    def require_labels(self, at_least: int = 2) -> None:
        """Raise unless every split is labelled, with ``at_least`` classes in train."""
        for part in ("train", "val", "test"):
            labels = getattr(self, part).labels
            if labels is None or not (labels >= 0).any():
                raise DataError(
                    f"{self.name} has no labels in its {part} split: scores that need labels "
                    "(kNN, probes) want one folder a class"
                )
        labels = self.train.labels
        found = 0 if labels is None else len(set(labels.tolist()) - {-1})
        if found < at_least:
            raise DataError(
                f"{self.name} has {found} class{'es' * (found != 1)} in its train split, "
                f"at least {at_least} are needed"
            )


@dataclass(frozen=True, kw_only=True)
class Collection:
    """All images of a dataset, before they are split."""

    store: Tensor | Files  # (N, 3, S, S) uint8, or files not yet read
    labels: Tensor | None = None  # (N,), −1 for images without one
    classes: tuple[str, ...] = ()
    parts: dict[str, Tensor] | None = None  # its own split: rows of train, and of val or test


def resized(pixels: Tensor, size: int) -> Tensor:
    """(B, 3, s, s) -> (B, 3, size, size), bilinear with antialiasing."""
    if pixels.shape[-1] == size:
        return pixels
    return F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
