"""Image folders: which files they hold, and what the folders they lie in say about them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from radial.checks import DataError
from radial.data.images import Collection, Files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

_SYNSETS = """
    n01558993 n01692333 n01729322 n01735189 n01749939 n01773797 n01820546 n01855672 n01978455
    n01980166 n01983481 n02009229 n02018207 n02085620 n02086240 n02086910 n02087046 n02089867
    n02089973 n02090622 n02091831 n02093428 n02099849 n02100583 n02104029 n02105505 n02106550
    n02107142 n02108089 n02109047 n02113799 n02113978 n02114855 n02116738 n02119022 n02123045
    n02138441 n02172182 n02231487 n02259212 n02326432 n02396427 n02483362 n02488291 n02701002
    n02788148 n02804414 n02859443 n02869837 n02877765 n02974003 n03017168 n03032252 n03062245
    n03085013 n03259280 n03379051 n03424325 n03492542 n03494278 n03530642 n03584829 n03594734
    n03637318 n03642806 n03764736 n03775546 n03777754 n03785016 n03787032 n03794056 n03837869
    n03891251 n03903868 n03930630 n03947888 n04026417 n04067472 n04099969 n04111531 n04127249
    n04136333 n04229816 n04238763 n04336792 n04418357 n04429376 n04435653 n04485082 n04493381
    n04517823 n04589890 n04592741 n07714571 n07715103 n07753275 n07831146 n07836838 n13037406
    n13040303
"""
IMAGENET100 = tuple(_SYNSETS.split())


def open_folder(path: Path) -> Collection:
    """Images below ``path``, laid out in one of three ways.

    - ``train/`` with ``val/`` (``valid/``, ``validation/``) or ``test/``: the dataset's own
      split; within each, one folder a class, or unlabelled images;
    - one folder a class, images at any depth in it;
    - images only: unlabelled.

    Names beginning with a dot are left out. A single folder with more folders in it, as
    archives unpack to, is entered. Everything is sorted by name.
    """
    _check_folder(path)
    root = path
    while True:
        folders = _folders(root)
        parts = _parts(root, folders)
        if "train" in parts and len(parts) > 1:
            return _collect(
                root, {part: _listing(root / name) for part, name in parts.items()}, parts
            )
        inner = len(folders) == 1 and not _images_in(root) and _folders(root / folders[0])
        if not inner:
            break
        root = root / folders[0]
    return _collect(root, {"": _listing(root)}, {"": ""})


def open_imagenet(path: Path, synsets: tuple[str, ...] | None = None) -> Collection:
    """``path/train`` and ``path/val``, each with a folder a synset; all of them or those named."""
    listings = {}
    for part in ("train", "val"):
        folder = path / part
        _check_folder(folder)
        missing = sorted(set(synsets or ()) - set(_folders(folder)))
        if missing:
            raise DataError(
                f"{folder} lacks {len(missing)} of {len(synsets or ())} synset folders: "
                f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}"
            )
        listings[part] = _listing(folder, synsets)
    return _collect(path, listings, {"train": "train", "val": "val"})


def _parts(root: Path, folders: list[str]) -> dict[str, str]:
    """The folder of each split, of those that are named like one."""
    parts: dict[str, str] = {}
    for name in folders:
        part = PARTS.get(name)
        if part in parts:
            raise DataError(
                f"{root} has {parts[part]}/ and {name}/: only one can be the {part} split"
            )
        if part:
            parts[part] = name
    return parts


_Listing = list[tuple[str, str]]  # class ("" for none) and path relative to the folder listed


def _listing(folder: Path, classes: tuple[str, ...] | None = None) -> _Listing:
    found = []
    for name in classes or _folders(folder):
        found += [(name, f"{name}/{image}") for image in _images_below(folder / name)]
    flat = _images_in(folder)
    if found and flat:
        warnings.warn(
            f"{len(flat)} images lie directly in {folder}, beside its class folders, and are "
            f"left out: {flat[0]!r}{', …' if len(flat) > 1 else ''}",
            stacklevel=5,
        )
    return found or [("", image) for image in flat]


def _collect(root: Path, listings: dict[str, _Listing], names: dict[str, str]) -> Collection:
    for part, listing in listings.items():
        if not listing:
            raise DataError(
                f"no images in {root / names[part]}: expected files ending in {', '.join(SUFFIXES)}"
            )
    everything = [(part, *entry) for part, listing in listings.items() for entry in listing]
    prefixes = {part: f"{name}/" if name else "" for part, name in names.items()}
    classes = tuple(sorted({label for _, label, _ in everything} - {""}))
    _check_classes(root, listings, names)
    numbers = {label: number for number, label in enumerate(classes)} | {"": -1}
    of_part = [part for part, _, _ in everything]
    return Collection(
        store=Files(root, [prefixes[part] + image for part, _, image in everything]),
        labels=torch.tensor([numbers[label] for _, label, _ in everything]) if classes else None,
        classes=classes,
        parts=None
        if "" in listings
        else {
            part: torch.tensor([p == part for p in of_part]).nonzero()[:, 0] for part in listings
        },
    )


def _check_classes(root: Path, listings: dict[str, _Listing], names: dict[str, str]) -> None:
    known = {label for label, _ in listings.get("train", ())} - {""}
    for part, listing in listings.items():
        foreign = sorted({label for label, _ in listing} - known - {""})
        if known and foreign:
            raise DataError(
                f"{root / names[part]} has {len(foreign)} classes that train/ has not: "
                f"{', '.join(map(repr, foreign[:3]))}"
            )


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise DataError(f"{path} is {'not a folder' if path.exists() else 'not there'}")


def _folders(folder: Path) -> list[str]:
    """Folders within that hold images."""
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if entry.is_dir() and not entry.name.startswith(".") and any(_walk(folder / entry.name))
    )


def _images_in(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if _is_image(e.name) and e.is_file())


def _images_below(folder: Path) -> list[str]:
    return sorted(_walk(folder))


def _walk(folder: Path) -> Iterator[str]:
    """Images at any depth, as posix paths; linked folders are entered, loops are not."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for name in names:
            if _is_image(name):
                yield Path(place, name).relative_to(folder).as_posix()


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)
