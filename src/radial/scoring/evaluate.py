"""What labels say of a target: `radial eval`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from markupsafe import Markup
from rich.console import Console
from torch import Tensor

from radial.data import Data
from radial.data.given import named
from radial.evaluation.classification import knn
from radial.evaluation.probe import few_label_probe, probe
from radial.presentation import terminal_table
from radial.scoring.bench import Progress, asked, load_images, network_layers
from radial.scoring.card import PACKAGES, short_names, widened
from radial.scoring.models import targets_of
from radial.scoring.result import written
from radial.scoring.settings import EvalSettings
from radial.scoring.targets import Network, Target, build
from radial.training.rundir import versions

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("train", "val", "test")
FEW = 0.01  # of the labels: the least that a label-free score must be worth
SHARES = (FEW, 0.1)  # for logistic regressions


def evaluate(
    models: Any,
    images: Any = None,
    labels: Any = None,
    *,
    settings: EvalSettings | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Any:
    """What labels say of models: logistic regression and neighbours on frozen backbone features.

    Args:
        models: as for :func:`radial.score`.
        images: labelled ones, as for :func:`radial.score`; datasets by name and folders with parts
            of their own keep them, others are divided 70/10/20, stratified.
        labels: one for each image, numbers or names, where the images have none of their own.
        settings: as the command has them, in one object.
        progress: called with what, done, total.
        options: any field of :class:`~radial.scoring.settings.EvalSettings`.

    Returns:
        An :class:`Evaluations`: plain values a model, as in eval.json; ``best``, ``to_pandas()``.

    Raises:
        ValueError: what was given cannot be read, or has no labels.

    Example:
        >>> import torch
        >>> pixels = torch.randint(256, (60, 3, 8, 8), dtype=torch.uint8)
        >>> found = evaluate({"pixels": lambda batch: batch.flatten(1)}, pixels, [0, 1, 2] * 20)
        >>> found.best["target"]
        'pixels'
    """
    old = isinstance(images, EvalSettings)
    settings, source = asked(EvalSettings, images, settings, options)
    if source is None:
        raise ValueError("there are no images to evaluate on: evaluate(models, images, labels)")
    if labels is not None and isinstance(source, str | Data) and named(source) == source:
        raise ValueError(f"{source} has labels of its own: labels= is for images without")
    found = [
        evaluate_target(target, source, settings, labels=labels, progress=progress)
        for target in targets_of(models)
    ]
    return found[0] if old else Evaluations(found)


def evaluate_target(
    target: Target,
    source: Any,
    settings: EvalSettings,
    *,
    labels: Any = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What labels say of one target.

    Args:
        target: what was found of it.
        source: images by name, loaded already, or handed over.
        settings: protocols and sizes.
        labels: of images that were handed over.
        progress: called with what, done and total.

    Returns:
        Accuracies with intervals, protocols, sizes, warnings and versions.

    Raises:
        ValueError: it cannot be built, or the images have no labels.
    """
    if target.error:
        raise ValueError(target.error)
    size = target.asked_size or settings.image_size or target.image_size
    data = load_images(source, settings, size, labels)
    network = build(
        target,
        image_size=settings.image_size,
        data_size=data.image_size,
        backbone=settings.backbone,
        features=settings.features,
        copy=settings.copy,
    )
    return {
        "target": target.name,
        "kind": target.kind,
        "checkpoint": target.checkpoint,
        "directory": None if target.directory is None else str(target.directory),
        "method": target.method,
        "head": target.head,
        **evaluate_network(network, data, settings, name=target.name, progress=progress),
    }


