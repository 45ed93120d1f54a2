"""Label-free scores of held-out images while a run trains."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from radial.data import Data
from radial.evaluation.features import Layers, extract_layers
from radial.files import atomic
from radial.metrics.registry import FROM_VIEWS, LEAST_IMAGES, SCORES, parse
from radial.metrics.scores import Scores
from radial.rbf.kernels import load_kernels
from radial.rbf.layer import deepest_rbf_layer
from radial.training.build import starting_backbone
from radial.training.config import RunConfig
from radial.training.module import Run

IMAGES, VIEWS = 512, 4  # held-out images, views of each


class Monitor(pl.Callback):
    """monitor.csv: one row a look, the file whole at any time; the loggers get the same.

    A look is at most IMAGES images of the validation part, and VIEWS views of each by the run's
    own first view where a score needs views: the same ones every time. No labels, no gradients,
    nothing random that training would notice.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        *,
        every: int,
        unit: str,
        tell: Callable[[str], None],
    ) -> None:
        self.path, self.every, self.unit, self.tell = path, every, unit, tell
        self.keys = ["@".join(parse(name)) for name in names]
        self.rows: list[dict[str, str]] = []

    def read(self, steps: int) -> None:
        """Keep the rows of the first ``steps`` steps: those the checkpoint knows."""
        if self.path.is_file():
            with self.path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.rows = [row for row in rows if int(row["step"]) <= steps]

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.unit == "step" and trainer.global_step % self.every == 0:
            self._look(trainer, module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.unit == "epoch" and (trainer.current_epoch + 1) % self.every == 0:
            self._look(trainer, module)

    def _look(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, Run)
        if not trainer.is_global_zero:
            return
        values = measure(module, self.keys)
        place = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        self.rows.append({name: str(value) for name, value in (place | values).items()})
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with atomic(self.path) as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
        found = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
        self.tell(f"step {trainer.global_step}: {found}")


def measure(module: Run, keys: Sequence[str]) -> dict[str, float]:
    """Each score by its key; what is undefined, as of a diverged network, is NaN."""
    try:
        return _measure(module, keys)
    except ValueError:  # NaN or inf in features or kernels: the guard says so
        return dict.fromkeys(keys, math.nan)


def _measure(module: Run, keys: Sequence[str]) -> dict[str, float]:
    method, data = module.method, module.data
    needs = {SCORES[key.partition("@")[0]].needs for key in keys}
    images = data.val.subset(range(min(IMAGES, len(data.val))))
    scores = Scores(keys, repeats=0)
    layer = deepest_rbf_layer(method.projection_head)
    common: dict[str, Any] = {"mean": data.mean, "std": data.std, "image_size": data.image_size}
    plain = views = Layers(backbone=torch.zeros(0))
    if "features" in needs:
        plain = extract_layers(method.backbone, method.projection_head, images, **common)
    drawn: dict[str, Any] = {"view": module.views[0], "q": VIEWS, "seed": module.config.seed}
    if needs & set(FROM_VIEWS):
        views = extract_layers(method.backbone, method.projection_head, images, **drawn, **common)
    turned = start = Layers(backbone=torch.zeros(0))
    if "rotations" in needs:
        turned = extract_layers(
            method.backbone, method.projection_head, images, turned=True, **common
        )
    if "start_views" in needs:
        with torch.random.fork_rng():
            before = starting_backbone(module.config, data)[0].to(data.mean.device).eval()
        start = extract_layers(before, None, images, **drawn, **common)
    for name in ("backbone", "projector"):
        layers = {"features": plain, "views": views, "rotations": turned, "start_views": start}
        found = {key: getattr(value, name) for key, value in layers.items()}
        scores.update(name, **{k: v for k, v in found.items() if v is not None and len(v)})
    if layer is not None:
        scores.update("kernels", kernels=load_kernels(layer.state_dict())[-1])
        if views.kernel_input is not None:
            nearest, activations, distances = layer.answers(views.kernel_input.to(layer.centers))
            scores.update("kernels", nearest=nearest, activations=activations, distances=distances)
    return {score.key: score.value for score in scores.compute()}


def check_monitor(config: RunConfig, data: Data) -> None:
    """Unknown names, kernel scores without kernels, too few images: before anything is written."""
    for name in config.monitor:
        score, layer = parse(name)
        if layer == "kernels" and not config.head.startswith("rbfn"):
            raise ValueError(f"monitor: {score} needs an RBFN head, not {config.head}")
    if config.monitor and len(data.val) < LEAST_IMAGES:
        found = len(data.val)
        needed = f"{LEAST_IMAGES} validation images"
        raise ValueError(f"monitor needs {needed}, {data.name} has {found}")
