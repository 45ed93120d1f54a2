"""How a network sees images: as torchvision's transforms show them, the same views for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import v2

from radial.data.augmentations import scoring_view
from radial.data.images import Images
from radial.data.preprocessing import IMAGENET, Preprocess, three
from radial.evaluation.features import extract_layers

SIDE = 64


def smooth(n: int = 6) -> Images:
    """Images without detail that resizing would lose."""
    coarse = torch.rand(n, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    fine = nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bicubic").clamp(0, 1)
    return Images((fine * 255).byte(), torch.arange(n), stored_size=SIDE)


def seen(images: Images, how: Preprocess, view: Any = None) -> torch.Tensor:
    """What arrives at a network, (N, 3, S, S) or (n, q, 3, S, S)."""
    size = SIDE if how.transform else how.size
    rows = extract_layers(
        nn.Flatten(), None, images, mean=torch.tensor(how.mean), std=torch.tensor(how.std),
        image_size=size, crop=how.crop, interpolation=how.interpolation, transform=how.transform,
        view=None if view is None else view.at(size), q=1 if view is None else 3,
    ).backbone  # fmt: skip
    return rows.view(*rows.shape[:-1], 3, how.size, how.size)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "crop"), [(48, 1.0), (28, 0.875), (64, 1.0), (96, 0.75)])
def test_centres_are_those_of_torchvision(interpolation: str, size: int, crop: float) -> None:
    images = smooth()
    how = Preprocess(
        size=size, crop=crop, interpolation=interpolation, mean=IMAGENET[0], std=IMAGENET[1]
    )
    part = round(crop * SIDE)
    reference = v2.Compose([
        v2.CenterCrop(part),
        v2.Resize(size, getattr(v2.InterpolationMode, interpolation.upper()), antialias=True),
        v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*IMAGENET),
    ])  # fmt: skip
    pictures = [Image.fromarray(np.moveaxis(image.numpy(), 0, 2)) for image in images]
    expected = torch.stack([reference(picture) for picture in pictures])
    torch.testing.assert_close(seen(images, how), expected, atol=0.03, rtol=0)  # 8 bits of PIL
    by_transform = Preprocess(size=size, mean=three(0), std=three(1), transform=reference)
    torch.testing.assert_close(seen(images, by_transform), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("augment", ["fixed", "crop", "strong"])
def test_networks_of_all_sizes_see_the_same_views(augment: str) -> None:
    """Crops, colours and blur are of the image, not of a network's size or resampling."""
    images, view = smooth(), scoring_view(augment, SIDE)
    shown = [
        seen(images, Preprocess(size=size, interpolation=how, mean=three(0), std=three(1)), view)
        for size, how in ((64, "bilinear"), (32, "bilinear"), (96, "bicubic"))
    ]
    coarse = [nn.functional.adaptive_avg_pool2d(x.flatten(0, 1), 4) for x in shown]
    others = coarse[0][torch.randperm(len(coarse[0]), generator=torch.Generator().manual_seed(1))]
    apart = float((coarse[0] - others).abs().mean())
    for one in coarse[1:]:
        assert float((one - coarse[0]).abs().mean()) < 0.05 * apart


def test_words_say_what_was_used() -> None:
    plain = Preprocess(size=32)
    assert plain.words == "32 px, bilinear, the data's own mean and std"
    how = Preprocess(size=224, crop=1.0, mean=IMAGENET[0], std=IMAGENET[1], source="timm's record")
    assert how.words == "224 px, the whole side, bilinear, ImageNet's mean and std (timm's record)"
    grey = Preprocess(size=8, crop=0.9, mean=three(0.5), std=three([0.25]), interpolation="bicubic")
    assert grey.words == ("8 px, 0.9 of the side, bicubic, mean 0.5/0.5/0.5, std 0.25/0.25/0.25")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": 8, "crop": 1.5}, "crop must be .* between 0.01 and 1"),
        ({"size": 8, "interpolation": "lanczos"}, "interpolation .*lanczos"),
        ({"size": 8, "mean": (0, 0, 0)}, "mean and std must be given together"),
        ({"size": 8, "mean": (0, 0, 0), "std": (1, 0, 1)}, "std must be positive"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocess(**options)
    with pytest.raises(ValueError, match="must have 3 channels, not 4"):
        three([1, 2, 3, 4])
