"""The only LightningModule: loaders, views, learning rate and optimiser around a method."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from radial.data import Data, Images
from radial.data.augmentations import View
from radial.data.views import augment
from radial.methods import Method, Output
from radial.rbf.optim import parameter_groups
from radial.training.build import EpochBatches, generator, key, learning_rate
from radial.training.compilation import called
from radial.training.config import RunConfig
from radial.training.monitoring import embedding_spread


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

    def training_step(self, batch: Any, step: int) -> Tensor:
        seed, epoch = self.config.seed, self.current_epoch
        torch.manual_seed(key(seed, "step", epoch, step, self.global_rank))
        self._set_learning_rate()
        with called("compiled") if self.config.compile == "on" else nullcontext():
            self.latest = self._forward(batch, generator(seed, "views", epoch, step))
        return self.latest.loss

    def on_after_backward(self) -> None:
        self.method.after_backward(self.progress)

    def on_train_batch_end(self, outputs: Any, batch: Any, step: int) -> None:
        self.method.after_step(self.progress)
        loss, size = self.latest.loss.detach(), len(self.latest.embeddings)
        epochwise: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": size}
        self.log("train_loss", loss, sync_dist=True, **epochwise)
        self.log("spread", embedding_spread(self.latest.embeddings), sync_dist=True, **epochwise)

    def validation_step(self, batch: Any, step: int) -> None:
        loss, embeddings = self._forward(batch, generator(self.config.seed, "validation", step))
        self.log("val_loss", loss, sync_dist=True, batch_size=len(embeddings))

    def _forward(self, batch: Any, random: Generator) -> Output:
        """Images, or for the anchors images and labels, to views to the method's output."""
        images, *labels = batch if self.method.labelled else (batch,)
        place = {"rank": self.global_rank, "world": self.trainer.world_size}
        data = self.data
        views = augment(images, self.views, random, mean=data.mean, std=data.std, **place)
        output: Output = self.method(views, self.progress, *labels)
        return output

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
        # Lightning tells the epoch after it has made the first iterator, which with workers draws
        # its first batches at once: those of a resumed run must not be epoch 0's.
        done: Any = self.trainer.fit_loop.epoch_progress.current
        batches.set_epoch(done.processed)
        workers = self.config.workers
        if workers is None:
            workers = min(8, os.cpu_count() or 1)
        workers = 0 if images.in_memory else workers
        return DataLoader(
            WithLabels(images) if self.method.labelled else images,
            batch_sampler=batches,
            collate_fn=_as_it_is,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["radial"] = {"config": self.config.to_dict(), **self.facts}


class WithLabels(Dataset[Any]):
    """Batches of images and their labels."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        assert self.images.labels is not None
        return self.images.__getitems__(indices), self.images.labels[torch.as_tensor(indices)]


def _as_it_is(batch: Any) -> Any:
    return batch
