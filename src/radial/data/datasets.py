"""Datasets by name: ``load_data("digits")``, ``load_data("folder:PATH")`` and so on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from radial.checks import DataError, check_choice, check_size
from radial.data.decoded import disk_limit
from radial.data.images import Collection, Data, Files, Images, Split, split_own, split_paper
from radial.data.sources import (
    IMAGENET100,
    open_cifar,
    open_digits,
    open_fashion_mnist,
    open_folder,
    open_imagenet,
    open_stl10,
)
from radial.data.subset import open_subset, split_published
from radial.data.survey import hold_pixels, read_files
from radial.files import cache_folder

SPLITS = ("auto", "paper", "own")


@dataclass(frozen=True)
class DatasetInfo:
    """``load`` takes PATH, or the root of downloads, and the split asked for."""

    name: str
    description: str
    load: Callable[[Path, str], Collection]
    image_size: int | None = None  # None: by the images
    takes_path: bool = False
    named_by_path: bool = False  # "folder:photos", not "folder": paths hold different data
    split: Callable[[Collection, int], Split] = split_paper  # 70/10/20, by a seed

    @property
    def spec(self) -> str:
        return f"{self.name}:PATH" if self.takes_path else self.name


_LISTED = (
    DatasetInfo("digits", "1,797 handwritten digits that come with scikit-learn",
                lambda root, split: open_digits(), 32),
    DatasetInfo("folder",
                "image files: train/, val/ and test/, or a folder a class, or unlabelled",
                lambda path, split: open_folder(path), takes_path=True, named_by_path=True),
    DatasetInfo("cifar10", "60,000 images in 10 classes, 32 px",
                lambda root, split: open_cifar(root, "cifar10"), 32),
    DatasetInfo("cifar100", "60,000 images in 100 classes, 32 px",
                lambda root, split: open_cifar(root, "cifar100"), 32),
    DatasetInfo("stl10", "13,000 labelled and 100,000 unlabelled images, 96 px",
                lambda root, split: open_stl10(root, labelled_only=split == "paper"), 96),
    DatasetInfo("fashion-mnist", "70,000 pieces of clothing in 10 classes, 28 px, padded to 32",
                lambda root, split: open_fashion_mnist(root), 32),
    DatasetInfo("imagenet", "ImageNet-1k as train/ and val/ with a folder a synset",
                lambda path, split: open_imagenet(path), 224, takes_path=True),
    DatasetInfo("imagenet100", "the 100 synsets of ImageNet-100, out of the same folders",
                lambda path, split: open_imagenet(path, IMAGENET100), 224, takes_path=True),
    DatasetInfo("open-images",
                "a subset of Open Images V7 as `radial data open-images fetch` writes it",
                lambda path, split: open_subset(path), 224, takes_path=True, named_by_path=True,
                split=split_published),
)  # fmt: skip
DATASETS = {info.name: info for info in _LISTED}


def load_data(
    spec: str = "digits",
    *,
    root: Path | str | None = None,
    image_size: int | None = None,
    split: str = "auto",
    seed: int = 42,
    max_bad: int = 10,
    memory_limit: float = 2.0,
    threads: int | None = None,
) -> Data:
    """Find, read, check and split a dataset.

    Args:
        spec: a name in ``DATASETS``, with ``:PATH`` where the data are yours: ``folder:photos``.
        root: where downloads and statistics are kept: RADIAL_DATA, else ``~/.cache/radial``.
        image_size: the side to train at. Images of that size are stored as they are, others at
            8/7 of it (256 for 224) from 64 px on, which leaves random crops something to crop.
        split: "own" (the dataset's), "paper" (stratified 70/10/20 by ``seed``), or "auto": its own
            if it has one.
        seed: of the split.
        max_bad: so many unreadable images are skipped, with a warning that names them.
        memory_limit: files whose pixels take less than so many GiB are decoded now and kept;
            others are decoded when asked for, after one pass that checks them, remembered in
            ``root``; so are decoded images, up to RADIAL_PIXELS GiB (16; 0 for none), so that no
            file is decoded twice.
        threads: that decode; one a core by default.

    Returns:
        Three splits and the statistics of the first.

    Raises:
        DataError: what cannot be found, downloaded, read or split; a ValueError of one line.

    Example:
        >>> data = load_data("digits")
        >>> len(data.train), len(data.val), len(data.test), data.train[0].shape
        (1257, 180, 360, torch.Size([3, 32, 32]))
        >>> data.split
        'stratified 70/10/20, seed 42'
    """
    info, path = _parse(spec)
    check_choice("split", split, SPLITS)
    check_size("max_bad", max_bad, 0)
    check_size("seed", seed, 0)
    if seed >= 2**32:
        raise DataError(f"seed must be below 2**32, not {seed}")
    if image_size is not None:
        check_size("image_size", image_size)
    if threads is not None:
        check_size("threads", threads)
    if not memory_limit >= 0:
        raise DataError(f"memory_limit must be at least 0 GiB, not {memory_limit!r}")
    root = data_root(root)
    collection = info.load(path or root, split)
    if split == "own" and collection.parts is None:
        raise DataError(f"{spec} has no split of its own; split: 'auto' or 'paper'")
    own = collection.parts is not None and split != "paper"
    rows = split_own(collection, seed) if own else info.split(collection, seed)
    return prepared(
        collection,
        rows,
        name=f"{info.name}:{path.resolve().name}" if path and info.named_by_path else info.name,
        image_size=image_size or info.image_size,
        root=root,
        max_bad=max_bad,
        memory_limit=memory_limit,
        threads=threads,
    )


def prepared(
    collection: Collection,
    rows: Split,
    *,
    name: str,
    image_size: int | None = None,
    root: Path,
    max_bad: int = 10,
    memory_limit: float = 2.0,
    threads: int | None = None,
) -> Data:
    """A collection read once, checked and split; what is asked for is as in :func:`load_data`."""
    limit, store = memory_limit * 2**30, collection.store
    if isinstance(store, Tensor):
        found = hold_pixels(store, rows, image_size, limit=limit)
    else:
        threads = threads or os.cpu_count() or 1
        found = read_files(
            store,
            rows,
            image_size,
            root=root,
            max_bad=max_bad,
            limit=limit,
            on_disk=disk_limit(),
            threads=threads,
        )
    survey = found.survey
    rows = rows.without(survey.bad)
    train, val, test = (
        Images(
            found.store,
            index,
            stored_size=survey.stored_size,
            labels=None if collection.labels is None else collection.labels[index],
            classes=collection.classes,
        )
        for index in (rows.train, rows.val, rows.test)
    )
    return Data(
        name=name,
        train=train,
        val=val,
        test=test,
        image_size=survey.image_size,
        mean=torch.tensor(survey.mean),
        std=torch.tensor(survey.std),
        split=rows.description,
        skipped=() if isinstance(store, Tensor) else tuple(map(store.name, survey.bad)),
        files=store if isinstance(store, Files) else None,
        trouble=collection.trouble or rows.trouble,
    )


def data_root(root: Path | str | None = None) -> Path:
    """Where downloads and statistics are kept: RADIAL_DATA, else ``~/.cache/radial``."""
    return Path(root or cache_folder()).expanduser()


def _parse(spec: str) -> tuple[DatasetInfo, Path | None]:
    name, colon, path = spec.partition(":")
    if name not in DATASETS:
        known = ", ".join(info.spec for info in DATASETS.values())
        raise DataError(f"unknown dataset {spec!r}; known: {known}")
    info = DATASETS[name]
    if info.takes_path != bool(path) or bool(colon) != info.takes_path:
        takes = "needs a path" if info.takes_path else "takes no path"
        raise DataError(f"dataset {name!r} {takes}: {info.spec!r}, not {spec!r}")
    return info, Path(path).expanduser() if path else None
