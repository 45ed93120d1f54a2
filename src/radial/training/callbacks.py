"""Beside training: verdicts, epochs, label-free scores, what a user sees, checkpoints."""

from __future__ import annotations

import csv
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from radial.checkpoints import read_checkpoint
from radial.checks import check_size, one_line
from radial.data import Data
from radial.evaluation.classification import knn_accuracy
from radial.evaluation.features import extract
from radial.evaluation.monitor import label
from radial.files import atomic
from radial.metrics.registry import LEAST_IMAGES, SCORES, parse, quality
from radial.training.build import starting_backbone
from radial.training.config import RunConfig
from radial.training.module import Run
from radial.training.monitoring import CollapseGuard, LabelFreeMonitor, embedding_spread
from radial.training.rundir import BEST, KEPT, LAST, MONITOR, STOPPED

COLUMNS = ("epoch", "step", "lr", "train_loss", "val_loss", "spread", "knn")
TIMES = ("seconds", "images_per_second")  # not the same twice
Report = Callable[[Mapping[str, float]], bool | None]  # a row of monitor.csv → enough?


class Guard(CollapseGuard):
    """That of a run: it knows the method, and the loss that a constant output would have."""

    def __init__(self, *, born_dead: bool, stop: bool, tell: Callable[[str], None]) -> None:
        super().__init__(lambda module: module.latest.embeddings, stop=stop, tell=tell)
        self.born_dead = born_dead

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        self.method, batch = module.method.name, module.batch_size
        self.constant = module.method.constant_loss(batch)

    def _seen(self, module: Any, outputs: Any) -> tuple[Any, Any]:
        return module.latest.loss.detach(), module.latest.embeddings


class Metrics(pl.Callback):
    """metrics.csv: one row an epoch, the file whole at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        self._begin = self._training = 0.0
        self._steps = 0

    def read(self, epochs: int) -> None:
        """The rows of the first ``epochs`` epochs, where a checkpoint is of before it had them."""
        rows = _read_rows(self.path, "epoch")
        self.rows = [row for row in rows if int(row["epoch"]) <= epochs]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}  # the file is what the checkpoint knows, never the other way

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = _rows(state_dict["rows"])

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
            parts = [f"{name} {float(values[name]):.3f}" for name in COLUMNS if name in values]
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

    The kept one is written first: whenever a run is ended, its last.ckpt has no epoch behind it
    that was to be kept and is not. A run that is stopped within an epoch leaves stopped.ckpt.
    """

    def __init__(self, directory: Path, every: int) -> None:
        self.directory, self.every = directory, every

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.should_stop and not trainer.is_last_batch:
            trainer.save_checkpoint(self.directory / STOPPED)  # to look at, not to resume from
            return
        epoch, last = trainer.current_epoch + 1, self.directory / LAST
        if not self.every or epoch % self.every:
            trainer.save_checkpoint(last)
            return
        kept = self.directory / KEPT.format(epoch)
        trainer.save_checkpoint(kept)
        if trainer.is_global_zero:
            with atomic(last, "wb") as to, kept.open("rb") as file:
                shutil.copyfileobj(file, to)


class Begin(pl.Callback):
    """Calls ``write`` when all is built and restored: from here on files of the run change."""

    def __init__(self, write: Callable[[], None]) -> None:
        self.write, self.done = write, False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        check_size("global_step", trainer.global_step, minimum=0)
        for optimizer in trainer.optimizers:
            _check_optimizer(optimizer)
        self.done = True
        if trainer.is_global_zero:
            self.write()


