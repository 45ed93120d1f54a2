"""A few of a user's images, of one size and in memory: what a monitor looks at again and again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from radial.data.datasets import data_root
from radial.data.given import given
from radial.data.images import Images
from radial.data.sources import SUFFIXES

LARGEST = 224  # px, unless told otherwise


def given_images(
    images: Any, *, image_size: int | None, most: int, seed: int = 0
) -> tuple[Images, int]:
    """At most ``most`` of the images that a user has at hand, of one size, in memory.

    Args:
        images: a folder, or what `radial.data.given.given` takes: paths, a pattern, pixels, a
            dataset; `Images` too, of which the first are taken. Of others they are drawn.
        image_size: the side wanted; by default that of the images, at most 224.
        most: images.
        seed: of the draw.

    Returns:
        Images without labels, all in memory, and the side at which a network is to see them.

    Raises:
        ValueError: for anything else, or if there is no image.
    """
    if not isinstance(images, Images):
        if isinstance(images, str | os.PathLike) and Path(images).expanduser().is_dir():
            files = Path(images).expanduser().rglob("*")
            images = sorted(path for path in files if path.name.lower().endswith(SUFFIXES))
        chosen, root = given(images, most=most, seed=seed), data_root()
        data = chosen.data(image_size, root=root)
        if image_size is None and data.image_size > LARGEST:
            data = chosen.data(LARGEST, root=root)
        images, image_size = data.test, data.image_size
    pixels = images.__getitems__(range(min(most, len(images))))
    held = Images(pixels, torch.arange(len(pixels)), stored_size=images.stored_size)
    return held, image_size or images.stored_size
