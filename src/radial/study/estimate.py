"""`radial study plan`: the runs as a table, and how long they will take, from timed steps.

One trial for each kind of run. Light to import: torch comes with the first trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from rich.console import Console

from radial.checks import one_line
from radial.devices import device_of
from radial.presentation import duration, terminal_table
from radial.study.plan import Planned, Study
from radial.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from radial.data import Data

SHOWN = 60  # runs in the table; the rest is counted
KIND = ("data", "image_size", "split", "method", "head", "backbone", "batch_size")
STEPS = 3  # timed, after one that is not
LARGEST = 64  # images of a timed step; a step of the run is in proportion
PATIENCE = 10.0  # seconds: a first step that took longer is the estimate


def print_plan(study: Study, runs: Sequence[Planned]) -> None:
    """One line a run: what all share is said once, what differs in columns."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=400)  # into a file or a pipe: nothing is cut
    settings = [run.config.to_dict() for run in runs]
    varying = [k for k in settings[0] if any(s[k] != settings[0][k] for s in settings)]
    usual = {field.name: field.default for field in fields(RunConfig)}
    shared = [
        f"{k} {_plain(v)}"
        for k, v in settings[0].items()
        if k not in varying and v and (v != usual[k] or k in ("data", "epochs"))
    ]
    table = terminal_table([name.replace("_", " ") for name in ("run", *varying)])
    for run, values in list(zip(runs, settings))[:SHOWN]:
        table.add_row(run.id, *(_plain(values[name]) for name in varying))
    console.print(table)
    if len(runs) > SHOWN:
        console.print(f"… and {len(runs) - SHOWN} more", highlight=False)
    console.print(f"all: {', '.join(shared)}", style="bright_black", highlight=False, markup=False)
    console.print(f"{len(runs)} runs ({study.name})", highlight=False, markup=False)


def print_estimate(study: Study, runs: Sequence[Planned], *, threads: int | None) -> None:
    console = Console()
    try:
        with console.status("") as shown:
            found = trials(study, runs, threads=threads, tell=lambda line: shown.update(line))
    except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: torch's, for memory
        console.print(f"no estimate: {one_line(error)}", highlight=False, markup=False)
        return
    for trial in found:
        console.print(
            f"  {trial.label}: {trial.runs} × {duration(trial.train + trial.rest)}",
            highlight=False,
            markup=False,
        )
    total = sum(trial.seconds for trial in found)
    console.print(
        f"about {duration(total)} on this machine, one run after another, from timed steps",
        highlight=False,
    )


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)


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
    import torch

    from radial.training.build import data_of

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
    import torch

    from radial.data.views import augment
    from radial.training.build import build, generator
    from radial.training.module import Run

    device = device_of(configs[0].accelerator)
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
        if device.type != "cpu":
            torch.accelerator.synchronize()
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


def _forward(backbone: Module, images: Tensor) -> float:
    """Seconds an image."""
    import torch

    backbone.eval()
    began = time.perf_counter()
    with torch.no_grad():
        backbone(images.float() / 255.0)
    return (time.perf_counter() - began) / len(images)
