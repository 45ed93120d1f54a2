"""What labels say of a target: `radial eval`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from radial.data import Data
from radial.evaluation.classification import knn
from radial.evaluation.probe import few_label_probe, probe
from radial.presentation import terminal_table
from radial.scoring.bench import Progress, load_images, network_layers
from radial.scoring.card import PACKAGES, short_names, widened
from radial.scoring.settings import EvalSettings
from radial.scoring.targets import Network, build, find
from radial.training.rundir import versions

PARTS = ("train", "val", "test")
FEW = 0.01  # of the labels: the least that a label-free score must be worth
SHARES = (FEW, 0.1)  # for logistic regressions


def evaluate(
    name: str,
    settings: EvalSettings,
    *,
    progress: Progress | None = None,
    data: Data | None = None,
) -> dict[str, Any]:
    """Probe and nearest neighbours on frozen backbone features; plain values, as in eval.json.

    Args:
        name: of a target, as for ``radial eval``.
        settings: data, protocols and sizes.
        progress: called with what, done and total.
        data: where it is loaded already, at the size that the target was trained at.

    Returns:
        Accuracies with intervals, protocols, sizes, warnings and versions.

    Raises:
        ValueError: a target that cannot be read, or data without labels.

    Example:
        >>> from radial.scoring.settings import EvalSettings
        >>> found = evaluate("runs/a", EvalSettings(data="digits"))  # doctest: +SKIP
    """
    target = find(name)
    if data is None:
        data = load_images(settings, target.asked_size or settings.image_size or target.image_size)
    network = build(
        target,
        image_size=settings.image_size,
        data_size=data.image_size,
        backbone=settings.backbone,
    )
    return {
        "target": name,
        "kind": target.kind,
        "checkpoint": target.checkpoint,
        "directory": None if target.directory is None else str(target.directory),
        "method": target.method,
        "head": target.head,
        **evaluate_network(network, data, settings, name=target.name, progress=progress),
    }


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
