"""A subset of Open Images V7 that was fetched: its folder, the published splits, a torch dataset.

A subset is what ``radial data open-images fetch`` writes: a folder a class, images in it.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from radial.checks import DataError, check_choice, check_number, check_size
from radial.data.images import Collection, Files, Split, digest, hash_order
from radial.data.sources import SUFFIXES
from radial.open_images.journal import FOLDER, MANIFEST
from radial.open_images.manifest import read_manifest
from radial.pictures import read_picture

PUBLISHED = (0.7, 0.1, 0.2)  # lengths of train, val and test
SPLITS = ("train", "val", "test", "all")
AUGMENTATIONS = {"autoaugment": "AutoAugment", "augmix": "AugMix", "randaugment": "RandAugment"}

Rows = NDArray[np.int64]


def open_subset(root: Path) -> Collection:
    """Class folders in ``root`` and the images directly in them, both sorted by name.

    Names that begin with a dot, and files beside the class folders, are left out. Where there
    is the ``manifest.csv`` of a fetch, the images must be those that it has chosen.
    """
    if not root.is_dir():
        raise DataError(f"{root} is {'not a folder' if root.exists() else 'not there'}")
    if (root / FOLDER).exists():
        raise DataError(
            f"{root} is not complete: give the same `radial data open-images fetch MANIFEST "
            f"--out {root}` again, it goes on where it stopped"
        )
    classes = _entries(root, folders=True)
    if not classes:
        raise DataError(
            f"no class folders in {root}: expected a folder a class, as "
            "`radial data open-images fetch` writes them"
        )
    names, labels = [], []
    for label, name in enumerate(classes):
        found = _entries(root / name, root=root, folders=False)
        if not found:
            raise DataError(
                f"class folder {root / name} has no images: expected files ending in "
                f"{', '.join(SUFFIXES)}"
            )
        names += [f"{name}/{image}" for image in found]
        labels += [label] * len(found)
    if (root / MANIFEST).exists():
        _check_complete(root, names)
    return Collection(store=Files(root, names), labels=torch.tensor(labels), classes=tuple(classes))


def _check_complete(root: Path, names: list[str]) -> None:
    """The images of the manifest that lies there, and no others: else classes are not equal."""
    chosen = {row.path for row in read_manifest(root / MANIFEST).rows if row.role == "chosen"}
    missing, more = sorted(chosen.difference(names)), sorted(set(names) - chosen)
    if missing:
        raise DataError(
            f"{root} lacks {len(missing):,} of the {len(chosen):,} images of its manifest, such "
            f"as {missing[0]}: `radial data open-images fetch {root / MANIFEST} --out {root}` "
            "repairs it"
        )
    if more:
        raise DataError(
            f"{root} has {len(more):,} image{'s' * (len(more) != 1)} that its manifest has not "
            f"chosen, such as "
            f"{more[0]}: move them away"
        )


def _entries(folder: Path, *, folders: bool, root: Path | None = None) -> list[str]:
    """Class folders, or images; a link must not lead out of ``root``."""
    inside = (root or folder).resolve()
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            image = entry.name.lower().endswith(SUFFIXES)
            if entry.name.startswith(".") or entry.is_dir() != folders or not (folders or image):
                continue
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(inside):
                raise DataError(f"{entry.path} is a link that leads out of {root or folder}")
            found.append(entry.name)
    return sorted(found)


def split_published(
    collection: Collection, seed: int = 42, lengths: Sequence[float] = PUBLISHED
) -> Split:
    """Train, val and test, stratified by class, with the sizes and members as published.

    scikit-learn's ``train_test_split`` draws the share ``test`` of all images, then the share
    ``val / (train + val)`` of the rest, in the order the first draw left it in. Both sizes are
    rounded up, in floating point: 0.1 / (0.7 + 0.1) is a little above 1/8, so 34,500 images
    give 24,149/3,451/6,900 and not 24,150/3,450/6,900. Each draw takes of each class its share,
    rounded up or down. On the same files the splits are those of the published code.
    """
    train, val, test = _checked_lengths(lengths, seed)
    assert collection.labels is not None
    labels: Rows = collection.labels.numpy()
    shares = "/".join(f"{100 * length:g}" for length in (train, val, test))
    rows: Rows = np.arange(len(labels))
    rest, test_rows = _draw(rows, labels, test, seed)
    share = val / (train + val) if train + val else 0.0
    train_rows, val_rows = _draw(rest, labels, share, seed)
    parts = {"train": train_rows, "val": val_rows, "test": test_rows}
    for part, length in zip(parts, (train, val, test)):
        found = np.bincount(labels[parts[part]], minlength=len(collection.classes))
        if length and not found.all():
            few, count = Counter(labels.tolist()).most_common()[-1]
            raise DataError(
                f"class {collection.classes[few]!r} has {count} of {len(rows)} images: too few "
                f"to split each class {shares}"
            )
    ordered = {part: torch.from_numpy(np.sort(rows)) for part, rows in parts.items()}
    return Split(
        train=ordered["train"],
        val=ordered["val"],
        test=ordered["test"],
        description=f"stratified {shares} as published, seed {seed}{_unchecked(collection)}",
    )


def _unchecked(collection: Collection) -> str:
    store = collection.store
    checked = isinstance(store, Files) and (store.root / MANIFEST).exists()
    return "" if checked else "; a plain folder, without a manifest"


def _checked_lengths(lengths: Sequence[float], seed: int) -> tuple[float, float, float]:
    check_size("seed", seed, 0)
    if seed >= 2**32:
        raise DataError(f"seed must be below 2**32, not {seed}")
    if not isinstance(lengths, Sequence) or len(lengths) != 3:
        raise DataError(f"split_lengths are three, of train, val and test, not {lengths!r}")
    for length in lengths:
        check_number("split_lengths", length, 0, 1)
    if not math.isclose(sum(lengths), 1, abs_tol=1e-6):
        raise DataError(f"split_lengths must sum to 1, not to {sum(lengths):g}: {lengths!r}")
    return lengths[0], lengths[1], lengths[2]


def _draw(rows: Rows, labels: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """What is left and what is drawn; both in the order scikit-learn gives them."""
    from sklearn.model_selection import train_test_split

    if share <= 0 or not len(rows):
        return rows, rows[:0]
    if share >= 1:
        return rows[:0], rows
    try:
        rest, drawn = train_test_split(
            rows, test_size=share, random_state=seed, stratify=labels[rows]
        )
    except ValueError:
        return rows, rows[:0]  # too few, which is found when classes are counted
    return rest, drawn


class OpenImagesV7(Dataset[tuple[Any, Any]]):
    """(image, target) of one split; the image as PIL, upright and in RGB, or as transformed.

    Args:
        root: the folder fetched. Links that lead out of it are refused.
        split: "train", "val", "test", or "all" for the three together.
        split_lengths: shares of train, val and test, drawn as published (``split_published``).
        seed: of split and augmentations.
        num_augments: each image of train is followed by so many augmentations: items 0, 3, 6, …
            are images as they are if it is 2. The other splits hold each image once, whatever is
            asked for.
        samples_per_class: instead: so many items of each class in train. Its images share the
            augmentations this needs, the first ones get one more where they cannot share equally.
            If there are images to spare, the first ones are kept. First is by ``hash_order`` of
            ``seed``.
        augmentation: "autoaugment", "augmix" or "randaugment" (torchvision's, with its defaults),
            or a function of a PIL image. It depends on the seed, the image's id and the number of
            the augmentation only: an item is the same picture whenever, wherever and in whatever
            order it is asked for. For functions of your own that holds if they draw from the
            global generators of torch (on the CPU), Python or NumPy; those are left as they were.
        transform: of the image, applied last, to every item.
        target_transform: of the class, likewise.

    Raises:
        DataError: a folder or split that cannot be read or made as asked.

    Example:
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
        _checked_lengths(split_lengths, seed)
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
            image: Any = read_picture(path)
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
        """The image behind an item.

        Args:
            index: of the item.

        Returns:
            Its name, and the number of its augmentation: 0 as it is, then 1, 2, …
        """
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
