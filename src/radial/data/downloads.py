"""Datasets that come with a package or from the network, as torchvision downloads them."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.checks import DataError, one_line
from radial.data.images import Collection

_TIMEOUT = 30.0  # seconds without an answer


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
