"""From targets to report cards: scores, what is wrong with a target, and which of its scores should
not be read as they stand.

Legend: N images, n images with q views each, K kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from radial.data import Data, Images, load_data
from radial.data.augmentations import FIXED_VIEWS, View, recipe, scoring_view, view_words
from radial.evaluation.cache import default_cache
from radial.evaluation.features import Layers, NotFinite, extract_layers
from radial.metrics.registry import LEAST_IMAGES, RETRIEVAL_IMAGES, ROTATION_IMAGES, SCORES
from radial.metrics.scores import Score, Scores
from radial.metrics.spectra import rankme_centred
from radial.rbf.calibration import sequence
from radial.rbf.health import diagnose
from radial.rbf.kernels import Kernels, load_kernels
from radial.rbf.layer import RBFLayer
from radial.scoring.card import PACKAGES, Card
from radial.scoring.plots import figures_of
from radial.scoring.settings import EvalSettings, Settings
from radial.scoring.targets import Network, Target, before_training, build, find, own_view
from radial.training.rundir import versions
from radial.verdicts import (
    ALIVE,
    BORN_DEAD,
    BROKEN,
    COLLAPSED,
    DEAD,
    DEAD_BEYOND,
    DEAD_HEAD,
    DEAD_KERNELS,
    DIVERGED,
    NOT_MEASURED,
    OK,
    RANK,
    UNMOVED,
    UNTRAINED,
    no_room,
    on_a_line,
    same_direction,
)

Progress = Callable[[str, int, int], None]  # what, done, total
QUICK = 512  # kernels: intervals of more take longer than the second that is promised
RETRIEVAL = (
    "view_retrieval", "view_retrieval_plain", "view_retrieval_top1", "acr", "kernel_retrieval",
)  # fmt: skip
SATURATED_ADVICE = "nearly all views find their image; use --augment strong, or info_nce beside it"


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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a network made of images, of views of them, of turned ones, and before training."""

    plain: Layers
    views: Layers
    turned: Layers | None = None
    start: Layers | None = None


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

    def view(self, target: Target, size: int) -> View:
        """How views of an image are drawn for a target."""
        augment = self.settings.augment
        if augment == "own":
            return own_view(target, size)
        return scoring_view(augment, size) if augment in FIXED_VIEWS else recipe(augment, size)[0]

    def measure(
        self, target: Target, network: Network, data: Data, needs: Collection[str]
    ) -> Measured:
        """What a network makes of the images, and of the views and turns of some of them."""
        settings, (images, viewed) = self.settings, self.images(data)

        def extracted(what: str, chosen: Images, of: Network = network, **how: Any) -> Layers:
            head, named = of.projection_head, f"{target.name}: {what}"
            return network_layers(of, head, data, chosen, settings, named, self.progress, **how)

        view = self.view(target, data.image_size)
        drawn: dict[str, Any] = {"view": view, "q": settings.views, "seed": settings.seed}
        found: dict[str, Layers] = {}
        if "rotations" in needs:
            few = viewed.subset(range(min(ROTATION_IMAGES, len(viewed))))
            found["turned"] = extracted("turned images", few, turned=True)
        before = before_training(target, data) if "start_views" in needs else None
        if before is not None:
            few = viewed.subset(range(min(RETRIEVAL_IMAGES, len(viewed))))
            start = replace(network, backbone=before, projection_head=None)
            found["start"] = extracted("views at the start", few, start, **drawn)
        return Measured(
            plain=extracted("images", images), views=extracted("views", viewed, **drawn), **found
        )

    def with_gallery(self, scores: Sequence[Score], target: Target, data: Data) -> list[Score]:
        """Scores of views with the gallery that they are of; those of other ones do not compare."""

        def gallery(score: Score) -> str:
            if not SCORES[score.name].from_views:
                return ""
            words = self.gallery(target, data, score.samples)
            if self.settings.augment == "own" and score.name == "lidar":
                return words.partition(":")[0]  # own views are how its paper compares runs
            return words

        return [replace(score, gallery=gallery(score)) for score in scores]

    def gallery(self, target: Target, data: Data, images: int) -> str:
        """How many views of how many images there are, and how they are drawn."""
        words = view_words(self.view(target, data.image_size))
        return f"{images} images × {self.settings.views} views, {self.settings.augment}: {words}"

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
    needs = {SCORES[name].needs for name, _ in scores.wanted}
    try:
        found = bench.measure(target, network, data, needs)
    except NotFinite as error:
        if kernels is not None:
            scores.update("kernels", kernels=kernels)
        told = annotated(scores.compute(), target, BROKEN)
        facts = _file_facts(target) | bench.facts(data)
        return _card(target, network.name, BROKEN, str(error), scores=told, data=facts)
    plain, views = found.plain, found.views
    if layer is None and settings.fit_head:
        layer, plain, views, kernels, note = _fitted(plain, views, settings)
        notes.append(note)
    if found.start is not None:
        scores.update("backbone", start_views=found.start.backbone)
    for name in ("backbone", "projector"):
        turned = None if found.turned is None else getattr(found.turned, name)
        scores.update(
            name, features=getattr(plain, name), views=getattr(views, name), rotations=turned
        )
    scores.update("kernels", kernels=kernels)
    if layer is not None and views.kernel_input is not None:
        nearest, activations, distances = layer.answers(views.kernel_input)
        scores.update("kernels", nearest=nearest, activations=activations, distances=distances)
    status, reason = verdict_on(target, network, plain)
    computed = bench.with_gallery(scores.compute(), target, data)
    return _card(
        target,
        network.name,
        status,
        reason,
        scores=annotated(computed, target, status),
        warnings=tuple(notes),
        data=_file_facts(target)
        | bench.facts(data)
        | {"gallery": bench.gallery(target, data, len(views.backbone))}
        | _layer_facts(kernels),
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


def verdict_on(target: Target, network: Network, plain: Layers) -> tuple[str, str]:
    """Status and reason: what the images show, then what the training said, then the weights."""
    if network.projection_head is not None:
        report = diagnose(network.projection_head, plain.backbone)
        born = target.facts.get("head_status", "unknown")
        if report.status == BROKEN:
            return BROKEN, report.verdict
        silent = same_direction(math.sqrt(report.relative_variance)) or report.effective_rank < RANK
        if report.status in BORN_DEAD and silent:
            if born == ALIVE:  # it fell during training: calibrating would not help
                return COLLAPSED, f"alive at the start, now {report.verdict.split(';')[0]}"
            return DEAD_HEAD, report.verdict.removeprefix("dead: ")
        if report.status == DEAD and born not in BORN_DEAD:  # a residual path carries the rest
            return DEAD_KERNELS, report.verdict.removeprefix("dead: ").split(";")[0]
    layers = [("backbone", plain.backbone), ("projector", plain.projector)]
    for name, features in layers:
        if features is None:
            continue
        unit = F.normalize(features.double(), dim=1)
        variance = 1.0 - float(unit.mean(0).square().sum())
        if same_direction(math.sqrt(max(0.0, variance))):
            return COLLAPSED, f"all {name} outputs point the same way (variance {variance:.1g})"
        rank = rankme_centred(features)
        if on_a_line(rank, min(len(features) - 1, features.shape[1])):
            return COLLAPSED, f"{name} outputs have effective rank {rank:.2f}"
    if target.verdict not in ("", OK):
        return said_by_training(target)
    if network.random or untrained(network.backbone):
        return UNTRAINED, "random weights"
    return OK, ""


def untrained(backbone: nn.Module) -> bool:
    """Whether BatchNorm's statistics are those of its making; without it nothing can be told."""
    means = [
        module.running_mean
        for module in backbone.modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    return bool(means) and not any(bool(mean.any()) for mean in means)


def said_by_training(target: Target) -> tuple[str, str]:
    """Status and reason where the run's own guards found something."""
    if target.verdict and target.verdict != OK:
        status = BROKEN if target.verdict == DIVERGED else target.verdict
        return status, f"during training: {target.reason}"
    if not target.verdict and target.facts.get("head_status") in BORN_DEAD:
        return DEAD_HEAD, f"before the first step: {target.facts['head_health']}"
    return "", ""


def far_apart(target: Target) -> str:
    """A reason, where kernels of a Gaussian head can reach neither each other nor the images."""
    config = target.facts.get("config", {})
    if config.get("radial_function", "gaussian") != "gaussian" or config.get("normalize"):
        return ""
    assert target.kernels is not None
    centers = target.kernels.centers[:512].double()
    power = 1.0 if config.get("distance") == "manhattan" else 2.0
    apart = torch.pdist(centers, power).median() if len(centers) > 1 else torch.zeros(())
    scaled = float(apart * target.kernels.shapes.double().median())
    if scaled < DEAD_BEYOND:
        return ""
    kind = "a Gaussian kernel gives" if config else "if the kernels are Gaussian, they give"
    return f"ε‖c_i−c_j‖ ≈ {scaled:.3g}: {kind} exactly 0 there"


def annotated(scores: Sequence[Score], target: Target, status: str) -> tuple[Score, ...]:
    """Kernel scores with their value at the start, and with what speaks against them."""
    starts = target.facts.get("kernels_at_start") or {}
    found = []
    for one in scores:
        start = starts.get(one.name)
        if one.layer == "kernels" and status == DEAD_HEAD:
            one = warn(one, "the head is dead: this is the value of its initialisation")
        elif one.layer == "kernels" and start is not None:
            one = replace(one, start=start)
            if abs(one.value - start) <= UNMOVED * max(abs(start), 1e-12):
                one = warn(one, "the same as before the first step")
        found_again = 1.0 - one.value if one.name == "acr" else one.value
        if one.name in RETRIEVAL and no_room(found_again):
            one = warn(one, f"no room left ({found_again:.3f}): {SATURATED_ADVICE}")
        if one.name == "sns_paper" and one.value < 1e-12 and status != DEAD_HEAD:
            one = warn(one, "underflows on a head that is alive: use sns_width")
        found.append(one)
    return tuple(found)


def across(cards: list[Card]) -> list[Card]:
    """Warn where a score does not compare the targets of one table."""
    methods = sorted({card.method or "unknown" for card in cards})
    if len(cards) < 2 or (len(methods) == 1 and methods != ["unknown"]):
        return cards
    line = f"compares runs of one method only; here: {', '.join(methods)}"
    return [
        replace(
            card,
            scores=tuple(
                warn(score, line) if score.name.startswith("rankme") else score
                for score in card.scores
            ),
        )
        for card in cards
    ]


def warn(score: Score, line: str) -> Score:
    return replace(score, warning="; ".join(filter(None, [score.warning, line])))
