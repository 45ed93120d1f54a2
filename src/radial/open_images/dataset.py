"""Balanced subsets of Open Images V7 as a torch dataset: splits, and augmented copies.

A subset is what ``radial data open-images fetch`` writes: a folder a class, images in it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from radial.checks import check_choice, check_size
from radial.data.decoding import Files, upright
from radial.data.errors import DataError
from radial.open_images.subset import (
    PUBLISHED,
    Rows,
    checked_lengths,
    digest,
    hash_order,
    open_subset,
    split_published,
)

__all__ = ["OpenImagesV7", "hash_order", "open_subset", "split_published"]

SPLITS = ("train", "val", "test", "all")
AUGMENTATIONS = {"autoaugment": "AutoAugment", "augmix": "AugMix", "randaugment": "RandAugment"}


class OpenImagesV7(Dataset[tuple[Any, Any]]):
    """(image, target) of one split; the image as PIL, upright and in RGB, or as transformed.

    root
        The folder fetched. Links that lead out of it are refused.
    split
        "train", "val", "test", or "all" for the three together.
    split_lengths
        Shares of train, val and test, drawn as published (see ``split_published``).
    num_augments
        Each image of train is followed by so many augmentations: items 0, 3, 6, … are images
        as they are if it is 2. The other splits hold each image once, whatever is asked for.
    samples_per_class
        Instead: so many items of each class in train. Its images share the augmentations this
        needs, the first ones get one more where they cannot share equally. If there are images
        to spare, the first ones are kept. First is by ``hash_order`` of ``seed``.
    augmentation
        "autoaugment", "augmix" or "randaugment" (torchvision's, with its defaults), or a
        function of a PIL image. It depends on the seed, the image's id and the number of the
        augmentation only: an item is the same picture whenever, wherever and in whatever order
        it is asked for. For functions of your own that holds if they draw from the global
        generators of torch (on the CPU), Python or NumPy; those are left as they were.
    transform, target_transform
        Applied last, to every item.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("Food", "Toy"):
    ...     (root / name).mkdir()
    ...     for number in range(10):
    ...         Image.new("RGB", (8, 8)).save(root / name / f"{number:016x}.jpg")
    >>> train = OpenImagesV7(root, "train", num_augments=2)
    >>> len(train), train.classes, train.item(1)
    (39, ('Food', 'Toy'), ('Food/0000000000000000.jpg', 1))
    >>> len(OpenImagesV7(root, "train", samples_per_class=50))
    100
    """

    def __init__(
        self,
        root: Path | str,
        split: str = "train",
        split_lengths: Sequence[float] = PUBLISHED,
        seed: int = 42,
        num_augments: int = 0,
        samples_per_class: int | None = None,
        augmentation: str | Callable[[Image.Image], Any] = "autoaugment",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        check_choice("split", split, SPLITS)
        check_size("num_augments", num_augments, 0)
        if samples_per_class is not None:
            check_size("samples_per_class", samples_per_class)
            if num_augments:
                raise DataError(
                    f"num_augments={num_augments} and samples_per_class={samples_per_class}: "
                    "only one of them can say how many augmentations there are"
                )
        if not callable(augmentation):
            check_choice("augmentation", augmentation, AUGMENTATIONS)
        self.root = Path(root).expanduser()
        self.split = split
        self.seed = seed
        self.transform = transform
        self.target_transform = target_transform
        collection = open_subset(self.root)
        assert isinstance(collection.store, Files)
        assert collection.labels is not None
        self.classes = collection.classes
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self._files = collection.store
        rows: Rows = np.arange(len(self._files))
        checked_lengths(split_lengths, seed)
        if split != "all":
            rows = getattr(split_published(collection, seed, split_lengths), split).numpy()
        if not len(rows):
            raise DataError(f"the {split} split is empty: split_lengths={tuple(split_lengths)}")
        labels: Rows = collection.labels.numpy()
        copies = np.zeros_like(rows)
        if split == "train" and samples_per_class is not None:
            rows, copies = self._filled(rows, labels, samples_per_class)
        elif split == "train":
            copies += num_augments
        self._rows = rows  # of the images of this split, ascending
        self._ends = np.cumsum(1 + copies)  # the item after an image's last augmentation
        self._labels = labels[rows]
        self._augment = _augmentation(augmentation) if copies.any() else None

    @cached_property
    def targets(self) -> list[int]:
        """The class of every item, before ``target_transform``."""
        items = np.diff(self._ends, prepend=0)
        return [int(label) for label in np.repeat(self._labels, items)]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        place, number = self._find(index)
        path = self._files.path(int(self._rows[place]))
        try:
            image: Any = upright(path)
        except DataError as error:
            raise DataError(f"cannot read image {path!r}: {error}") from None
        if number and self._augment:
            with _drawing_from(digest(f"{self.seed}/{Path(path).stem}/{number}")):
                image = self._augment(image)
        target: Any = int(self._labels[place])
        if self.transform:
            image = self.transform(image)
        if self.target_transform:
            target = self.target_transform(target)
        return image, target

    def item(self, index: int) -> tuple[str, int]:
        """The image behind an item, and the number of its augmentation: 0 as it is, then 1, 2, …"""
        place, number = self._find(index)
        return self._files.name(int(self._rows[place])), number

    def _find(self, index: int) -> tuple[int, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        index = int(index) % len(self)
        place = int(np.searchsorted(self._ends, index, side="right"))
        return place, index - int(self._ends[place - 1] if place else 0)

    def _filled(self, rows: Rows, labels: Rows, wanted: int) -> tuple[Rows, Rows]:
        """The images kept of each class, and how many augmentations follow each."""
        kept: list[tuple[int, int]] = []
        for label in range(len(self.classes)):
            of_class = {self._files.name(row): row for row in rows[labels[rows] == label].tolist()}
            order = [of_class[name] for name in hash_order(of_class, self.seed)][:wanted]
            share, more = divmod(wanted - len(order), len(order))
            kept += [(row, share + (number < more)) for number, row in enumerate(order)]
        pairs = np.array(sorted(kept), dtype=np.int64)
        return pairs[:, 0], pairs[:, 1]


def _augmentation(chosen: str | Callable[[Image.Image], Any]) -> Callable[[Image.Image], Any]:
    if not isinstance(chosen, str):
        return chosen
    from torchvision.transforms import v2

    return getattr(v2, AUGMENTATIONS[chosen])()  # type: ignore[no-any-return]


_DRAWING = threading.RLock()  # the generators are the process's, and threads may share a dataset


@contextmanager
def _drawing_from(seeds: bytes) -> Iterator[None]:
    """Global generators seeded, and afterwards as they were; CUDA's are not touched."""
    seed = int.from_bytes(seeds[:8])
    with _DRAWING:
        states = torch.get_rng_state(), random.getstate(), np.random.get_state()
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            np.random.set_state(states[2])
