"""Where images come from: a package, torchvision's downloads, or folders of files.

Of a folder: which files it holds, and what the folders they lie in say about them.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.checks import DataError, one_line
from radial.data.images import Collection, Files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
PARTS = {  # what folders of a split are called, in any case
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "test": "test", "testing": "test",
}  # fmt: skip

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
_TIMEOUT = 30.0  # seconds without an answer


def open_folder(path: Path) -> Collection:
    """Images below ``path``, laid out in one of three ways.

    - ``train/`` with ``val/`` (``valid/``, ``validation/``) or ``test/``: the dataset's own
      split; within each, one folder a class, or unlabelled images;
    - one folder a class, images at any depth in it; images beside them have no class;
    - images only: unlabelled.

    Folders of a split are known in any case, also as ``training/`` and ``testing/``; where there
    is nothing but one without ``train/``, their images are pooled. Names beginning with a dot are
    left out. A single folder with more folders in it, as archives unpack to, is entered. Everything
    is sorted by name. No image needs a class: what a class is too small for is said where labels
    are asked for.
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
        if parts and len(parts) == len(folders) and not _images_in(root):
            return _pooled(root, parts)
        inner = len(folders) == 1 and not _images_in(root) and _folders(root / folders[0])
        if not inner:
            break
        root = root / folders[0]
    return _collect(root, {"": _listing(root)}, {"": ""})


def _pooled(root: Path, parts: dict[str, str]) -> Collection:
    """Folders of a split with nothing to train on beside them: one pool, no classes of their names.

    A single one is entered.
    """
    if len(parts) == 1:
        return open_folder(root / next(iter(parts.values())))
    listings = {part: _listing(root / name) for part, name in parts.items()}
    return replace(_collect(root, listings, parts), parts=None)


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
        part = PARTS.get(name.lower())
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
    return found + [("", image) for image in _images_in(folder)]


def _collect(root: Path, listings: dict[str, _Listing], names: dict[str, str]) -> Collection:
    for part, listing in listings.items():
        if not listing:
            raise DataError(
                f"no images in {root / names[part]}: expected files ending in {', '.join(SUFFIXES)}"
            )
    everything = [(part, *entry) for part, listing in listings.items() for entry in listing]
    prefixes = {part: f"{name}/" if name else "" for part, name in names.items()}
    classes = tuple(sorted({label for _, label, _ in everything} - {""}))
    numbers = {label: number for number, label in enumerate(classes)} | {"": -1}
    of_part = [part for part, _, _ in everything]
    return Collection(
        store=Files(root, [prefixes[part] + image for part, _, image in everything]),
        labels=torch.tensor([numbers[label] for _, label, _ in everything]) if classes else None,
        classes=classes,
        trouble=_foreign_classes(root, listings, names),
        parts=None
        if "" in listings
        else {
            part: torch.tensor([p == part for p in of_part]).nonzero()[:, 0] for part in listings
        },
    )


def _foreign_classes(root: Path, listings: dict[str, _Listing], names: dict[str, str]) -> str:
    """A split with classes that nothing is trained on, in words; "" where there is none."""
    known = {label for label, _ in listings.get("train", ())} - {""}
    for part, listing in listings.items():
        foreign = sorted({label for label, _ in listing} - known - {""})
        if known and foreign:
            return (
                f"{root / names[part]} has {len(foreign)} classes that {names['train']}/ has not: "
                f"{', '.join(map(repr, foreign[:3]))}"
            )
    return ""


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


def open_digits() -> Collection:
    """scikit-learn's 1,797 handwritten digits, 8 × 8 greys 0..16, enlarged to 32 × 32 RGB."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = torch.from_numpy(digits.images).float()[:, None] * (255 / 16)
    large = F.interpolate(grey, size=32, mode="bilinear", align_corners=False)
    return Collection(
        store=large.round().to(torch.uint8).repeat(1, 3, 1, 1),
        labels=torch.from_numpy(digits.target).long(),
        classes=tuple(str(name) for name in digits.target_names),
    )


def open_cifar(root: Path, name: str) -> Collection:
    from torchvision import datasets

    kind: Any = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    train, test = (_fetch(name, root, kind, train=train) for train in (True, False))
    images = [torch.from_numpy(part.data).permute(0, 3, 1, 2) for part in (train, test)]
    return _joined(images, [train.targets, test.targets], train.classes)


def open_fashion_mnist(root: Path) -> Collection:
    """28 × 28 greys, with a black margin of 2 pixels and as RGB."""
    from torchvision import datasets

    parts = [
        _fetch("fashion-mnist", root, datasets.FashionMNIST, train=train) for train in (True, False)
    ]
    images = [F.pad(part.data, (2, 2, 2, 2))[:, None].repeat(1, 3, 1, 1) for part in parts]
    return _joined(images, [part.targets for part in parts], parts[0].classes)


def open_stl10(root: Path, labelled_only: bool) -> Collection:
    """5,000 labelled and 100,000 unlabelled images train, 8,000 test.

    3 GB, held in memory whatever the limit; twice that while loading.
    """
    from torchvision import datasets

    kinds = ["train", "test"] if labelled_only else ["train", "unlabeled", "test"]
    parts = [_fetch("stl10", root, datasets.STL10, split=kind) for kind in kinds]
    labels = torch.cat([torch.as_tensor(part.labels).long() for part in parts])
    tested = torch.arange(len(labels)) >= len(labels) - len(parts[-1])
    return Collection(
        store=torch.cat([torch.from_numpy(part.data) for part in parts]),
        labels=labels,
        classes=tuple(parts[0].classes),
        parts={"train": (~tested).nonzero()[:, 0], "test": tested.nonzero()[:, 0]},
    )


def _joined(images: list[Tensor], labels: list[Any], classes: list[str]) -> Collection:
    rows = torch.arange(sum(map(len, images)))
    return Collection(
        store=torch.cat(images).contiguous(),
        labels=torch.cat([torch.as_tensor(part).long() for part in labels]),
        classes=tuple(classes),
        parts={"train": rows[: len(images[0])], "test": rows[len(images[0]) :]},
    )


def _fetch(name: str, root: Path, kind: Callable[..., Any], **which: Any) -> Any:
    """A torchvision dataset in ``root``, where it is downloaded to if it is not there whole.

    The download happens beside and its folders are moved into place when all of it is there,
    so that one broken off, or one under way in another process, is never taken for data.
    """
    with suppress(Exception):  # missing, or damaged in whatever way
        return kind(root, **which, download=False)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _timeout(), tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as beside:
            kind(beside, **which, download=True)
            for folder in [path for path in Path(beside).iterdir() if path.is_dir()]:
                target = root / folder.name
                with suppress(OSError):  # another process was quicker: what it put there is read
                    if target.exists():
                        target.rename(Path(beside, f"{folder.name}.old"))
                    folder.rename(target)
        return kind(root, **which, download=False)
    except Exception as error:  # network, server, archive, disk: all the same to the user
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise DataError(f"cannot download {name} to {root}: {one_line(error)}") from error


@contextmanager
def _timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
