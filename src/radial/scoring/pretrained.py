"""Vision models of `transformers` and open_clip, by name or from a directory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import needs, one_line
from radial.data.preprocessing import IMAGENET, Preprocess, three
from radial.scoring.networks import Asked, Network, Take, by_record, from_tokens, taken

# By the type in a model's config: what is taken by default, and what else it has. "cls" is the
# class token after the last norm. ViTModel's own pooler is never used: where a checkpoint has
# none, it is random.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dinov2": ("cls", ("cls", "mean")),
    "dinov2_with_registers": ("cls", ("cls", "mean")),
    "dinov3_vit": ("cls", ("cls", "mean")),
    "dinov3_convnext": ("pooled", ("pooled", "mean")),
    "clip_vision_model": ("pooled", ("pooled", "mean")),  # the class token after its own norm
    "siglip_vision_model": ("pooled", ("pooled", "mean")),  # its trained attention pooling
    "aimv2_vision_model": ("pooled", ("pooled", "mean")),
    "vit": ("cls", ("cls", "mean")),
    "vit_mae": ("cls", ("cls", "mean")),
    "vit_msn": ("cls", ("cls", "mean")),
    "ijepa": ("mean", ("mean",)),
    "resnet": ("pooled", ("pooled", "mean")),
    "convnextv2": ("pooled", ("pooled", "mean")),
    "swinv2": ("pooled", ("pooled", "mean")),
}
TOWERS = {  # models of images and texts, and the class of their image tower
    "clip": "CLIPVisionModel",
    "siglip": "SiglipVisionModel",
    "aimv2": "Aimv2VisionModel",
}
RESAMPLING = {2: "bilinear", 3: "bicubic"}  # as Pillow counts; others are shown bicubic


def from_hugging_face(name: str, asked: Asked) -> Network:
    """A vision model of `transformers`: ``ORG/NAME`` on the hub, or a directory.

    Args:
        name: what stands behind ``hf:``.
        asked: weights (``none`` for random ones), size and features.

    Raises:
        ValueError: it cannot be had or built whole, or is of another kind.
    """
    needs("hf", "transformers")
    import transformers

    quiet = transformers.utils.logging
    before = quiet.get_verbosity()
    quiet.set_verbosity_error()  # what is missing is checked here, and told in one line
    bars = quiet.is_progress_bar_enabled()
    quiet.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        tower = TOWERS.get(config.model_type)
        config = config.vision_config if tower else config
        if config.model_type not in KINDS:
            known = ", ".join((*KINDS, *TOWERS))
            raise ValueError(f"it is a {config.model_type}; known: {known}")
        if config.model_type == "vit_mae":
            config.mask_ratio = 0.0  # features are those of the whole image
        builder = getattr(transformers, tower) if tower else transformers.AutoModel
        module = _loaded(builder, name, config, asked.random)
        told = _processor(name)
    except Exception as error:  # no such name, no connection, a damaged file, keys that lack
        raise ValueError(f"cannot build 'hf:{name}': {one_line(error)}") from error
    finally:
        quiet.set_verbosity(before)
        if bars:
            quiet.enable_progress_bar()
    auto, kinds = KINDS[config.model_type]
    own = getattr(config, "image_size", None)
    how = _seen(told, asked, own if isinstance(own, int) else None)
    if "pooled" in kinds and not _has_pooling(config):
        auto, kinds = "mean", ("mean",)
    prefix = _prefix_tokens(config)
    other_size = isinstance(own, int) and how.size != own
    offered: dict[str, Take | None] = {
        kind: partial(_output, kind=kind, prefix=prefix, other_size=other_size) for kind in kinds
    }
    backbone, features = taken(module, f"hf:{name}", asked.features, offered, auto)
    label = Path(name).name if Path(name).is_dir() else name
    return Network(
        name=f"hf:{label}",
        backbone=backbone,
        preprocess=how,
        features=features,
        random=asked.random,
    )


def _loaded(builder: Any, name: str, config: Any, random: bool) -> nn.Module:
    if random:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            build = getattr(builder, "from_config", None) or builder._from_config
            found: nn.Module = build(config)
            return found
    module, told = builder.from_pretrained(name, config=config, output_loading_info=True)
    used = (key for key in told["missing_keys"] if not key.startswith("pooler."))
    if missing := sorted(used):
        raise ValueError(f"{len(missing)} tensors are missing: {', '.join(missing[:3])}, …")
    loaded: nn.Module = module
    return loaded


def _has_pooling(config: Any) -> bool:
    return bool(getattr(config, "vision_use_head", True) and getattr(config, "use_head", True))


def _prefix_tokens(config: Any) -> int:
    if config.model_type in ("dinov2_with_registers", "dinov3_vit"):
        return 1 + int(config.num_register_tokens)
    without = ("siglip_vision_model", "aimv2_vision_model", "ijepa", "swinv2")
    return 0 if config.model_type in without else 1


def _output(module: Any, images: Tensor, *, kind: str, prefix: int, other_size: bool) -> Tensor:
    accepted = inspect.signature(module.forward).parameters
    options: dict[str, Any] = {}
    if other_size and "interpolate_pos_encoding" in accepted:
        options["interpolate_pos_encoding"] = True
    if "noise" in accepted:  # MAE shuffles patches even where it masks none: keep their order
        patches = (images.shape[-1] // module.config.patch_size) ** 2
        order = torch.arange(patches, device=images.device, dtype=torch.float32)
        options["noise"] = order.expand(len(images), -1)
    found = module(pixel_values=images, **options)
    if kind == "pooled":
        pooled: Tensor = found.pooler_output
        return pooled.flatten(1)
    last = found.last_hidden_state
    return last.mean((2, 3)) if last.dim() == 4 else from_tokens(last, kind, prefix)


def _processor(name: str) -> Mapping[str, Any]:
    """What the model's image processor records; nothing where it has none."""
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        told: Mapping[str, Any] = ImageProcessingMixin.get_image_processor_dict(name)[0]
    except OSError:
        return {}
    return told


