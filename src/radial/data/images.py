"""What data are to the rest of the package: three splits of square uint8 images.

A split is the dataset's own or 70/10/20. What has to be drawn is drawn by scikit-learn's
``train_test_split``, stratified by class, so that anyone can draw it again: first the 20 % of test,
then val as an eighth of the rest.

N images of a split, B of a batch, S stored side; decoded pixels are uint8 (3, S, S).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from radial.checks import DataError
from radial.data.decoded import PixelCache
from radial.pictures import open_picture, read_picture

Pixels = NDArray[np.uint8]
TEST_SHARE = 0.2
VAL_SHARE_OF_REST = 0.125  # 10 % of all
VAL_SHARE_OF_TRAIN = 0.1  # where the dataset comes with train and test


class Readable(Protocol):
    """Images that are read when asked for, by number."""

    root: Any  # where they are, for messages

    def __len__(self) -> int: ...
    def name(self, index: int) -> str: ...
    def shape(self, index: int) -> tuple[int, int]: ...  # width and height
    def read(self, index: int, size: int) -> Pixels: ...  # DataError: why it cannot be read
    def decode(self, index: int, size: int) -> Pixels: ...  # the same, DataError: with its name


class Files:
    """Image files below one folder, named by their path relative to it.

    The names are one byte array: a list of a million strings would be copied, page by page,
    into every DataLoader worker that so much as reads it.
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root = root
        self.cache: PixelCache | None = None  # of decoded images
        self._names = np.array([os.fsencode(name) for name in names])

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self._names[index]))

    def path(self, index: int) -> str:
        return os.path.join(self.root, self.name(index))

    def shape(self, index: int) -> tuple[int, int]:
        """Width and height, of the file's header."""
        with open_picture(self.path(index)) as image:
            return image.size

    def read(self, index: int, size: int) -> Pixels:
        """Decoded, or as the cache remembers it if neither the file's length nor time changed."""
        path, cache = self.path(index), self.cache
        if cache is None or cache.size != size:
            return decode(path, size)
        try:
            stat = os.stat(path)
        except OSError:
            return decode(path, size)  # which says why it cannot be read
        key = f"{self.name(index)}\0{stat.st_size}\0{stat.st_mtime_ns}"
        pixels = cache.get(key)
        if pixels is None:
            pixels = decode(path, size)
            cache.put(key, pixels)
        return pixels

    def decode(self, index: int, size: int) -> Pixels:
        try:
            return self.read(index, size)
        except DataError as error:
            raise DataError(f"cannot read image {self.path(index)!r}: {error}") from None


def decode(path: str, size: int) -> Pixels:
    """The central square of an image, upright, in RGB, resized to ``size``: (3, size, size).

    Resizing is bilinear with antialiasing, and leaves an image of that size untouched. Alpha
    is dropped, 16-bit greys are scaled to 8 bits, of animations the first frame is taken.
    Whatever Pillow cannot or will not read (decompression bombs) is a DataError.
    """
    return square(read_picture(path, size), size)


def square(image: Image.Image, size: int) -> Pixels:
    """The central square of a picture in RGB, resized: (3, size, size)."""
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

    Args:
        store: all images of the dataset, which the splits share.
        index: rows of the store, (N,).
        stored_size: side of the images, S.
        labels: of these rows.
        classes: names, by label.
    """

    def __init__(
        self,
        store: Tensor | Readable,
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
        """Whether the pixels are held, and not decoded when asked for."""
        return isinstance(self._store, Tensor)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        """A batch (B, 3, S, S)."""
        rows = self.index[torch.as_tensor(indices, dtype=torch.int64)]
        if isinstance(self._store, Tensor):
            return resized(self._store[rows], self.stored_size)
        size = self.stored_size
        images = [torch.from_numpy(self._store.decode(row, size)) for row in rows.tolist()]
        return torch.stack(images) if images else torch.empty(0, 3, size, size, dtype=torch.uint8)

    def name(self, index: int) -> str:
        """The file an image comes from, or its number in the whole dataset.

        Args:
            index: of the image in this split.

        Returns:
            A path relative to the folder, or a number.
        """
        row = int(self.index[index])
        return str(row) if isinstance(self._store, Tensor) else self._store.name(row)

    def subset(self, indices: Sequence[int] | Tensor) -> Images:
        """Some of the images, in the order given; nothing is copied.

        Args:
            indices: of images in this split.

        Returns:
            A split of its own.
        """
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
    """A dataset in three splits, with the statistics needed to normalise it.

    Attributes:
        name: as it was asked for.
        train: images to train on.
        val: images to choose by.
        test: images to tell by.
        image_size: the side models are trained at; images are stored at this size or larger.
        mean: (3,) over all pixels of the stored training images, in [0, 1].
        std: (3,) likewise; at least 1/255, so that a constant channel can be divided by it.
        split: which split this is, in words.
        skipped: unreadable images, left out.
        files: what the rows are, also where their pixels are held in memory.
        trouble: why its labels cannot be used, where they cannot.
    """

    name: str
    train: Images
    val: Images
    test: Images
    image_size: int
    mean: Tensor
    std: Tensor
    split: str
    skipped: tuple[str, ...] = ()
    files: Files | None = None
    trouble: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, by label."""
        return self.train.classes

    @property
    def all(self) -> Images:
        """Every image that is in a split, in the order of the files."""
        parts = (self.train, self.val, self.test)
        rows, first = np.unique(torch.cat([part.index for part in parts]), return_index=True)
        labels = [part.labels for part in parts if part.labels is not None]
        return Images(
            self.train._store,
            torch.from_numpy(rows),
            stored_size=self.train.stored_size,
            labels=torch.cat(labels)[torch.from_numpy(first)] if len(labels) == 3 else None,
            classes=self.classes,
        )

    def require_labels(self, at_least: int = 2) -> None:
        """Raise unless every split is labelled.

        Args:
            at_least: classes that train must have.

        Raises:
            DataError: a split without labels, too few classes, or one too small to be split.
        """
        if self.trouble:
            raise DataError(self.trouble)
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

    store: Tensor | Readable  # (N, 3, S, S) uint8, or files not yet read
    labels: Tensor | None = None  # (N,), −1 for images without one
    classes: tuple[str, ...] = ()
    parts: dict[str, Tensor] | None = None  # its own split: rows of train, and of val or test
    trouble: str = ""  # why its labels cannot be used, where they cannot


