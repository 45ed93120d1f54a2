"""From targets to report cards: what the kernels alone tell, and what images tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import one_line
from radial.devices import device_of
from radial.evaluation.features import Layers, NotFinite
from radial.metrics.registry import LEAST_IMAGES, SCORES, ranking
from radial.metrics.scores import Scores
from radial.rbf.calibration import sequence
from radial.rbf.kernels import Kernels, load_kernels
from radial.rbf.layer import RBFLayer
from radial.scoring.bench import Bench, Progress, asked
from radial.scoring.card import PACKAGES, Card
from radial.scoring.figures import figures_of
from radial.scoring.models import targets_of
from radial.scoring.result import Result
from radial.scoring.settings import Settings
from radial.scoring.status import (
    across,
    annotated,
    collapsed,
    far_apart,
    said_by_training,
    verdict_on,
    with_labels,
)
from radial.scoring.targets import Target, build
from radial.training.rundir import versions
from radial.verdicts import BROKEN, COLLAPSED, DEAD_HEAD, NOT_MEASURED, OK

QUICK = 512  # kernels: intervals of more take longer than the second that is promised


def score(
    models: Any,
    images: Any = None,
    *,
    settings: Settings | None = None,
    by: str | None = None,
    figures: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Which of these is best, without labels? All are measured on the same images and views.

    Args:
        models: a path or name as on the command line, a module or function of a batch that gives
            (B, F) features, a pair (model, its transform of a PIL image), or a list or dict of
            these. A module sees images as its library records; else give the transform.
        images: a folder, a dataset by name (``digits``, ``folder:photos``), paths or a pattern of
            them, a uint8 tensor (N, 3, H, W), a torch or Hugging Face dataset whose items are PIL
            images or pixels (labels are not looked at). None for what kernels alone can tell.
        settings: as the command has them, in one object.
        by: the score to rank by, by default the first of those that the findings declare.
        figures: compute what the page draws beside the table.
        progress: called with what, done, total.
        options: any field of :class:`~radial.scoring.settings.Settings` by name; its ``images``,
            how many at most, is ``max_images`` here, and ``scores`` are by default those that may
            rank, with that of ``by`` (``"all"`` for every one).

    Returns:
        Cards in the order given, with the leaderboard: ``best``, ``to_pandas()``, ``to_html()``.

    Raises:
        ValueError: what was given cannot be read, or images were given twice.

    Example:
        >>> import torch
        >>> pixels = torch.randint(256, (32, 3, 8, 8), dtype=torch.uint8)
        >>> flat = lambda batch: batch.flatten(1)
        >>> result = score({"pixels": flat}, pixels, scores=("rankme",), repeats=0)
        >>> result["pixels"].status
        'ok'
    """
    usual = settings is None and not isinstance(images, Settings) and "scores" not in options
    if options.get("scores") == "all":
        options["scores"] = None
    settings, source = asked(Settings, images, settings, options)
    if usual and source is not None:
        settings = replace(settings, scores=ranking(by))
    Scores(settings.scores, repeats=settings.repeats, seed=settings.seed)  # checks the names
    found = targets_of(models)
    if source is None:
        return Result(_each(found, lambda target: _from_kernels(target, settings)), by)
    bench = Bench(
        settings,
        progress,
        source,
        sizes=[target.image_size for target in found],
        trained_on=[target.trained_on for target in found],
    )
    cards = _each(found, lambda target: _from_images(target, settings, bench, figures))
    return Result(across(cards), by)


def _each(targets: Sequence[Target], card: Callable[[Target], Card]) -> list[Card]:
    """A card for each target: of several, one that cannot be built costs a line, not the table."""
    cards, errors = [], []
    for target in targets:
        try:
            if target.error:
                raise ValueError(target.error)
            cards.append(card(target))
        except ValueError as error:
            errors.append(error)
            cards.append(_card(target, "not built", BROKEN, one_line(error), scores=()))
    if errors and len(errors) == len(targets):
        raise errors[0]
    return cards