def _seen(told: Mapping[str, Any], asked: Asked, own: int | None) -> Preprocess:
    if not told:
        size = asked.size or own or asked.data_size
        return Preprocess(size=size, mean=IMAGENET[0], std=IMAGENET[1], source="assumed")
    resized, cropped = _side(told.get("size")), _side(told.get("crop_size"))
    crop = float(told.get("crop_pct") or 1.0)
    if told.get("do_center_crop") and cropped and resized:
        crop, resized = min(1.0, cropped / resized), cropped
    plain = told.get("do_normalize") is False
    return Preprocess(
        size=asked.size or resized or own or asked.data_size,
        crop=crop,
        interpolation=RESAMPLING.get(int(told.get("resample") or 2), "bicubic"),
        mean=three(0.0 if plain else told.get("image_mean") or IMAGENET[0]),
        std=three(1.0 if plain else told.get("image_std") or IMAGENET[1]),
        source="its image processor",
    )


def _side(size: Any) -> int | None:
    """224 of 224, {"shortest_edge": 224} or {"height": 224, "width": 224}."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    return int(size) if isinstance(size, int | float) and size > 0 else None


def from_open_clip(name: str, asked: Asked) -> Network:
    """The image tower of open_clip: ``ViT-B-32@laion2b_s34b_b79k``, ``hf-hub:ORG/NAME``.

    Args:
        name: what stands behind ``openclip:``, also ``local-dir:PATH``.
        asked: weights by open_clip's tags, or ``none``; size; features (pooled alone: the image's
            embedding, as for zero-shot classification).

    Raises:
        ValueError: it cannot be had or built.
    """
    needs("clip", "open_clip")
    import open_clip

    placed = name.startswith(("hf-hub:", "local-dir:"))
    if not placed and asked.weights is None:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
        raise ValueError(f"openclip:{name} needs its weights named, openclip:{name}@…: {tags}")
    options: dict[str, Any] = {"load_weights": False} if placed and asked.random else {}
    if not placed and not asked.random:
        options["pretrained"] = asked.weights
    if asked.size:
        options["force_image_size"] = asked.size
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = open_clip.create_model(name, **options)
    except Exception as error:  # unknown names, no connection, damaged files
        raise ValueError(f"cannot build 'openclip:{name}': {one_line(error)}") from error
    told = open_clip.get_model_preprocess_cfg(module)
    size = _side(told["size"][0] if isinstance(told["size"], tuple | list) else told["size"])
    how = by_record(told, size=size or asked.data_size, crop=1.0, source="open_clip's record")
    backbone, features = taken(
        module, f"openclip:{name}", asked.features, {"pooled": _encode}, "pooled"
    )
    return Network(
        name=f"openclip:{name}",
        backbone=backbone,
        preprocess=how,
        features=features,
        random=asked.random,
    )


def _encode(module: Any, images: Tensor) -> Tensor:
    found: Tensor = module.encode_image(images)
    return found
