"""The folder of a subset: its images, checked against its manifest, and the published splits."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from radial.checks import check_number, check_size
from radial.data.decoding import Files
from radial.data.errors import DataError
from radial.data.folders import SUFFIXES
from radial.data.images import Collection
from radial.data.splits import Split
from radial.open_images.journal import FOLDER, MANIFEST
from radial.open_images.manifest import read_manifest

PUBLISHED = (0.7, 0.1, 0.2)  # lengths of train, val and test

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
    train, val, test = checked_lengths(lengths, seed)
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
    return Split(
        **{part: torch.from_numpy(np.sort(rows)) for part, rows in parts.items()},
        description=f"stratified {shares} as published, seed {seed}{_unchecked(collection)}",
    )


def _unchecked(collection: Collection) -> str:
    store = collection.store
    checked = isinstance(store, Files) and (store.root / MANIFEST).exists()
    return "" if checked else "; a plain folder, without a manifest"


def hash_order(names: Iterable[str], seed: int) -> list[str]:
    """Sorted by sha256 of ``seed/id``, the id being the name of the file without its suffix."""
    return sorted(names, key=lambda name: (digest(f"{seed}/{Path(name).stem}"), name))


def checked_lengths(lengths: Sequence[float], seed: int) -> tuple[float, float, float]:
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


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
