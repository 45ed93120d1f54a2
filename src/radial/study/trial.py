"""How long a study will take, from timed steps: one trial for each kind of run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from radial.data import Data
from radial.data.views import augment
from radial.study.plan import Planned, Study
from radial.training.build import build, data_of
from radial.training.config import RunConfig
from radial.training.module import Run
from radial.training.schedule import generator

KIND = ("data", "image_size", "split", "method", "head", "backbone", "batch_size")
STEPS = 3  # timed, after one that is not
LARGEST = 64  # images of a timed step; a step of the run is in proportion
PATIENCE = 10.0  # seconds: a first step that took longer is the estimate


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A kind of run: how many there are, and the seconds of each on one machine."""

    label: str
    runs: int
    steps: int  # of training
    train: float  # seconds a run
    rest: float  # seconds of evaluation and scoring, where the study asks for them

    @property
    def seconds(self) -> float:
        return self.runs * (self.train + self.rest)


def trials(
    study: Study,
    plan: Sequence[Planned],
    *,
    threads: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Trial]:
    """Time some training steps of the first run of each kind; runs differ in epochs only."""
    if threads is not None:
        torch.set_num_threads(threads)
    kinds: dict[tuple[object, ...], list[RunConfig]] = {}
    for run in plan:
        kinds.setdefault(tuple(getattr(run.config, n) for n in KIND), []).append(run.config)
    loaded: dict[tuple[object, ...], Data] = {}
    found = []
    for key, configs in kinds.items():
        tell(f"timing {configs[0].method} with {configs[0].head} head")
        if key[:3] not in loaded:
            loaded = {key[:3]: data_of(configs[0])}
        found.append(_trial(study, configs, loaded[key[:3]]))
    return found


def _trial(study: Study, configs: Sequence[RunConfig], data: Data) -> Trial:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parts = build(configs[0], data=data, device=device)
    config = parts.config
    parts.method.to(device).train()
    optimizer = Run(parts.method, data, parts.views, config, {}).configure_optimizers()
    assert config.batch_size is not None
    images = min(config.batch_size, LARGEST)
    times: list[float] = []
    for step in range(STEPS + 1):
        if times and times[0] > PATIENCE:
            break
        began = time.perf_counter()
        batch = data.train.__getitems__(range(images)).to(device)
        random = generator(config.seed, "trial", step)
        views = augment(batch, parts.views, random, mean=data.mean, std=data.std)
        optimizer.zero_grad()
        parts.method(views, 0.0).loss.backward()
        parts.method.after_backward(0.0)
        optimizer.step()
        parts.method.after_step(0.0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    timed = sorted(times[1:] or times)
    step_seconds = timed[len(timed) // 2] * config.batch_size / images
    epochs = sum(c.epochs for c in configs) / len(configs)
    steps = round(epochs * (len(data.train) // config.batch_size))
    seen = 0  # images that pass the backbone without gradients
    if study.evaluate is not None:
        seen += len(data.train) + len(data.val) + len(data.test)
    if (settings := study.scoring(config.data)) is not None:
        part = len(getattr(data, settings.part))
        seen += min(part, settings.images) + min(part, settings.view_images) * settings.views
    return Trial(
        label=f"{config.method}, {config.head} head, {config.backbone} on {data.name}",
        runs=len(configs),
        steps=steps,
        train=steps * step_seconds,
        rest=seen * _forward(parts.method.backbone, batch),
    )


@torch.no_grad()
def _forward(backbone: nn.Module, batch: torch.Tensor) -> float:
    """Seconds an image."""
    backbone.eval()
    began = time.perf_counter()
    backbone(batch.float() / 255.0)
    return (time.perf_counter() - began) / len(batch)
