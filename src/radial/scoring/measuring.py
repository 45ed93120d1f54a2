"""The data that targets are measured on, and what a network makes of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from radial.data import Data, Images, load_data
from radial.evaluation.cache import default_cache
from radial.evaluation.features import Layers, extract_layers
from radial.scoring.settings import EvalSettings, Settings
from radial.scoring.targets import Network

Progress = Callable[[str, int, int], None]  # what, done, total


def load(settings: Settings | EvalSettings, image_size: int | None) -> Data:
    assert settings.data is not None
    return load_data(
        settings.data,
        root=settings.data_root,
        image_size=image_size,
        split=settings.split,
        max_bad=settings.max_bad_images,
    )


def network_layers(
    network: Network,
    head: nn.Module | None,
    data: Data,
    images: Images,
    settings: Settings | EvalSettings,
    what: str,
    progress: Progress | None,
    **view: Any,
) -> Layers:
    """The layers of a network, of images of ``data`` or, with ``view``, of their views."""
    mean, std = network.statistics or (data.mean, data.std)
    return extract_layers(
        network.backbone,
        head,
        images,
        mean=mean,
        std=std,
        image_size=data.image_size,
        batch=settings.batch,
        cache=default_cache() if settings.cache else None,
        progress=progress and (lambda done, total: progress(what, done, total)),
        **view,
    )