def _from_embeddings(target: Target, settings: Settings) -> Card:
    """What embeddings tell that others computed: of (N, D) the spectra, of (n, q, D) views, too."""
    features, views = target.features, target.views
    notes: tuple[str, ...] = ()
    if features is None:
        assert views is not None
        features = views[:, 0]
        notes = ("no embeddings of plain images: the first view of each stands for them",)
    elif views is None:
        notes = ("view scores need embeddings of views, (n, q, D)",)
    if len(features) < LEAST_IMAGES:
        found = f"{len(features)} embeddings"
        raise ValueError(f"{target.name} has {found}; {LEAST_IMAGES} are needed")
    scores = Scores(settings.scores, repeats=settings.repeats, seed=settings.seed)
    scores.update("backbone", features=features, views=views)
    gallery = "" if views is None else f"{len(views)} images × {views.shape[1]} views, its own"
    told = [
        replace(one, gallery=gallery if SCORES[one.name].from_views else "")
        for one in scores.compute()
    ]
    fallen = collapsed(Layers(backbone=features))
    return _card(
        target,
        "embeddings",
        COLLAPSED if fallen else OK,
        fallen,
        scores=tuple(told),
        warnings=notes,
        data=_file_facts(target) | {"images": len(features), "dimensions": features.shape[1]},
    )


def _from_kernels(target: Target, settings: Settings) -> Card:
    if target.kind == "embeddings":
        return _from_embeddings(target, settings)
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
        run=json.dumps(target.facts["config"], sort_keys=True) if target.facts else None,
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


def _from_images(target: Target, settings: Settings, bench: Bench, figures: bool) -> Card:
    if target.kind == "embeddings":
        return _from_embeddings(target, settings)
    data = bench.data
    network = build(
        target,
        image_size=settings.image_size,
        data_size=data.image_size,
        backbone=settings.backbone,
        features=settings.features,
        copy=settings.copy,
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
        try:
            layer, plain, views, kernels, note = _fitted(plain, views, settings)
        except ValueError as error:  # features that are constant, or too few images
            note = f"no kernels were fitted: {error}"
        notes.append(note)
    if found.start is not None:
        scores.update("backbone", start_views=found.start.backbone)
    for name in ("backbone", "projector"):
        seen = {"features": plain, "views": views, "recipes": found.recipes}
        seen["rotations"] = found.turned
        scores.update(name, **{key: getattr(value, name, None) for key, value in seen.items()})
    scores.update("kernels", kernels=kernels)
    if layer is not None and views.kernel_input is not None:
        nearest, activations, distances = layer.answers(views.kernel_input)
        scores.update("kernels", nearest=nearest, activations=activations, distances=distances)
    status, reason = verdict_on(target, network, plain)
    fitted = kernels is not None and kernels is not target.kernels
    computed = bench.with_gallery(scores.compute(), target, data, fitted=fitted)
    return _card(
        target,
        network.name,
        status,
        reason,
        scores=annotated(computed, target, status),
        warnings=tuple(notes),
        supervised=with_labels(target, network),
        data=_file_facts(target)
        | bench.facts(data)
        | {"gallery": bench.gallery(target, data, len(views.backbone))}
        | {"sees": network.preprocess.words, "features": network.features}
        | _layer_facts(kernels),
        figures=figures_of(plain, layer, bench.images(data)[0]) if figures else None,
    )


def _fitted(
    plain: Layers, views: Layers, settings: Settings
) -> tuple[RBFLayer, Layers, Layers, Kernels, str]:
    """An RBFN head fitted to frozen features, and what its deepest layer then sees."""
    from radial.evaluation.fit_head import fit_head  # brings LightlySSL: seconds

    kernels = min(128, len(views.backbone) // 2)
    fitted = fit_head(
        views.backbone, num_kernels=kernels, seed=settings.seed, device=device_of(settings.device)
    )
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
