"""Beside training: verdicts, epochs, label-free scores, what a user sees, checkpoints."""

from __future__ import annotations

import csv
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from radial.checkpoints import read_checkpoint
from radial.data import Data
from radial.evaluation.classification import knn_accuracy
from radial.evaluation.features import Layers, extract, extract_layers
from radial.files import atomic
from radial.methods import Method
from radial.metrics.registry import FROM_VIEWS, LEAST_IMAGES, SCORES, parse
from radial.metrics.scores import Scores
from radial.rbf.health import effective_rank
from radial.rbf.kernels import load_kernels
from radial.rbf.layer import deepest_rbf_layer
from radial.training.build import starting_backbone
from radial.training.config import RunConfig
from radial.training.module import Run, embedding_spread
from radial.training.rundir import KEPT, LAST, STOPPED
from radial.verdicts import COLLAPSED, FEWEST_DIMENSIONS, OK, WINDOW, run_verdict

EVERY = 10  # steps between two looks on a GPU, where reading a value waits for the device
COLUMNS = ("epoch", "step", "lr", "train_loss", "val_loss", "spread", "knn")
TIMES = ("seconds", "images_per_second")  # not the same twice
IMAGES, VIEWS = 512, 4  # held-out images, views of each


class Guard(pl.Callback):
    """Watches loss and embeddings, one look a step on a CPU; warns, or stops the run.

    What they mean is `radial.verdicts.run_verdict`'s to say. A run that recovers is ok
    again; the events stay on record.
    """

    def __init__(self, *, born_dead: bool, stop: bool, tell: Callable[[str], None]) -> None:
        self.born_dead, self.stop, self.tell = born_dead, stop, tell
        self.verdict, self.reason = OK, ""
        self.events: list[dict[str, Any]] = []
        self.stopped = False
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # loss, spread
        self._rank = math.inf  # of the embeddings at the end of the last epoch

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Run)
        late = trainer.global_step > WINDOW and not trainer.is_last_batch
        if module.device.type != "cpu" and trainer.global_step % EVERY and late:
            return
        loss, embeddings = module.latest.loss.detach(), module.latest.embeddings
        self._recent.append((float(loss), float(embedding_spread(embeddings))))
        constant = module.method.constant_loss(module.batch_size)
        possible = min(len(embeddings) - 1, embeddings.shape[1])
        if (
            trainer.is_last_batch
            and possible >= FEWEST_DIMENSIONS
            and bool(embeddings.isfinite().all())
        ):
            self._rank = effective_rank((embeddings - embeddings.mean(0)).cpu().double())
        self._judge(trainer, module.method, constant)

    def _judge(self, trainer: pl.Trainer, method: Method, constant: float) -> None:
        losses, spreads = zip(*self._recent)
        verdict, reason = run_verdict(
            method.name,
            losses,
            spreads,
            constant=constant,
            rank=self._rank,
            born_dead=self.born_dead,
        )
        if verdict != self.verdict:
            self.events.append({"step": trainer.global_step, "verdict": verdict, "reason": reason})
            word = f"{verdict}: {reason}" if reason else "recovered"
            self.tell(f"step {trainer.global_step}: {word}")
        self.verdict, self.reason = verdict, reason
        if self.stop and trainer.strategy.reduce_boolean_decision(verdict != OK, all=False):
            self.stopped = trainer.should_stop = True
            if verdict == OK:
                self.verdict, self.reason = COLLAPSED, "on another rank"

    def state_dict(self) -> dict[str, Any]:
        recent = [list(pair) for pair in self._recent]
        names = {"verdict": self.verdict, "reason": self.reason, "events": self.events}
        return names | {"recent": recent, "rank": self._rank}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.verdict, self.reason = state_dict["verdict"], state_dict["reason"]
        self.events, self._rank = list(state_dict["events"]), state_dict["rank"]
        self._recent.extend((loss, spread) for loss, spread in state_dict["recent"])


