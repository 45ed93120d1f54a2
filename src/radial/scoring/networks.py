"""A network that can be scored: how it sees images, and which of its features are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from radial.data.preprocessing import IMAGENET, INTERPOLATIONS, Preprocess, three
from radial.rbf.layer import RBFLayer, deepest_rbf_layer

FEATURES = ("auto", "pooled", "cls", "mean")
Take = Callable[[nn.Module, Tensor], Tensor]  # a module and images (B, 3, S, S) → (B, F)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A target as built, in eval mode: images (B, 3, S, S) as it sees them to features (B, F)."""

    name: str  # of the backbone
    backbone: nn.Module
    preprocess: Preprocess  # how it sees images; its words stand on the card
    projection_head: nn.Module | None = None
    features: str = "pooled"  # which are taken: pooled, cls or mean; stands on the card
    random: bool = False  # asked for without weights
    cached: bool = True  # whether its features may be kept: not where its code may change
    notes: tuple[str, ...] = ()

    @property
    def rbf_layer(self) -> RBFLayer | None:
        """The deepest of the projection head."""
        head = self.projection_head
        return None if head is None else deepest_rbf_layer(head)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a source beside the name.

    Args:
        weights: none for random ones, or a name that the source knows; None for its default.
        size: side of the images, where the user says.
        data_size: that of the dataset, where nothing else is known.
        features: one of `FEATURES`.
    """

    weights: str | None = None
    size: int | None = None
    data_size: int = 224
    features: str = "auto"

    @property
    def random(self) -> bool:
        return (self.weights or "").lower() == "none"


class Taken(nn.Module):
    """One kind of features of a module."""

    def __init__(self, module: nn.Module, how: str, take: Take) -> None:
        super().__init__()
        self.module, self.how, self._take = module, how, take

    def forward(self, images: Tensor) -> Tensor:
        """(B, F) of images (B, 3, S, S)."""
        return self._take(self.module, images)


def taken(
    module: nn.Module, name: str, asked: str, offered: Mapping[str, Take | None], auto: str
) -> tuple[nn.Module, str]:
    """A module that gives the features asked for, and which these are.

    Args:
        module: the network.
        name: for the error.
        asked: one of `FEATURES`.
        offered: how each kind is taken; None where the module gives it as it is.
        auto: what is taken where nothing is asked for.

    Raises:
        ValueError: it has no such features.
    """
    how = auto if asked == "auto" else asked
    if how not in offered:
        raise ValueError(f"{name} has no {how} features; features: auto, {', '.join(offered)}")
    take = offered[how]
    return (module if take is None else Taken(module, how, take)).eval(), how


def from_tokens(tokens: Tensor, how: str, prefix: int) -> Tensor:
    """(B, F) of tokens (B, T, F), of which the first ``prefix`` are not of the image."""
    return tokens[:, 0] if how == "cls" else tokens[:, prefix:].mean(1)


def by_record(
    told: Mapping[str, object], *, size: int, crop: float | None, source: str
) -> Preprocess:
    """How a network sees images by a record with ``mean``, ``std`` and ``interpolation``."""
    interpolation = str(told.get("interpolation", "bilinear")).rpartition(".")[2].lower()
    return Preprocess(
        size=size,
        crop=crop,
        interpolation=interpolation if interpolation in INTERPOLATIONS else "bicubic",
        mean=three(told.get("mean") or IMAGENET[0]),
        std=three(told.get("std") or IMAGENET[1]),
        source=source,
    )
