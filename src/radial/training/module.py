"""The only LightningModule: data order, views, schedule and optimiser around a method.

Everything random follows from (seed, epoch, step), so a checkpoint holds no random state and
a resumed run is the run that was never interrupted.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler

from radial.data import Data, Images
from radial.data.augmentations import View
from radial.data.views import augment
from radial.methods import Method, Output
from radial.rbf.optim import parameter_groups
from radial.training.config import RunConfig


def key(*parts: object) -> int:
    """A seed that depends on all parts, well spread: key(seed, "views", epoch, step)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: object) -> Generator:
    return Generator().manual_seed(key(*parts))


class EpochBatches(Sampler[list[int]]):
    """This rank's part of each global batch; the order is that of (seed, epoch) alone.

    Each image is seen at most once an epoch; a last batch that is not full is left out.
    """

    def __init__(
        self, images: int, batch: int, *, seed: int, rank: int = 0, world: int = 1, shuffle: bool
    ) -> None:
        self.images, self.batch, self.seed, self.shuffle = images, batch, seed, shuffle
        self.part = slice(rank * batch // world, (rank + 1) * batch // world)
        self.epoch = 0
        self.sampler = self  # where Lightning looks for set_epoch, which it calls

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.images // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.images)
        if self.shuffle:
            order = torch.randperm(self.images, generator=generator(self.seed, "order", self.epoch))
        for step in range(len(self)):
            yield order[step * self.batch : (step + 1) * self.batch][self.part].tolist()


def learning_rate(step: int, *, warmup: float, total: int) -> float:
    """Factor on the peak rate: a linear warm-up, then half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1.0, total - warmup)))


def spread(embeddings: Tensor) -> Tensor:
    """√d times the mean deviation of unit-length embeddings: 1 isotropic, 0 collapsed."""
    unit = F.normalize(embeddings.float(), dim=1)
    return unit.std(0).mean() * math.sqrt(unit.shape[1])


class Run(pl.LightningModule):
    """Trains a method on the views of a dataset, as a resolved config says."""

    latest: Output  # of the last training step, for callbacks

    def __init__(
        self, method: Method, data: Data, views: Sequence[View], config: RunConfig, facts: Any
    ) -> None:
        super().__init__()
        self.method, self.data, self.views = method, data, views
        self.config, self.facts = config, facts
        assert config.batch_size is not None
        self.batch_size = config.batch_size
        self.steps_per_epoch = len(data.train) // self.batch_size

    @property
    def total_steps(self) -> int:
        return self.config.epochs * self.steps_per_epoch

    @property
    def progress(self) -> float:
        return min(1.0, self.global_step / self.total_steps)

    def training_step(self, batch: Tensor, step: int) -> Tensor:
        seed, epoch = self.config.seed, self.current_epoch
        torch.manual_seed(key(seed, "step", epoch, step, self.global_rank))
        self._set_learning_rate()
        views = self._augment(batch, generator(seed, "views", epoch, step))
        self.latest = self.method(views, self.progress)
        return self.latest.loss

    def on_after_backward(self) -> None:
        self.method.after_backward(self.progress)

    def on_train_batch_end(self, outputs: Any, batch: Any, step: int) -> None:
        self.method.after_step(self.progress)
        loss, size = self.latest.loss.detach(), len(batch)
        epochwise: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": size}
        self.log("train_loss", loss, sync_dist=True, **epochwise)
        self.log("spread", spread(self.latest.embeddings), sync_dist=True, **epochwise)

    def validation_step(self, batch: Tensor, step: int) -> None:
        views = self._augment(batch, generator(self.config.seed, "validation", step))
        loss = self.method(views, self.progress).loss
        self.log("val_loss", loss, sync_dist=True, batch_size=len(batch))

    def _augment(self, batch: Tensor, random: Generator) -> list[Tensor]:
        place = {"rank": self.global_rank, "world": self.trainer.world_size}
        return augment(batch, self.views, random, mean=self.data.mean, std=self.data.std, **place)

    def _set_learning_rate(self) -> None:
        """From the step alone, so that more epochs on resume extend the schedule."""
        assert self.config.warmup_epochs is not None
        warmup = self.config.warmup_epochs * self.steps_per_epoch
        factor = learning_rate(self.global_step, warmup=warmup, total=self.total_steps)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = group["peak_lr"] * factor

    def configure_optimizers(self) -> torch.optim.Optimizer:
        config = self.config
        assert config.weight_decay is not None
        groups = parameter_groups(
            self.method,
            lr=config.lr,
            weight_decay=config.weight_decay,
            kernel_lr_scale=config.kernel_lr_scale,
            shape_lr_scale=config.shape_lr_scale,
        )
        groups = [group | {"peak_lr": group["lr"]} for group in groups]
        if config.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=config.lr)
        if config.optimizer == "lars":
            from lightly.utils.lars import LARS

            return LARS(groups, lr=config.lr, momentum=0.9)
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9)

    def train_dataloader(self) -> DataLoader[Tensor]:
        return self._loader(self.data.train, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Tensor] | list[Any]:
        """The validation images in their order; fewer than a batch make a smaller one."""
        world = self.trainer.world_size
        batch = min(self.batch_size, len(self.data.val)) // world * world
        return self._loader(self.data.val, batch, shuffle=False) if batch >= 2 * world else []

    def _loader(self, images: Images, batch: int, *, shuffle: bool) -> DataLoader[Tensor]:
        place = {"rank": self.global_rank, "world": self.trainer.world_size}
        batches = EpochBatches(len(images), batch, seed=self.config.seed, shuffle=shuffle, **place)
        workers = self.config.workers
        if workers is None:
            workers = min(8, os.cpu_count() or 1)
        workers = 0 if images.in_memory else workers
        return DataLoader(
            images,
            batch_sampler=batches,
            collate_fn=_as_it_is,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["radial"] = {"config": self.config.to_dict(), **self.facts}


def _as_it_is(batch: Any) -> Any:
    return batch