class Metrics(pl.Callback):
    """metrics.csv: one row an epoch, the file whole at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        self._begin = self._training = 0.0
        self._steps = 0

    def read(self, epochs: int) -> None:
        """Keep the rows of the first ``epochs`` epochs: those the checkpoint knows."""
        if self.path.is_file():
            with self.path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.rows = [row for row in rows if int(row["epoch"]) <= epochs]

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._begin, self._training, self._steps = time.perf_counter(), 0.0, 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._steps += 1

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._training = time.perf_counter() - self._begin

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, Run)
        seconds = time.perf_counter() - self._begin
        images = self._steps * module.batch_size
        values: dict[str, Any] = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "lr": max(group["lr"] for group in trainer.optimizers[0].param_groups),
            "seconds": round(seconds, 3),
            "images_per_second": round(images / (self._training or seconds), 1),
        }
        for name in ("train_loss", "val_loss", "spread", "knn"):
            if name in trainer.callback_metrics:
                values[name] = float(trainer.callback_metrics[name])
        self.rows.append({name: str(value) for name, value in values.items()})
        if trainer.is_global_zero:
            with atomic(self.path) as file:
                writer = csv.DictWriter(file, [*COLUMNS, *TIMES], lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)

    def last(self, name: str) -> float | None:
        values = [row[name] for row in self.rows if row.get(name)]
        return float(values[-1]) if values else None


class OnlineKNN(pl.Callback):
    """Accuracy of nearest neighbours on the validation images: uses labels, so by option only."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, Run)
        data, backbone = module.data, module.method.backbone
        assert data.train.labels is not None
        assert data.val.labels is not None
        train, val = (extract(backbone, images, data) for images in (data.train, data.val))
        module.log("knn", knn_accuracy(train, data.train.labels, val, data.val.labels))


class Bar(pl.Callback):
    """A bar on a terminal, a line an epoch elsewhere."""

    def __init__(self, console: Console, epochs: int) -> None:
        self.console, self.epochs = console, epochs
        self._bar: Progress | None = None
        self._clock, self._shown, self._done = time.perf_counter(), 0.0, 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, Run)
        self._clock, self._done = time.perf_counter(), 0
        if trainer.is_global_zero and self.console.is_terminal:
            columns = (
                TextColumn("epoch {task.fields[epoch]:>3}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                TextColumn("left"),
            )
            self._bar = Progress(*columns, console=self.console, refresh_per_second=5)
            steps, done = module.total_steps, trainer.global_step
            self._bar.add_task("", total=steps, completed=done, epoch="", state="")
            self._bar.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Run)
        self._done += module.batch_size
        if self._bar is not None:
            task = self._bar.tasks[0]
            last = trainer.global_step == module.total_steps
            if time.perf_counter() - self._shown < 0.2 and not last:
                return  # reading the loss waits for the device
            self._shown = time.perf_counter()
            loss = float(module.latest.loss.detach())
            width = float(embedding_spread(module.latest.embeddings))
            self._bar.update(
                task.id,
                completed=trainer.global_step,
                epoch=f"{trainer.current_epoch + 1}/{self.epochs}",
                state=f"loss {loss:.3f} · spread {width:.2f} · {self._speed:,.0f} images/s",
            )

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.is_global_zero and self._bar is None:
            values = trainer.callback_metrics
            parts = [f"{name} {float(values[name]):.3f}" for name in values]
            line = f"epoch {trainer.current_epoch + 1}/{self.epochs}: {', '.join(parts)}"
            self.console.print(
                f"{line}, {self._speed:,.0f} images/s",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.close()

    def on_exception(
        self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @property
    def _speed(self) -> float:
        return self._done / max(1e-9, time.perf_counter() - self._clock)


class AtomicIO(TorchCheckpointIO):
    """Writes a checkpoint whole or not at all; a disk that will not take it is an OSError."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        try:
            with atomic(path, "wb") as file:
                torch.save(checkpoint, file)
        except RuntimeError as error:  # torch's zip writer hides what the disk said
            told = error.__context__
            if not isinstance(told, OSError):
                raise
            raise OSError(told.errno, told.strerror, str(path)) from error

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return read_checkpoint(Path(path))


class Checkpoints(pl.Callback):
    """last.ckpt after every epoch, checkpoints/epoch-NNN.ckpt every ``every`` epochs.

    A run that is stopped within an epoch leaves stopped.ckpt.
    """

    def __init__(self, directory: Path, every: int) -> None:
        self.directory, self.every = directory, every

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.should_stop and not trainer.is_last_batch:
            trainer.save_checkpoint(self.directory / STOPPED)  # to look at, not to resume from
            return
        trainer.save_checkpoint(self.directory / LAST)
        if trainer.is_global_zero:
            self.keep(trainer.current_epoch + 1)

    def keep(self, epoch: int) -> None:
        """Copy last.ckpt, which is of ``epoch``, if that is one to keep."""
        if self.every and epoch % self.every == 0:
            kept, last = (self.directory / name for name in (KEPT.format(epoch), LAST))
            with atomic(kept, "wb") as to, last.open("rb") as file:
                shutil.copyfileobj(file, to)


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
        with torch.random.fork_rng(devices=[]):
            before = starting_backbone(module.config, data)[0].to(module.device).eval()
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
