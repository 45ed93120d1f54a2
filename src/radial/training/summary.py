"""What is said of a run: in its checkpoints, before it starts, and in result.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

import radial
from radial.metrics.compute import kernel_scores
from radial.rbf.kernels import load_kernels
from radial.rbf.layer import deepest_rbf_layer
from radial.training.build import Parts
from radial.training.config import RunConfig
from radial.training.devices import device_of
from radial.training.guards import Guard
from radial.training.progress import Metrics
from radial.training.rundir import RunResult


def facts_of(parts: Parts) -> dict[str, Any]:
    """What goes into each checkpoint beside the config: enough to export and to judge."""
    return {
        "version": radial.__version__,
        "image_size": parts.backbone.image_size,
        "feature_dim": parts.backbone.feature_dim,
        "stem": parts.backbone.stem,
        "mean": parts.data.mean.tolist(),
        "std": parts.data.std.tolist(),
        "head_status": parts.health.status,
        "head_health": parts.health.verdict,
        "kernels_at_start": at_start(parts),
    }


def at_start(parts: Parts) -> dict[str, float]:
    """Scores of the kernels before the first step: what they are worth is what they moved."""
    layer = deepest_rbf_layer(parts.method.projection_head)
    if layer is None or layer.num_kernels < 2:
        return {}
    return kernel_scores(load_kernels(layer.state_dict())[-1])


def batch_norm(config: RunConfig) -> str:
    if config.devices * config.num_nodes == 1:
        return "one process"
    gpu = device_of(config).type == "cuda"
    return "synchronised over ranks" if gpu else "per rank (no SyncBatchNorm on a CPU)"


def introduce(parts: Parts, world: int, tell: Any, checkpoint: dict[str, Any] | None) -> None:
    """The run in three lines, before it starts."""
    config, info = parts.config, parts.backbone
    tell(
        f"{config.method} with {config.head} head on {parts.data.name} "
        f"({len(parts.data.train):,} images of {info.image_size} px; {parts.data.split})"
    )
    tell(f"{info.name}, {info.feature_dim} features; stem: {info.stem}")
    for note in parts.notes:
        tell(note)
    if world > 1:
        tell(f"{world} ranks; BatchNorm {batch_norm(config)}")
    if checkpoint:
        tell(f"resuming after epoch {int(checkpoint['epoch']) + 1} of {config.epochs}")


def summary(
    directory: Path,
    parts: Parts,
    facts: dict[str, Any],
    guard: Guard,
    metrics: Metrics,
    trainer: pl.Trainer,
) -> RunResult:
    config = parts.config
    assert config.batch_size is not None
    assert config.backbone is not None
    speeds = sorted(float(row["images_per_second"]) for row in metrics.rows)
    return RunResult(
        directory=str(directory),
        verdict=guard.verdict,
        reason=guard.reason,
        events=tuple(guard.events),
        stopped=guard.stopped,
        method=config.method,
        head=config.head,
        data=parts.data.name,
        backbone=config.backbone,
        stem=facts["stem"],
        seed=config.seed,
        epochs=len(metrics.rows),
        steps=trainer.global_step,
        train_loss=metrics.last("train_loss"),
        val_loss=metrics.last("val_loss"),
        constant_loss=parts.method.constant_loss(config.batch_size),
        spread=metrics.last("spread"),
        knn=metrics.last("knn"),
        images=len(parts.data.train),
        split=parts.data.split,
        skipped=parts.data.skipped,
        head_health=facts["head_health"],
        batch_norm=batch_norm(config),
        seconds=round(sum(float(row["seconds"]) for row in metrics.rows), 3),
        images_per_second=speeds[len(speeds) // 2] if speeds else None,
    )
