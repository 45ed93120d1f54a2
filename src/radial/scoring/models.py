"""Models that Python hands over: modules and functions in memory, beside paths and names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import one_line
from radial.data.preprocessing import IMAGENET, Preprocess
from radial.scoring.networks import Network, by_record
from radial.scoring.targets import Target, find, parsed

ASSUMED = (
    "normalised with ImageNet's mean and std: give (model, transform) if it was trained otherwise"
)


def targets_of(models: Any) -> list[Target]:
    """A target for each model that was given.

    Args:
        models: a path or name, an nn.Module, a function of a batch, a pair (model, transform), or
            a list or dict of these. A tuple whose second part can be called is a pair.

    Raises:
        ValueError: there is none, or one is nothing of this kind.
    """
    if isinstance(models, Mapping):
        named = [(str(name), _readable(model)) for name, model in models.items()]
        found = [replace(target, name=name) for name, target in named]
    elif _one(models):
        found = [_target(models)]
    elif isinstance(models, Iterable):
        found = _numbered([_readable(model) for model in models])
    else:
        raise ValueError(_unknown(models))
    if not found:
        raise ValueError("there are no models to look at")
    return found


def _one(models: Any) -> bool:
    return isinstance(models, str | os.PathLike) or callable(models) or _pair(models)


def _pair(model: Any) -> bool:
    return isinstance(model, tuple) and len(model) == 2 and callable(model[1])


def _target(model: Any) -> Target:
    if isinstance(model, Target):
        return model
    if isinstance(model, str | os.PathLike):
        return find(os.fspath(model))
    transform = None
    if _pair(model):
        model, transform = model
    if not callable(model):
        raise ValueError(_unknown(model))
    told = getattr(model, "pretrained_cfg", None) or {}
    size = (told.get("input_size") or (None,))[-1] if transform is None else None
    made = partial(_network, model, transform)
    return Target(name=_name(model), kind="model", given=made, image_size=size)


def _readable(model: Any) -> Target:
    """A target as read, or, of what was named and cannot be read, why."""
    try:
        return _target(model)
    except (ValueError, OSError) as error:
        if not isinstance(model, str | os.PathLike):
            raise
        return Target(name=parsed(os.fspath(model))[0], kind="model", error=one_line(error))


def _unknown(model: Any) -> str:
    return (
        "a model is a path or name, a module or function of a batch of images, or a pair "
        f"(model, transform), not {type(model).__name__}"
    )


def _name(model: Any) -> str:
    return str(getattr(model, "__name__", None) or type(model).__name__)


def _numbered(targets: list[Target]) -> list[Target]:
    """Models in memory of one class get a number; what was named keeps its name."""
    counts = Counter(target.name for target in targets if target.given)
    seen: Counter[str] = Counter()
    found = []
    for target in targets:
        if target.given and counts[target.name] > 1:
            seen[target.name] += 1
            target = replace(target, name=f"{target.name} {seen[target.name]}")
        found.append(target)
    return found


def _network(model: Callable[[Any], Any], transform: Any, size: int) -> Network:
    """A model in memory as what :func:`radial.scoring.targets.build` gives."""
    backbone = model if isinstance(model, nn.Module) else Function(model)
    notes: tuple[str, ...] = ()
    if transform is not None:
        seen = Preprocess(size=size, transform=_of_picture(transform), source="given with it")
    elif told := getattr(model, "pretrained_cfg", None):
        seen = by_record(told, size=size, crop=told.get("crop_pct"), source="timm's record")
    else:
        mean, std = IMAGENET
        seen = Preprocess(size=size, mean=mean, std=std, source="assumed")
        notes = (ASSUMED,)
    return Network(name=_name(model), backbone=backbone, preprocess=seen, notes=notes, cached=False)


class Function(nn.Module):
    """A function of a batch as a module without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _of_picture(transform: Any) -> Callable[[Any], Tensor]:
    """A transform of one PIL image; the image processors of `transformers` take keywords."""

    def apply(picture: Any) -> Tensor:
        if hasattr(transform, "image_mean"):
            found = transform(images=picture, return_tensors="pt")["pixel_values"][0]
        else:
            found = transform(picture)
        if not isinstance(found, Tensor) or found.dim() != 3:
            shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"a transform must make (3, H, W) of a PIL image, not {shown}")
        return found.to(torch.float32)

    return apply
