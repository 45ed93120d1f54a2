"""Images as a user has them at hand: a folder, paths, pixels, a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from radial.checks import DataError
from radial.data.images import Images, resized, square
from radial.data.sources import SUFFIXES
from radial.pictures import read_picture, rgb


def given_images(images: Any, *, image_size: int | None, most: int, seed: int = 0) -> Images:
    """At most ``most`` of the images that a user has at hand, of one size, in memory.

    Args:
        images: a folder, a sequence of paths, uint8 pixels (N, 3, S, S), or a dataset whose items
            are pictures or uint8 tensors (3, S, S), or begin with one; `Images` too, of
            which the first are taken, as of pixels. Of others they are drawn by the seed.
        image_size: the side wanted; by default that of the first, at most 224.
        most: images.
        seed: of the choice.

    Returns:
        Images without labels, all in memory.

    Raises:
        ValueError: for anything else, or if there is no image.
    """
    if isinstance(images, Images):
        pixels = images.__getitems__(range(min(most, len(images))))
        return Images(pixels, torch.arange(len(pixels)), stored_size=images.stored_size)
    if isinstance(images, Tensor):
        if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
            found = f"{tuple(images.shape)} of {images.dtype}"
            raise ValueError(f"images must be uint8 of shape (N, 3, S, S), not {found}")
        size = image_size or min(224, *images.shape[-2:])
        pixels = resized(images[:most].cpu(), size)
        return Images(pixels, torch.arange(len(pixels)), stored_size=size)
    if isinstance(images, str | Path):
        folder = Path(images).expanduser()
        images = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        if not images:
            raise DataError(f"{folder} is not a folder with images")
    if not hasattr(images, "__len__") or not hasattr(images, "__getitem__"):
        raise ValueError(
            f"images must be a folder, paths, a tensor or a dataset, not {type(images).__name__}"
        )
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    pictures = [_picture(images[row]) for row in rows[:most].sort().values.tolist()]
    if not pictures:
        raise ValueError("there are no images")
    size = image_size or min(224, *pictures[0].size)
    stored = torch.stack([torch.from_numpy(square(picture, size)) for picture in pictures])
    return Images(stored, torch.arange(len(stored)), stored_size=size)


def _picture(item: Any) -> Image.Image:
    """An image in RGB from a path, a picture, a uint8 tensor (3, H, W), or (one of them, ...)."""
    if isinstance(item, tuple | list) and item:
        return _picture(item[0])
    if isinstance(item, str | Path):
        return read_picture(str(item))
    if isinstance(item, Image.Image):
        return rgb(item)
    if isinstance(item, Tensor) and item.dtype == torch.uint8 and item.dim() == 3:
        return Image.fromarray(item.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy())
    found = type(item).__name__
    if isinstance(item, Tensor):
        found = f"{tuple(item.shape)} of {item.dtype}"
    raise ValueError(f"a dataset must give pictures or uint8 tensors (3, H, W), not {found}")