def resized(pixels: Tensor, size: int) -> Tensor:
    """(B, 3, s, s) -> (B, 3, size, size), bilinear with antialiasing."""
    if pixels.shape[-1] == size:
        return pixels
    return F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)


@dataclass(frozen=True, kw_only=True)
class Split:
    train: Tensor  # rows, ascending
    val: Tensor
    test: Tensor
    description: str
    trouble: str = ""  # why it is not stratified, where it was to be

    def without(self, rows: list[int]) -> Split:
        """The same split of the images that are left; nothing else moves."""
        if not rows:
            return self
        gone = torch.tensor(rows)
        kept: dict[str, Any] = {
            part: _minus(getattr(self, part), gone) for part in ("train", "val", "test")
        }
        for part, left in kept.items():
            if not len(left):
                raise DataError(f"no readable image is left in the {part} split")
        return replace(self, **kept)


def split_paper(collection: Collection, seed: int) -> Split:
    """70/10/20, stratified by class; images without one are a class of their own here.

    At random where there are no classes, or where one is too small to be in every part.
    """
    rows, trouble = torch.arange(len(collection.store)), ""
    if collection.labels is not None:
        try:
            return _shares(rows, collection, seed, "stratified 70/10/20")
        except DataError as error:
            trouble = str(error)
    plain = replace(collection, labels=None)
    kind = "random 70/10/20" + (", as some classes are too small to be in each" if trouble else "")
    return replace(_shares(rows, plain, seed, kind), trouble=trouble)


def _shares(rows: Tensor, collection: Collection, seed: int, kind: str) -> Split:
    rest, test = _halves(rows, TEST_SHARE, collection, seed)
    train, val = _halves(rest, VAL_SHARE_OF_REST, collection, seed)
    return Split(train=train, val=val, test=test, description=f"{kind}, seed {seed}")


def split_own(collection: Collection, seed: int) -> Split:
    """The dataset's own split; what it lacks is made up for as follows.

    Without val, val is 10 % of train (of its labelled part, stratified). Without test, its
    val is the test split, as is usual for ImageNet, and val is again 10 % of train.
    """
    parts, trouble = dict(collection.parts or {}), ""
    notes = []
    if "test" not in parts:
        parts["test"] = parts.pop("val")
        notes.append("test: its val")
    if "val" not in parts:
        train, labels = parts["train"], collection.labels
        labelled = labels is not None and bool((labels[train] >= 0).any())
        pool = train[labels[train] >= 0] if labelled and labels is not None else train
        part = "labelled train" if len(pool) < len(train) else "train"
        drawn = "stratified" if labelled else "random"
        try:
            parts["val"] = _halves(pool, VAL_SHARE_OF_TRAIN, collection, seed)[1]
        except DataError as error:
            if not labelled:
                raise
            plain, drawn, trouble = replace(collection, labels=None), "random", str(error)
            parts["val"] = _halves(pool, VAL_SHARE_OF_TRAIN, plain, seed)[1]
        parts["train"] = _minus(train, parts["val"])
        notes.append(f"val: 10 % of {part}, {drawn}, seed {seed}")
    note = f" ({'; '.join(notes)})" if notes else ""
    return Split(**parts, description=f"the dataset's own{note}", trouble=trouble)


def hash_order(names: Iterable[str], seed: int) -> list[str]:
    """Sorted by sha256 of ``seed/id``, the id being the name of the file without its suffix."""
    return sorted(names, key=lambda name: (digest(f"{seed}/{Path(name).stem}"), name))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def _halves(rows: Tensor, share: float, collection: Collection, seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.model_selection import train_test_split

    labels = None if collection.labels is None else collection.labels[rows]
    strata = None if labels is None else labels.numpy()
    try:
        rest, drawn = train_test_split(
            rows.numpy(), test_size=share, random_state=seed, stratify=strata
        )
    except ValueError:
        raise DataError(_too_few(rows, labels, share, collection.classes)) from None
    return torch.from_numpy(rest).sort().values, torch.from_numpy(drawn).sort().values


def _too_few(rows: Tensor, labels: Tensor | None, share: float, classes: tuple[str, ...]) -> str:
    if labels is None or not classes:
        return f"{len(rows)} images are too few to take {share:.3g} of them for another split"
    smallest, count = Counter(labels[labels >= 0].tolist()).most_common()[-1]
    return (
        f"class {classes[smallest]!r} has only {count} of "
        f"{len(rows)} images: too few to take {share:.3g} of each class for another split; "
        "10 images a class are always enough"
    )


def _minus(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)]