class Evaluations(Sequence[dict[str, Any]]):
    """The evaluations of one call, in the order in which the models were given."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self.results = tuple(results)

    @overload
    def __getitem__(self, index: int | str) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, index: int | str | slice) -> Any:
        """By place in the order given, or by the name of the model."""
        if isinstance(index, str):
            return next(result for result in self.results if result["target"] == index)
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    @property
    def best(self) -> dict[str, Any]:
        """That of the highest accuracy, by the first protocol."""
        return max(self.results, key=lambda result: _first(result)["accuracy"])

    def to_pandas(self) -> pd.DataFrame:
        """A row a model and protocol, best first: accuracy with its interval, and the rest."""
        import pandas as pd

        names = ("accuracy", "low", "high", "top5", "f1", "precision", "recall")
        rows = [
            {"target": result["target"], "backbone": result["backbone"], "protocol": protocol}
            | {name: found[name] for name in names}
            | {"knn": result["knn"]["accuracy"], "test_images": found["test_samples"]}
            for result in self.results
            for protocol, found in result["probes"].items()
        ]
        return pd.DataFrame(rows).sort_values("accuracy", ascending=False, ignore_index=True)

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text; written to ``path`` as well, where one is given."""
        text = json.dumps(self.results, indent=2, allow_nan=False, ensure_ascii=False)
        return written(text, path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page with the table; written to ``path`` as well, if one is given."""
        from radial.presentation import render

        template = Path(__file__).with_name("templates") / "evaluations.html"
        return written(render(template, table=Markup(self._repr_html_())), path)

    def show(self, console: Console | None = None) -> None:
        """Print the table."""
        print_evaluations(self.results, console or Console())

    def _repr_html_(self) -> str:
        table: str = self.to_pandas().to_html(index=False, float_format="{:.4f}".format, border=0)
        return table


def _first(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(result["probes"].values()))
    return found


def evaluate_network(
    network: Network,
    data: Data,
    settings: EvalSettings,
    *,
    name: str,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What labels say of a backbone as it stands."""
    data.require_labels()
    parts: list[Tensor] = []
    for part in PARTS:
        parts += _features(name, network, data, part, settings, progress)
    votes: dict[str, Any] = {"k": settings.k, "temperature": settings.temperature}
    few = few_labels(parts[1], FEW, seed=settings.seed)
    options: dict[str, Any] = {"classes": data.classes or None, "seed": settings.seed}
    return {
        "backbone": network.name,
        "data": {
            "data": data.name,
            "split": data.split,
            "image_size": data.image_size,
            **{f"{part}_images": len(getattr(data, part)) for part in PARTS},
            "train_labelled": int((parts[1] >= 0).sum()),
        },
        "probes": {
            protocol: probe(*parts, protocol=protocol, **options).to_dict()
            for protocol in settings.protocol
        },
        "knn": asdict(knn(*parts[:2], *parts[4:], **votes)),  # of train, on test
        "knn_few": {
            **asdict(knn(parts[0], few, *parts[2:4], **votes)),  # on val: test is what is predicted
            "share": FEW,
            "labels": int((few >= 0).sum()),
        },
        "logistic_few": [
            _few_logistic(*parts[:4], share=share, seed=settings.seed) for share in SHARES
        ],
        "warnings": list(network.notes),
        "versions": versions(PACKAGES),
    }


def _few_logistic(
    train: Tensor, labels: Tensor, val: Tensor, val_labels: Tensor, *, share: float, seed: int
) -> dict[str, Any]:
    """A logistic regression with a share of the labels; on val, as the kNN with few labels."""
    few = few_labels(labels, share, seed=seed)
    found = few_label_probe(train, few, val, val_labels, seed=seed)
    known = {"accuracy": found.accuracy, "low": found.low, "high": found.high}
    return {"share": share, "labels": found.train_samples, **known, "samples": found.test_samples}


def few_labels(labels: Tensor, share: float, *, seed: int) -> Tensor:
    """The labels with all but a ``share`` of each class set to −1; one of each class stays.

    >>> few_labels(torch.tensor([0] * 200 + [1] * 50), 0.01, seed=0).ge(0).sum().item()
    3
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    kept = torch.full_like(labels, -1)
    for label in torch.unique(labels[labels >= 0]):
        of_class = order[labels[order] == label]
        chosen = of_class[: max(1, round(share * len(of_class)))]
        kept[chosen] = label
    return kept


def _features(
    name: str,
    network: Network,
    data: Data,
    part: str,
    settings: EvalSettings,
    progress: Progress | None,
) -> tuple[Tensor, Tensor]:
    images = getattr(data, part)
    layers = network_layers(network, None, data, images, settings, f"{name}: {part}", progress)
    return layers.backbone, images.labels


def print_evaluations(results: Sequence[dict[str, Any]], console: Console) -> None:
    """One row for each target and protocol; the protocol and its samples stand beside it."""
    table = terminal_table(
        ("target", "protocol", "train/val/test"),
        ("accuracy", "95 %", "top-5", "F1", "precision", "recall", "seconds"),
    )
    for name, result in zip(short_names([result["target"] for result in results]), results):
        for protocol, found in result["probes"].items():
            table.add_row(
                name,
                protocol,
                "/".join(f"{found[f'{part}_samples']:,}" for part in PARTS),
                f"{found['accuracy']:.1%}",
                f"{found['low']:.1%}–{found['high']:.1%}",
                "–" if found["top5"] is None else f"{found['top5']:.1%}",
                *(f"{found[score]:.3f}" for score in ("f1", "precision", "recall")),
                f"{found['seconds']:.1f}",
            )
        near, sizes = result["knn"], result["data"]
        table.add_row(
            name,
            f"kNN, k {near['k']}, T {near['temperature']:g}",
            f"{sizes['train_labelled']:,}/–/{near['samples']:,}",
            f"{near['accuracy']:.1%}",
            "",
            "–" if near["top5"] is None else f"{near['top5']:.1%}",
        )
    console = widened(console, table)
    console.print(table, markup=False)
    for result in results:
        for note in result["warnings"]:
            console.print(f"{result['target']}: {note}", markup=False, highlight=False)
        for protocol, found in result["probes"].items():
            if not found["converged"] and protocol == "exact":
                line = f"{result['target']}: the exact probe has not converged"
                console.print(line, markup=False, highlight=False)
    for text in {p: f["assumptions"] for r in results for p, f in r["probes"].items()}.items():
        console.print(f"{text[0]}: {text[1]}", style="bright_black", highlight=False, markup=False)
