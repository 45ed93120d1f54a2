"""When checkpoints are written, and how: whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO

from radial.checkpoints import read_checkpoint
from radial.files import atomic
from radial.training.conventions import LAST, STOPPED


class AtomicIO(TorchCheckpointIO):
    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        with atomic(path, "wb") as file:
            torch.save(checkpoint, file)

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
        epoch = trainer.current_epoch + 1
        trainer.save_checkpoint(self.directory / LAST)
        if self.every and epoch % self.every == 0:
            trainer.save_checkpoint(self.directory / "checkpoints" / f"epoch-{epoch:03d}.ckpt")
