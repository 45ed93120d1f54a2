"""From a config to what is trained: data, backbone, heads, method, views; loggers.

What a run does when is a function of (seed, epoch, step) and nothing else. So a checkpoint holds no
random state, and a resumed run is the run that was never interrupted.

Loads no Lightning: `radial score` builds heads here.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.data import Sampler

import radial
from radial.backbones import BackboneInfo, build_backbone, channels_last
from radial.data import Data, load_data
from radial.data.augmentations import View, recipe
from radial.data.views import augment
from radial.methods import METHODS, Method
from radial.metrics.compute import kernel_scores
from radial.rbf.calibration import calibrate
from radial.rbf.heads import RBFN_ARMS, build_head
from radial.rbf.health import HealthReport, diagnose
from radial.rbf.kernels import load_kernels
from radial.rbf.layer import RBFLayer, deepest_rbf_layer
from radial.training.config import RunConfig, resolve


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All that a run needs, built and checked before anything is written."""

    config: RunConfig  # resolved
    data: Data
    views: tuple[View, ...]
    backbone: BackboneInfo
    method: Method
    health: HealthReport  # of the projection head, before the first step

    def facts(self) -> dict[str, Any]:
        """What goes into each checkpoint beside the config: enough to export and to judge."""
        layer = deepest_rbf_layer(self.method.projection_head)
        kernels = {}  # what kernels are worth is what they moved
        if layer is not None and layer.num_kernels >= 2:
            kernels = kernel_scores(load_kernels(layer.state_dict())[-1])
        return {
            "version": radial.__version__,
            "image_size": self.backbone.image_size,
            "feature_dim": self.backbone.feature_dim,
            "stem": self.backbone.stem,
            "mean": self.data.mean.tolist(),
            "std": self.data.std.tolist(),
            "head_status": self.health.status,
            "head_health": self.health.verdict,
            "kernels_at_start": kernels,
        }


def build(
    config: RunConfig,
    *,
    stem: str | None = None,
    device: torch.device | str = "cpu",
    data: Data | None = None,
) -> Parts:
    """Build a run. ``stem`` is that of its checkpoint, which then overwrites all weights."""
    fresh = stem is None
    data = data or data_of(config)
    if config.knn or METHODS[config.method].labelled:
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
    calibrated = config.calibrate and config.head in RBFN_ARMS
    if calibrated and fresh:
        _calibrate(projection, batches, config.seed)
    health = diagnose(projection, batches)
    if prediction is not None:
        prediction.to(device)
        if calibrated and fresh:
            with torch.no_grad():
                embeddings = [copy.deepcopy(projection)(batch) for batch in batches]
            _calibrate(prediction, embeddings, config.seed)
    heads = [projection] if prediction is None else [projection, prediction]
    torch.manual_seed(key(config.seed, "method"))
    method = METHODS[config.method](backbone, *heads, **method_options(config, data))
    channels_last(method)
    return Parts(config=config, data=data, views=views, backbone=info, method=method, health=health)


def _calibrate(head: nn.Module, batches: Sequence[Tensor], seed: int) -> None:
    """Kernels that are not to learn (rbfn-frozen) are set as well, and stay where they are set."""
    layers = [module for module in head.modules() if isinstance(module, RBFLayer)]
    kernels = [p for layer in layers for p in (layer.kernels_centers, layer.log_shapes)]
    fixed = [parameter for parameter in kernels if not parameter.requires_grad]
    for parameter in fixed:
        parameter.requires_grad_(True)
    calibrate(head, batches, seed=seed)
    for parameter in fixed:
        parameter.requires_grad_(False)


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
    if config.method in ("moco", "nnclr") and config.queue_size and config.queue_size < batch:
        raise ValueError(f"queue_size must be at least the batch, {batch}, not {config.queue_size}")
    labels = data.train.labels
    if METHODS[config.method].labelled and (labels is None or bool((labels < 0).any())):
        raise ValueError(f"{config.method} needs a label for every training image of {data.name}")


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
    if config.head == "residual-linear":
        options = {"num_kernels": config.num_kernels}
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


def method_options(config: RunConfig, data: Data) -> dict[str, Any]:
    """What of the config and the data the method's constructor takes."""
    names = RunConfig.GROUPS["method"].split()
    chosen = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    if config.method == "supervised":
        chosen["classes"] = len(data.classes)
    if config.method == "dino":
        chosen["radial"] = config.head in RBFN_ARMS
    if config.method in ("swav", "dino"):
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


def is_leader() -> bool:
    """Rank 0 of all; known from the environment before Lightning has set anything up."""
    from lightning_utilities.core.rank_zero import rank_zero_only  # scoring does without it

    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return int(getattr(rank_zero_only, "rank", 0) or 0) == 0 and int(node) == 0


def check_processes(config: RunConfig) -> None:
    """torchrun's processes must be the run's ranks, or each would train a run of its own."""
    world = config.devices * config.num_nodes
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1 and started != world:
        raise ValueError(f"started as {started} processes: give --devices and --num-nodes to match")


def build_loggers(config: RunConfig, directory: Path) -> Any:
    """Lightning's loggers, each imported only when asked for; False where there are none."""
    from pytorch_lightning import loggers

    name, directory = directory.name, directory.resolve()
    built: list[Any] = []
    options: dict[str, Any]
    for kind in config.loggers:
        try:
            if kind == "tensorboard":
                built.append(loggers.TensorBoardLogger(directory, name="tensorboard", version=""))
            elif kind == "mlflow":
                uri = mlflow_uri(directory.parent)
                built.append(loggers.MLFlowLogger("radial", run_name=name, tracking_uri=uri))
            else:
                run = hashlib.sha256(str(directory).encode()).hexdigest()[:16]  # on resume too
                options = {"id": run, "resume": "allow", "save_dir": directory}
                built.append(loggers.WandbLogger(project="radial", name=name, **options))
        except ModuleNotFoundError as error:
            hint = f"logger {kind} is not installed: pip install 'radial-ssl[loggers]', or {kind}"
            raise ValueError(hint) from error
    return built or False


def mlflow_uri(directory: Path) -> str:
    """A database beside the runs, by its absolute path: a relative one moves with the shell."""
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"


def key(*parts: object) -> int:
    """A seed that depends on all parts, well spread: key(seed, "views", epoch, step)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: object) -> Generator:
    return Generator().manual_seed(key(*parts))


class EpochBatches(Sampler[list[int]]):
    """This rank's part of each global batch; the order is that of (seed, epoch) alone.

    Each image is seen at most once an epoch; a last batch that is not full is left out.
    """

    def __init__(
        self, images: int, batch: int, *, seed: int, rank: int = 0, world: int = 1, shuffle: bool
    ) -> None:
        self.images, self.batch, self.seed, self.shuffle = images, batch, seed, shuffle
        self.part = slice(rank * batch // world, (rank + 1) * batch // world)
        self.epoch = 0
        self.sampler = self  # where Lightning looks for set_epoch, which it calls

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.images // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.images)
        if self.shuffle:
            order = torch.randperm(self.images, generator=generator(self.seed, "order", self.epoch))
        for step in range(len(self)):
            yield order[step * self.batch : (step + 1) * self.batch][self.part].tolist()


def learning_rate(step: int, *, warmup: float, total: int) -> float:
    """Factor on the peak rate: a linear warm-up, then half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1.0, total - warmup)))
