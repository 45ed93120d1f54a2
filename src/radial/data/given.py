"""Images that Python hands over: files by name or pattern, tensors, torch's and other datasets.

Nothing is asked of a dataset but a length and items by number.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from radial.checks import DataError, one_line
from radial.data.datasets import DATASETS, prepared
from radial.data.images import Collection, Data, Files, Pixels, Readable, Split, split_paper, square
from radial.pictures import read_picture, rgb

IMAGE_COLUMNS = ("image", "img", "pixel_values", "x")
SPLIT_SEED = 42  # as load_data has it
LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "y")


class Items:
    """A dataset as a store of images: read item by item, in whatever thread, one at a time."""

    def __init__(
        self, dataset: Any, rows: Sequence[int], name: str, column: str | None = None
    ) -> None:
        self.dataset, self.rows, self.root, self.column = dataset, rows, name, column
        self._lock = Lock()  # few datasets say whether they may be read by several threads

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return str(self.rows[index])

    def shape(self, index: int) -> tuple[int, int]:
        """Width and height."""
        return self._picture(index).size

    def read(self, index: int, size: int) -> Pixels:
        """(3, size, size), the central square."""
        return square(self._picture(index), size)

    def decode(self, index: int, size: int) -> Pixels:
        try:
            return self.read(index, size)
        except DataError as error:
            raise DataError(f"item {self.name(index)} of {self.root}: {error}") from None

    def item(self, index: int) -> Any:
        try:
            with self._lock:
                return self.dataset[self.rows[index]]
        except Exception as error:  # of the dataset's own making
            raise DataError(one_line(error)) from error

    def _picture(self, index: int) -> Image.Image:
        item = self.item(index)
        if isinstance(item, Mapping):
            column = self.column or next((c for c in IMAGE_COLUMNS if c in item), None)
            if column is None:
                raise DataError(f"no image among {', '.join(map(str, item))}")
            item = item[column]
        elif isinstance(item, tuple | list):
            item = item[0]
        return picture(item)


def picture(image: Any) -> Image.Image:
    """A PIL image in RGB, of one or of a tensor or array of pixels.

    Args:
        image: PIL; (C, H, W) tensor with C 1 or 3, uint8 or floats in [0, 1]; (H, W[, 3]) array.

    Raises:
        DataError: anything else, or floats that were normalised already.
    """
    if isinstance(image, Image.Image):
        return rgb(image)
    if isinstance(image, str | os.PathLike):
        return read_picture(os.fspath(image))
    if isinstance(image, Tensor):
        if image.dim() == 3 and image.shape[0] in (1, 3):
            image = image.permute(1, 2, 0)
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray):
        raise DataError(f"not an image but {type(image).__name__}")
    array = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] != 3):
        raise DataError(f"not an image of 1 or 3 channels but {tuple(image.shape)}")
    if np.issubdtype(array.dtype, np.floating):
        low, high = float(array.min()), float(array.max())
        if not (low >= 0.0 and high <= 1.0):
            raise DataError(
                f"floats must lie in [0, 1], not in [{low:.3g}, {high:.3g}]: give images before "
                "they are normalised, as PIL, uint8 or floats in [0, 1]"
            )
        array = (255 * array).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(f"pixels of {array.dtype} have no known range: give uint8")
    return Image.fromarray(np.ascontiguousarray(array)).convert("RGB")


def named(images: Any) -> str | None:
    """The dataset as :func:`radial.data.load_data` names it, where that is what was given."""
    if not isinstance(images, str | os.PathLike):
        return None
    text = os.fspath(images)
    if Path(text).expanduser().is_dir():
        return f"folder:{text}"
    return text if text.partition(":")[0] in DATASETS else None


@dataclass(frozen=True, kw_only=True)
class Given:
    """Images that were handed over, as a collection and a name for it."""

    name: str
    collection: Collection

    def data(self, image_size: int | None, *, divide: bool = False, **options: Any) -> Data:
        """At a size; ``divide`` them 70/10/20, or have all of them in every part."""
        rows = torch.arange(len(self.collection.store))
        whole = Split(train=rows, val=rows, test=rows, description="all images that were given")
        split = split_paper(self.collection, SPLIT_SEED) if divide else whole
        return prepared(self.collection, split, name=self.name, image_size=image_size, **options)


def given(
    images: Any, labels: Any = None, *, most: int | None = None, seed: int = 0, own: bool = False
) -> Given:
    """Images as Python hands them over.

    Args:
        images: list of paths, glob pattern, uint8 tensor (N, C, H, W), or anything with a length
            and items: torch's datasets, Hugging Face's, lists of pictures.
        labels: one for each image, numbers or names, −1 or None where there is none.
        most: where there are more images, so many are drawn.
        seed: of that draw.
        own: take the dataset's own labels where none are given.

    Raises:
        DataError: what is none of these, is empty, or has another number of labels.
    """
    if isinstance(images, str | os.PathLike):
        name = os.path.expanduser(os.fspath(images))
        images = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
        if not images:
            known = ", ".join(info.spec for info in DATASETS.values())
            raise DataError(
                f"no images {name!r}: neither a folder, nor a file or pattern such as "
                f"'photos/**/*.jpg', nor one of {known}"
            )
    elif isinstance(images, Mapping):
        keys = ", ".join(map(repr, images))
        raise DataError(f"several datasets in a {type(images).__name__}: choose one of {keys}")
    elif not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        raise DataError(
            "images must be a folder, paths, a pattern, a uint8 tensor or a dataset with a "
            f"length, not {type(images).__name__}"
        )
    else:
        plain = isinstance(images, list | tuple | Tensor)
        name = f"{len(images):,} images" if plain else type(images).__name__
    if not len(images):
        raise DataError(f"{name}: there are no images")
    column, labelled = _columns(images)
    if labels is None and own:
        labels = _own_labels(Items(images, range(len(images)), name), labelled)
    rows: Sequence[int] = range(len(images))
    if most is not None and most < len(images):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        rows = order[:most].sort().values.tolist()
    store: Tensor | Readable
    if isinstance(images, Tensor):
        store = _pixels(images)[rows]
    elif _all_paths(images):
        store = _files([os.path.expanduser(os.fspath(images[row])) for row in rows])
    else:
        store = Items(images, rows, name, column)
    if labels is None:
        return Given(name=name, collection=Collection(store=store))
    numbers, classes = _numbered(labels, len(images))
    known_labels = numbers[torch.tensor(rows)]
    return Given(
        name=name, collection=Collection(store=store, labels=known_labels, classes=classes)
    )


def _all_paths(images: Any) -> bool:
    return isinstance(images, Sequence) and all(
        isinstance(path, str) or hasattr(path, "__fspath__") for path in images
    )


def _files(paths: Sequence[str]) -> Files:
    whole = [os.path.abspath(path) for path in paths]
    root = os.path.commonpath([os.path.dirname(path) for path in whole])
    return Files(Path(root), [os.path.relpath(path, root) for path in whole])


def _pixels(images: Tensor) -> Tensor:
    """(N, 3, s, s) uint8, the central squares."""
    if images.dim() != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8:
        found = f"{tuple(images.shape)} of {str(images.dtype).removeprefix('torch.')}"
        raise DataError(f"a tensor of images must be (N, 3, H, W) of uint8, not {found}")
    height, width = images.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = images[:, :, top : top + side, left : left + side]
    return square.expand(-1, 3, -1, -1).cpu().contiguous()


def _columns(dataset: Any) -> tuple[str | None, str | None]:
    """Which columns of a Hugging Face dataset are images and labels; None where it has none."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or not hasattr(dataset, "column_names"):
        return None, None
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    images += [name for name in IMAGE_COLUMNS if name in kinds]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    labels += [name for name in LABEL_COLUMNS if name in kinds]
    if not images:
        raise DataError(f"no column of images among {', '.join(kinds)}")
    return images[0], labels[0] if labels else None


def _own_labels(store: Items, column: str | None) -> list[Any] | None:
    """Those of a dataset: a column, its ``targets``, or the second of each item."""
    if column is not None:
        return list(store.dataset[column])
    told = getattr(store.dataset, "targets", None)
    if told is not None and len(told) == len(store):
        return list(told)
    first = store.item(0)
    if isinstance(first, Mapping):
        known = next((name for name in LABEL_COLUMNS if name in first), None)
        return None if known is None else [store.item(i)[known] for i in range(len(store))]
    if isinstance(first, tuple | list) and len(first) > 1:
        return [store.item(i)[1] for i in range(len(store))]
    return None


def _numbered(labels: Any, count: int) -> tuple[Tensor, tuple[str, ...]]:
    """int64 (N,), −1 where there is none, and the names of the classes in order."""
    values = [value.item() if hasattr(value, "item") else value for value in labels]
    if len(values) != count:
        raise DataError(f"{len(values)} labels for {count} images")
    known = {value for value in values if value is not None and value != -1}
    order = sorted(known, key=lambda value: (isinstance(value, str), value))
    numbers: dict[Any, int] = {value: number for number, value in enumerate(order)}
    return torch.tensor([numbers.get(value, -1) for value in values]), tuple(map(str, order))
