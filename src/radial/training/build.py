"""From a config to what is trained: data, backbone, heads, method, views."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from radial.backbones import BackboneInfo, build_backbone
from radial.data import Data, load_data
from radial.data.augmentations import View, recipe
from radial.data.views import augment
from radial.methods import METHODS, Method
from radial.rbf.calibration import calibrate
from radial.rbf.heads import build_head
from radial.rbf.health import HealthReport, diagnose
from radial.training.config import RunConfig, resolve
from radial.training.module import generator, key


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All that a run needs, built and checked before anything is written."""

    config: RunConfig  # resolved
    data: Data
    views: tuple[View, ...]
    backbone: BackboneInfo
    method: Method
    health: HealthReport  # of the projection head, before the first step
    notes: tuple[str, ...] = ()  # what was odd about the data


def build(
    config: RunConfig,
    *,
    stem: str | None = None,
    device: torch.device | str = "cpu",
    data: Data | None = None,
) -> Parts:
    """Build a run. ``stem`` is that of its checkpoint, which then overwrites all weights."""
    fresh = stem is None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        data = data or data_of(config)
    if config.knn:
        data.require_labels()
    backbone, info = starting_backbone(config, data, stem)
    config = config.with_defaults({"backbone": default_backbone(data)})
    config = resolve(
        config, images=len(data.train), image_size=data.image_size, features=info.feature_dim
    )
    check_batch(config, data)
    projection, prediction = build_heads(config, info.feature_dim)
    views = build_views(config, data.image_size)
    check_sizes(backbone, info.name, views)
    backbone.to(device)
    projection.to(device)
    batches = list(features(backbone, data, views, config, device))
    calibrated = config.calibrate and config.head in ("rbfn", "rbfn-normalized")
    if calibrated and fresh:
        calibrate(projection, batches, seed=config.seed)
    health = diagnose(projection, batches)
    if prediction is not None:
        prediction.to(device)
        if calibrated and fresh:
            with torch.no_grad():
                embeddings = [copy.deepcopy(projection)(batch) for batch in batches]
            calibrate(prediction, embeddings, seed=config.seed)
    heads = [projection] if prediction is None else [projection, prediction]
    torch.manual_seed(key(config.seed, "method"))
    method = METHODS[config.method](backbone, *heads, **method_options(config))
    return Parts(
        config=config,
        data=data,
        views=views,
        backbone=info,
        method=method,
        health=health,
        notes=tuple(str(warning.message) for warning in told),
    )


def data_of(config: RunConfig) -> Data:
    return load_data(
        config.data,
        root=config.data_root,
        image_size=config.image_size,
        split=config.split,
        max_bad=config.max_bad_images,
    )


def starting_backbone(
    config: RunConfig, data: Data, stem: str | None = None
) -> tuple[nn.Module, BackboneInfo]:
    """The backbone before the first step, the same for every method and head of a seed."""
    torch.manual_seed(key(config.seed, "weights"))
    return build_backbone(
        config.backbone or default_backbone(data),
        image_size=data.image_size,
        weights=config.weights if stem is None else None,
        stem=stem,
    )


def default_backbone(data: Data) -> str:
    """Small enough for a laptop where the images are: digits need no ResNet-18."""
    return "resnet9-w0.25" if data.name == "digits" else "resnet18"


def check_batch(config: RunConfig, data: Data) -> None:
    batch, images, world = config.batch_size, len(data.train), config.devices * config.num_nodes
    assert batch is not None
    if images < batch:
        raise ValueError(f"{data.name} has {images} training images, fewer than a batch of {batch}")
    if batch % world or batch // world < 2:
        raise ValueError(f"a batch of {batch} cannot be divided among {world} devices")
    if config.method == "swav" and config.queue_size and config.queue_size % world:
        raise ValueError(f"a queue of {config.queue_size} cannot be divided among {world} devices")
    if config.method == "moco" and config.queue_size and config.queue_size < batch:
        raise ValueError(f"queue_size must be at least the batch, {batch}, not {config.queue_size}")


@torch.no_grad()
def check_sizes(backbone: nn.Module, name: str, views: tuple[View, ...]) -> None:
    """Small crops of multi-crop must fit the backbone too: a ViT takes one size only."""
    backbone.eval()
    for size in {view.size for view in views}:
        try:
            backbone(torch.zeros(1, 3, size, size))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise ValueError(f"{name} does not take crops of {size} px") from error
    backbone.train()


def build_heads(config: RunConfig, features: int) -> tuple[nn.Module, nn.Module | None]:
    """Projection head, and the prediction head of the methods that have one."""
    hidden, output = config.hidden_dim, config.output_dim
    assert hidden is not None
    assert output is not None
    options: dict[str, Any] = {}
    if config.head.startswith("rbfn"):
        options = {
            "num_kernels": config.num_kernels,
            "radial_function": config.radial_function,
            "distance": config.distance,
            "residual": config.residual,
            "batch_norm": config.head_batch_norm,
            "normalize": config.normalize,
        }
        if config.head == "rbfn-paper" and config.normalize:
            options["normalize"] = "published"
        options = {name: value for name, value in options.items() if value is not None}
    projection = build_head(
        config.head,
        config.method,
        features,
        hidden,
        output,
        config.num_layers,
        published=config.published_head,
        **options,
    )
    if not METHODS[config.method].predicts:
        return projection, None
    width = max(1, output // 4) if config.method == "simsiam" else hidden
    prediction = build_head(
        config.head, config.method, output, width, output, kind="prediction", **options
    )
    return projection, prediction


def build_views(config: RunConfig, size: int) -> tuple[View, ...]:
    views = recipe(config.method, size)
    strength, least = config.color_strength, config.min_scale
    jitter = ("brightness", "contrast", "saturation")
    stronger = [
        replace(
            view,
            **{name: strength * getattr(view, name) for name in jitter},
            hue=min(0.5, strength * view.hue),
        )
        for view in views
    ]
    if least is None:
        return tuple(stronger)
    return tuple(  # small crops of multi-crop keep their scale
        replace(view, scale=(least, 1.0)) if view.scale[1] == 1.0 else view for view in stronger
    )


def method_options(config: RunConfig) -> dict[str, Any]:
    """What of the config the method's constructor takes."""
    names = ("temperature", "momentum", "queue_size", "prototypes")
    chosen = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    if config.method == "swav":
        chosen["frozen"] = min(0.1, 1.0 / config.epochs)  # the first epoch; a tenth of short runs
    return chosen


@torch.no_grad()
def features(
    backbone: nn.Module,
    data: Data,
    views: tuple[View, ...],
    config: RunConfig,
    device: torch.device | str,
) -> Iterator[Tensor]:
    """Of augmented training images, as the head will see them: with BatchNorm on batches.

    The images are the first of a shuffled order that depends on the seed alone, so that
    every rank computes the same; the backbone is not changed.
    """
    images = max(1024, 4 * config.num_kernels)
    order = torch.randperm(len(data.train), generator=generator(config.seed, "calibration"))
    backbone = copy.deepcopy(backbone).train()
    for number, rows in enumerate(torch.split(order[:images], 256)):
        if len(rows) < 2:
            return
        batch = data.train.__getitems__(rows.tolist()).to(device)
        random = generator(config.seed, "calibration", number)
        (view,) = augment(batch, views[:1], random, mean=data.mean, std=data.std)
        yield backbone(view).float()
