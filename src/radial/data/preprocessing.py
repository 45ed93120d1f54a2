"""How a network sees an image: its side, the central part of it, the resampling, the normalisation.

Views are drawn in the coordinates of the stored image, the same for every network; what stands
here says only what becomes of them on the way into one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from radial.checks import check_choice, check_number, check_size

if TYPE_CHECKING:
    from torch import Tensor

    from radial.data.images import Data

Three = tuple[float, float, float]
IMAGENET: tuple[Three, Three] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean, std
INTERPOLATIONS = ("bilinear", "bicubic")


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How a network sees images.

    Args:
        size: side of its input in pixels.
        crop: share of an image's shorter side that the central crop keeps; None for what the
            dataset keeps (all of it below 64 px, 7/8 from there on).
        interpolation: bilinear or bicubic, both antialiased.
        mean: of each channel in [0, 1], subtracted; None for the dataset's own.
        std: what it is then divided by; None together with the mean.
        source: who says so, such as "timm's record" or "assumed".
        transform: of the user's, a PIL image to a tensor (3, H, W); then it alone decides.

    Example:
        >>> Preprocess(size=224, crop=0.875, interpolation="bicubic", source="timm").words
        "224 px, 0.875 of the side, bicubic, the data's own mean and std (timm)"
    """

    size: int
    crop: float | None = None
    interpolation: str = "bilinear"
    mean: Three | None = None
    std: Three | None = None
    source: str = ""
    transform: Callable[[Any], Tensor] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        if self.crop is not None:
            check_number("crop", self.crop, low=0.01, high=1.0)
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std must be given together")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise ValueError(f"std must be positive, not {list(self.std)}")

    @property
    def words(self) -> str:
        """One line for a card."""
        source = f" ({self.source})" if self.source else ""
        if self.transform is not None:
            return f"a transform of the user's{source}"
        parts = [f"{self.size} px"]
        if self.crop is not None:
            parts.append("the whole side" if self.crop == 1 else f"{self.crop:.3g} of the side")
        parts.append(self.interpolation)
        if self.mean is None or self.std is None:
            parts.append("the data's own mean and std")
        elif (self.mean, self.std) == IMAGENET:
            parts.append("ImageNet's mean and std")
        else:
            shown = ("/".join(f"{value:.3g}" for value in three) for three in (self.mean, self.std))
            parts.append("mean {}, std {}".format(*shown))
        return ", ".join(parts) + source

    def on(self, data: Data) -> Preprocess:
        """The same with what it leaves to the dataset filled in."""
        share = 1.0 if self.transform else data.image_size / data.train.stored_size
        filled = self if self.crop is not None else replace(self, crop=share)
        if filled.mean is not None:
            return filled
        return replace(filled, mean=three(data.mean.tolist()), std=three(data.std.tolist()))


def three(values: Any) -> Three:
    """A number for each channel, from as many or from one."""
    found = [float(value) for value in (values if hasattr(values, "__len__") else [values])]
    if len(found) == 1:
        found *= 3
    if len(found) != 3:
        raise ValueError(f"mean and std must have 3 channels, not {len(found)}: {found}")
    return (found[0], found[1], found[2])
