"""From targets to report cards.

Legend: N images, n images with q views each, K kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from radial.data import Data, Images, load_data
from radial.data.augmentations import recipe
from radial.evaluation.cache import default_cache
from radial.evaluation.features import Layers, NotFinite, extract_layers
from radial.metrics.registry import LEAST_IMAGES
from radial.metrics.scores import Scores
from radial.rbf.calibration import sequence
from radial.rbf.kernels import Kernels, load_kernels
from radial.rbf.layer import RBFLayer
from radial.scoring.card import PACKAGES, Card
from radial.scoring.plots import figures_of
from radial.scoring.settings import EvalSettings, Settings
from radial.scoring.targets import Network, Target, build, find
from radial.scoring.verdict import across, annotated, far_apart, said_by_training, verdict_on
from radial.training.rundir import versions
from radial.verdicts import BROKEN, DEAD_HEAD, NOT_MEASURED

Progress = Callable[[str, int, int], None]  # what, done, total
QUICK = 512  # kernels: intervals of more take longer than the second that is promised


def score(
    targets: Sequence[str | Path],
    settings: Settings | None = None,
    *,
    figures: bool = False,
    progress: Progress | None = None,
    data: Data | None = None,
) -> list[Card]:
    """A card for each target, in the order given; ``data`` where it is loaded already."""
    settings = settings or Settings()
    Scores(settings.scores, repeats=settings.repeats, seed=settings.seed)  # checks the names
    found = [find(str(target)) for target in targets]
    if settings.data is None:
        return [_from_kernels(target, settings) for target in found]
    bench = Bench(settings, progress, data)
    return across([_from_images(target, settings, bench, figures) for target in found])


def _from_kernels(target: Target, settings: Settings) -> Card:
    status, reason = said_by_training(target)
    if target.kernels is None and status == BROKEN:
        return _card(target, "not read", status, reason, scores=())
    if target.kernels is None:
        raise ValueError(f"{target.name} has no RBF kernels: without --data nothing can be scored")
    if not status and (reason := far_apart(target)):
        status = DEAD_HEAD
    repeats = settings.repeats if len(target.kernels.centers) <= QUICK else 0
    scores = Scores(settings.scores, repeats=repeats, seed=settings.seed)
    scores.update("kernels", kernels=target.kernels)
    found = scores.compute()
    if not found:
        raise ValueError(
            f"{', '.join(settings.scores or ())} cannot be read without images: give --data"
        )
    return _card(
        target,
        str(target.facts["config"]["backbone"]) if target.facts else "not read",
        status or NOT_MEASURED,
        reason or "no images: give --data for the full card",
        scores=annotated(found, target, status),
        data=_file_facts(target) | _layer_facts(target.kernels),
    )


def _card(target: Target, backbone: str, status: str, reason: str, **more: Any) -> Card:
    return Card(
        target=target.name,
        kind=target.kind,
        directory=target.directory,
        backbone=backbone,
        method=target.method,
        head=target.head,
        status=status,
        reason=reason,
        versions=versions(PACKAGES),
        **more,
    )


def _file_facts(target: Target) -> dict[str, Any]:
    return {} if target.checkpoint is None else {"checkpoint": target.checkpoint}


def _layer_facts(kernels: Kernels | None) -> dict[str, Any]:
    if kernels is None:
        return {}
    count, width = kernels.centers.shape
    return {"layer": kernels.name, "kernels": count, "dimensions": width}


def load_images(settings: Settings | EvalSettings, image_size: int | None) -> Data:
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


class Bench:
    """The images and views that all targets of one table are measured on."""

    def __init__(
        self, settings: Settings, progress: Progress | None, data: Data | None = None
    ) -> None:
        self.settings, self.progress = settings, progress
        self._data: dict[int | None, Data] = {} if data is None else {data.image_size: data}

    def data(self, size: int | None) -> Data:
        """At the size a target was trained at; loaded once."""
        if size not in self._data:
            self._data[size] = load_images(self.settings, size)
        return self._data[size]

    def images(self, data: Data) -> tuple[Images, Images]:
        """N images and the first n of them, the same for every target."""
        settings, pool = self.settings, getattr(data, self.settings.part)
        if len(pool) < LEAST_IMAGES:
            found = f"{len(pool)} images in its {settings.part} part"
            raise ValueError(f"{data.name} has {found}; {LEAST_IMAGES} are needed")
        order = torch.randperm(len(pool), generator=Generator().manual_seed(settings.seed))
        return pool.subset(order[: settings.images]), pool.subset(order[: settings.view_images])

    def measure(self, target: Target, network: Network, data: Data) -> tuple[Layers, Layers]:
        """What a network makes of the images, and of the views of some of them."""
        settings, (images, viewed) = self.settings, self.images(data)

        def extracted(what: str, chosen: Images, **view: Any) -> Layers:
            head, named = network.projection_head, f"{target.name}: {what}"
            return network_layers(
                network, head, data, chosen, settings, named, self.progress, **view
            )

        view = recipe(settings.augment, data.image_size)[0]
        return (
            extracted("images", images),
            extracted("views", viewed, view=view, q=settings.views, seed=settings.seed),
        )

    def facts(self, data: Data) -> dict[str, Any]:
        images, viewed = self.images(data)
        names = ("part", "views", "augment", "repeats", "seed")
        return {
            "data": data.name,
            "split": data.split,
            "image_size": data.image_size,
            "images": len(images),
            "view_images": len(viewed),
            **{name: getattr(self.settings, name) for name in names},
        }


def _from_images(target: Target, settings: Settings, bench: Bench, figures: bool) -> Card:
    data = bench.data(settings.image_size or target.image_size)
    network = build(
        target,
        image_size=data.image_size,
        backbone=settings.backbone,
        radial_function=settings.radial_function,
        normalize=settings.normalize,
    )
    notes, layer, kernels = list(network.notes), network.rbf_layer, target.kernels
    scores = Scores(settings.scores, repeats=settings.repeats, seed=settings.seed)
    try:
        plain, views = bench.measure(target, network, data)
    except NotFinite as error:
        if kernels is not None:
            scores.update("kernels", kernels=kernels)
        found = annotated(scores.compute(), target, BROKEN)
        facts = _file_facts(target) | bench.facts(data)
        return _card(target, network.name, BROKEN, str(error), scores=found, data=facts)
    if layer is None and settings.fit_head:
        layer, plain, views, kernels, note = _fitted(plain, views, settings)
        notes.append(note)
    scores.update("backbone", features=plain.backbone, views=views.backbone)
    scores.update("projector", features=plain.projector, views=views.projector)
    scores.update("kernels", kernels=kernels)
    if layer is not None and views.kernel_input is not None:
        nearest, activations, distances = layer.answers(views.kernel_input)
        scores.update("kernels", nearest=nearest, activations=activations, distances=distances)
    status, reason = verdict_on(target, network, plain)
    return _card(
        target,
        network.name,
        status,
        reason,
        scores=annotated(scores.compute(), target, status),
        warnings=tuple(notes),
        data=_file_facts(target) | bench.facts(data) | _layer_facts(kernels),
        figures=figures_of(plain, layer, bench.images(data)[0]) if figures else None,
    )


def _fitted(
    plain: Layers, views: Layers, settings: Settings
) -> tuple[RBFLayer, Layers, Layers, Kernels, str]:
    """An RBFN head fitted to frozen features, and what its deepest layer then sees."""
    from radial.evaluation.fit_head import fit_head  # brings LightlySSL: seconds

    kernels = min(128, len(views.backbone) // 2)
    fitted = fit_head(views.backbone, num_kernels=kernels, seed=settings.seed)
    layer, plain_input = before_kernels(fitted.head, plain.backbone)
    _, views_input = before_kernels(fitted.head, views.backbone)
    steps, loss = fitted.steps, fitted.losses[-1]
    note = f"kernels fitted to frozen features after training ({steps} steps, loss {loss:.3f})"
    return (
        layer,
        replace(plain, kernel_input=plain_input),
        replace(views, kernel_input=views_input),
        replace(load_kernels(layer.state_dict())[-1], name="fitted"),
        f"{note}: {fitted.verdict}",
    )


@torch.no_grad()
def before_kernels(head: nn.Module, features: Tensor) -> tuple[RBFLayer, Tensor]:
    """The deepest RBF layer of a head and its input for features (…, F)."""
    stages = sequence(head)
    last = max(i for i, stage in enumerate(stages) if isinstance(stage, RBFLayer))
    layer = stages[last]
    assert isinstance(layer, RBFLayer)
    x = features.flatten(0, -2)
    for stage in stages[:last]:
        x = stage(x)
    return layer, x.view(*features.shape[:-1], -1)
