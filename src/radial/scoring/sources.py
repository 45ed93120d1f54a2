"""Models by name: where each kind comes from, how it sees images, which features are taken.

A source gives a :class:`Network`. What it needs beyond torch is imported where it is used, and
named with its extra where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from radial.backbones import build_backbone
from radial.data.preprocessing import IMAGENET, Preprocess, three
from radial.rbf.layer import RBFLayer, deepest_rbf_layer

FEATURES = ("auto", "pooled", "cls", "mean")


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A target as built, in eval mode: images (B, 3, S, S) as it sees them to features (B, F)."""

    name: str  # of the backbone
    backbone: nn.Module
    preprocess: Preprocess  # how it sees images; its words stand on the card
    projection_head: nn.Module | None = None
    features: str = "pooled"  # which are taken: pooled, cls or mean; stands on the card
    random: bool = False  # asked for without weights
    notes: tuple[str, ...] = ()

    @property
    def rbf_layer(self) -> RBFLayer | None:
        """The deepest of the projection head."""
        head = self.projection_head
        return None if head is None else deepest_rbf_layer(head)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a source beside the name."""

    weights: str | None = None  # none, DEFAULT, or a name that the source knows
    size: int | None = None  # side of the images, where the user says
    data_size: int = 224  # that of the dataset, where nothing else is known
    features: str = "auto"

    @property
    def random(self) -> bool:
        return (self.weights or "").lower() == "none"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of model that can be named."""

    spec: str  # as on the command line
    build: Callable[[str, Asked], Network]  # of what stands behind the prefix


def from_source(
    spec: str,
    *,
    weights: str | None = None,
    size: int | None = None,
    data_size: int = 224,
    features: str = "auto",
) -> Network:
    """The network of a model by name, in eval mode; see :data:`SOURCES`."""
    asked = Asked(weights=weights, size=size, data_size=data_size, features=features)
    prefix = spec.partition(":")[0]
    if prefix in SOURCES:
        return SOURCES[prefix].build(spec.removeprefix(f"{prefix}:"), asked)
    return _backbone(spec, asked)


def _backbone(name: str, asked: Asked) -> Network:
    """``resnet50``, ``timm:vit_tiny…``, ``resnet9-w0.25``: what :func:`build_backbone` knows."""
    chosen = None if asked.random else asked.weights or "DEFAULT"
    size = asked.size or asked.data_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, info = build_backbone(name, image_size=size, weights=chosen)
    return Network(
        name=info.name,
        backbone=module.eval(),
        preprocess=_recorded(module, size) if chosen else Preprocess(size=size),
        random=chosen is None,
    )


def _recorded(module: nn.Module, size: int) -> Preprocess:
    """What the weights were trained with: timm's own record, else ImageNet's."""
    told = getattr(module, "pretrained_cfg", None) or {}
    return Preprocess(
        size=size,
        mean=three(told.get("mean", IMAGENET[0])),
        std=three(told.get("std", IMAGENET[1])),
        source="timm's record" if told else "its weights",
    )


SOURCES = {
    "torchvision": Source(spec="torchvision:NAME", build=_backbone),
    "timm": Source(spec="timm:NAME", build=lambda name, asked: _backbone(f"timm:{name}", asked)),
}