class RunMonitor(LabelFreeMonitor):
    """monitor.csv: one row a look, the file whole at any time; best.ckpt, and when to stop.

    The images are at most 512 of the validation part, the views those of ``radial score``, so that
    runs compare whatever views they learn from. What was best and how long ago is read off the
    rows, so that a resumed run goes on as the run that was never interrupted.

    Args:
        directory: of the run.
        config: resolved; the first score it watches decides what is best.
        data: of the run.
        tell: takes one line for the user.
        report: called with each row on rank 0; the run ends after the epoch in which it says True.
    """

    def __init__(
        self,
        directory: Path,
        config: RunConfig,
        data: Data,
        *,
        tell: Callable[[str], None],
        report: Report | None = None,
    ) -> None:
        super().__init__(
            data.val,
            "method.backbone",
            projection_head="method.projection_head",
            scores=config.watched,
            every=config.monitor_every,
            unit=config.monitor_unit,
            image_size=data.image_size,
            mean=data.mean,
            std=data.std,
        )
        self.directory, self.config, self.tell, self.report = directory, config, tell, report
        self.keys = {label(name): "@".join(parse(name)) for name in config.watched}
        self.rows: list[dict[str, str]] = []
        self.enough = False  # said by report

    @property
    def path(self) -> Path:
        return self.directory / MONITOR

    def read(self, steps: int) -> None:
        """The rows of the first ``steps`` steps, where the checkpoint is of before it had them."""
        rows = _read_rows(self.path, "step")
        self.rows = [row for row in rows if int(row["step"]) <= steps]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = _rows(state_dict["rows"])

    @property
    def best(self) -> int | None:
        """Which row is the best by the first score, the earliest of equals; None where none is."""
        key = next(iter(self.keys.values()))
        better = SCORES[key.partition("@")[0]].better
        values = [quality(better, float(row.get(key) or math.nan)) for row in self.rows]
        known = [(value, -number) for number, value in enumerate(values) if value == value]
        return -max(known)[1] if known else None

    def best_look(self) -> dict[str, Any] | None:
        """For result.json."""
        if self.best is None:
            return None
        key, row = next(iter(self.keys.values())), self.rows[self.best]
        place = {name: int(row[name]) for name in ("epoch", "step")}
        return {"score": key, "value": float(row[key]), **place}

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        if "start_views" in self.monitor.needs:
            with torch.random.fork_rng(devices=[]):
                before = starting_backbone(self.config, module.data)[0].to(module.device)
            self.monitor.begin(before)

    def _received(
        self, trainer: pl.Trainer, module: pl.LightningModule, values: dict[str, float]
    ) -> None:
        found = {key: values[name] for name, key in self.keys.items()}
        row = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **found}
        self.rows.append({name: str(value) for name, value in row.items()})
        if trainer.is_global_zero:
            names = list(dict.fromkeys(name for row in self.rows for name in row))
            with atomic(self.path) as file:
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)
            self.tell(f"step {row['step']}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
        if self.config.keep == "best" and self.best == len(self.rows) - 1:
            trainer.save_checkpoint(self.directory / BEST)
        if self.report is not None:
            said = trainer.is_global_zero and bool(self.report(row))
            self.enough = trainer.strategy.broadcast(said)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_epoch_end(trainer, module)
        if self.enough or self.waited:
            trainer.should_stop = True

    @property
    def waited(self) -> bool:
        """Whether as many looks as --patience allows have passed since the best."""
        patience, best = self.config.patience, self.best
        if patience is None or best is None:
            return False
        return len(self.rows) - 1 - best >= patience


def _rows(rows: Any) -> list[dict[str, str]]:
    """Of a checkpoint: texts by the names of their columns."""
    found = [dict(row) for row in rows]
    if not all(isinstance(text, str) for row in found for item in row.items() for text in item):
        raise ValueError("a row of its tables is not of texts")
    return found


def _check_optimizer(optimizer: Any) -> None:
    """What a checkpoint brought is of the kinds that the optimiser itself would have."""
    for group in optimizer.param_groups:
        for name, usual in (optimizer.defaults | {"peak_lr": 0.0}).items():
            kind = (int, float) if isinstance(usual, int | float) else type(usual)
            if not isinstance(group.get(name), kind):
                raise ValueError(
                    f"{name} of its optimiser is {one_line(repr(group.get(name)), 60)}"
                )
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            shape = value.shape if isinstance(value, torch.Tensor) else ()
            number = name == "step" and isinstance(value, int | float)
            plain = value is None or number or isinstance(value, torch.Tensor)
            if not plain or shape not in ((), parameter.shape):
                raise ValueError(f"{name} of its optimiser's state does not fit its parameter")


def _read_rows(path: Path, needed: str) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
    if not all(str(row.get(needed)).isdecimal() for row in rows):
        raise ValueError(f"{path} is damaged: not every row has its {needed}")
    return rows


def check_monitor(config: RunConfig, data: Data) -> None:
    """Unknown names, kernel scores without kernels, too few images: before anything is written."""
    for name in config.watched:
        score, layer = parse(name)
        if layer == "kernels" and not config.head.startswith("rbfn"):
            raise ValueError(f"monitor: {score} needs an RBFN head, not {config.head}")
    if config.watched and len(data.val) < LEAST_IMAGES:
        found = len(data.val)
        needed = f"{LEAST_IMAGES} validation images"
        raise ValueError(f"monitor needs {needed}, {data.name} has {found}")
