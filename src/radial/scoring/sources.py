"""Models by name: where each kind comes from.

What a source needs beyond torch is imported where it is used, and named with its extra where it
is missing. Only ``torchscript:`` and ``py:`` run code that comes with the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from radial.backbones import TIMM_PLACES, TORCHVISION, build_backbone
from radial.checks import needs
from radial.data.preprocessing import Preprocess
from radial.scoring.networks import Asked, Network, Take, by_record, from_tokens, taken
from radial.scoring.pretrained import from_hugging_face, from_open_clip
from radial.scoring.programs import from_factory, from_onnx, from_torchscript


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of model that can be named."""

    spec: str  # as on the command line
    build: Callable[[str, Asked], Network]  # of what stands behind the prefix


def from_source(spec: str, asked: Asked) -> Network:
    """The network of a model by name, in eval mode.

    Args:
        spec: a prefix of `SOURCES` and a name, or a bare name of radial's own backbones.
        asked: weights, size and features.

    Raises:
        ValueError: it is unknown, cannot be had, or has no such features.
    """
    prefix, colon, name = spec.partition(":")
    with _quiet_hub():
        if colon and prefix in SOURCES:
            return SOURCES[prefix].build(name, asked)
        return _ours(spec, asked)


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Without the hub's log of its retries: what fails is told in one line."""
    log = logging.getLogger("huggingface_hub")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _built(name: str, size: int, weights: str | None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_backbone(name, image_size=size, weights=weights)[0].eval()


def _ours(name: str, asked: Asked) -> Network:
    """``resnet9-w0.25@none``: what `build_backbone` knows without a prefix."""
    if name in TORCHVISION:
        return _torchvision(name, asked)
    size = asked.size or asked.data_size
    module = _built(name, size, None if asked.random else asked.weights or "DEFAULT")
    return timm_network(module, name, asked.features, Preprocess(size=size), random=True)


def _torchvision(name: str, asked: Asked) -> Network:
    needs("score", "torchvision")
    from torchvision.models import get_model_weights

    whole = name if name in TORCHVISION else f"torchvision:{name}"
    size, chosen, how = asked.size or asked.data_size, None, None
    if not asked.random:
        chosen = asked.weights or "DEFAULT"
        try:
            known = get_model_weights(name).__members__
        except ValueError:
            known = {}  # an unknown model: building it names the nearest
        if chosen in known:
            shown = known[chosen].transforms()
            side, resized = shown.crop_size[0], shown.resize_size[0]
            size = asked.size or side
            told = {"mean": shown.mean, "std": shown.std, "interpolation": shown.interpolation}
            crop = min(1.0, side / resized)
            how = by_record(told, size=size, crop=crop, source="its weights")
    module = _built(whole, size, chosen)
    kind = "cls" if name.startswith("vit_") else "pooled"
    module, features = taken(module, f"torchvision:{name}", asked.features, {kind: None}, kind)
    return Network(
        name=name,
        backbone=module,
        preprocess=how or Preprocess(size=size),
        features=features,
        random=chosen is None,
    )


def _timm(name: str, asked: Asked) -> Network:
    needs("timm", "timm")
    import timm
    from timm.data.config import resolve_model_data_config

    size, chosen = asked.size, None if asked.random else asked.weights or "DEFAULT"
    if chosen and size is None and not name.startswith(TIMM_PLACES):
        known = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
        size = known.input_size[-1] if known else None
    if name.startswith(TIMM_PLACES) and size is None:
        size = _placed_size(name)
    size = size or asked.data_size
    module = _built(f"timm:{name}", size, chosen)
    told = resolve_model_data_config(module)
    how = by_record(told, size=size, crop=told["crop_pct"], source="timm's record")
    seen = how if chosen else Preprocess(size=size)
    return timm_network(module, f"timm:{name}", asked.features, seen, random=chosen is None)


def _placed_size(name: str) -> int | None:
    """The size that a model on the hub, or in a directory, records."""
    from timm.models._hub import load_model_config_from_hf, load_model_config_from_path

    place, _, rest = name.partition(":")
    try:
        load = load_model_config_from_path if place == "local-dir" else load_model_config_from_hf
        told: Mapping[str, Any] = load(rest)[0]
    except Exception:  # building it says what is wrong, in one line
        return None
    found = told.get("input_size")
    return int(found[-1]) if found else None


def timm_network(
    module: nn.Module,
    name: str,
    asked: str,
    preprocess: Preprocess,
    *,
    random: bool = False,
    **more: Any,
) -> Network:
    """A network in timm's form, with the features asked for."""
    prefix = int(getattr(module, "num_prefix_tokens", 0) or 0)
    offered: dict[str, Take | None] = {"pooled": None}
    auto = "pooled"
    if hasattr(module, "forward_features"):
        pool = getattr(module, "global_pool", "")
        if getattr(module, "cls_token", None) is not None:
            offered["cls"] = partial(_of_map, how="cls", prefix=prefix)
        offered["mean"] = partial(_of_map, how="mean", prefix=prefix)
        if pool in ("token", "avg") and prefix + hasattr(module, "blocks"):
            auto = "cls" if pool == "token" else "mean"
            offered[auto] = None  # as timm pools it
    backbone, features = taken(module, name, asked, offered, auto)
    return Network(
        name=name,
        backbone=backbone,
        preprocess=preprocess,
        features=features,
        random=random,
        **more,
    )


def recorded(module: nn.Module, size: int) -> Preprocess:
    """What a module's weights were trained with: timm's own record, else ImageNet's."""
    told = getattr(module, "pretrained_cfg", None) or {}
    return by_record(told, size=size, crop=None, source="timm's record" if told else "its weights")


def _of_map(module: Any, images: Tensor, *, how: str, prefix: int) -> Tensor:
    found = module.forward_features(images)
    if found.dim() == 4:  # (B, C, H, W), or with channels last as Swin has them
        channels_last = getattr(module, "output_fmt", "") == "NHWC" or (
            found.shape[-1] == getattr(module, "num_features", 0) != found.shape[1]
        )
        pooled: Tensor = found.mean((1, 2) if channels_last else (2, 3))
        return pooled
    features = from_tokens(found, how, prefix)
    normal: Callable[[Tensor], Tensor] = getattr(module, "fc_norm", None) or nn.Identity()
    return normal(features)


SOURCES = {
    "torchvision": Source(spec="torchvision:NAME", build=_torchvision),
    "timm": Source(spec="timm:NAME", build=_timm),
    "hf": Source(spec="hf:ORG/NAME", build=from_hugging_face),
    "openclip": Source(spec="openclip:NAME@WEIGHTS", build=from_open_clip),
    "onnx": Source(spec="FILE.onnx", build=from_onnx),
    "torchscript": Source(spec="torchscript:FILE", build=from_torchscript),
    "py": Source(spec="py:MODULE:FACTORY", build=from_factory),
}
