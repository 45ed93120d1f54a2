"""Checkpoints that are whole or not there, and read without executing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO

from radial.files import atomic

LAST, STOPPED = "last.ckpt", "stopped.ckpt"


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


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of ours, checked; one line of error for anything else."""
    if not path.is_file():
        raise ValueError(f"there is no checkpoint {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes raise nearly anything; torch's advice is unsafe
        raise ValueError(f"{path} is damaged or no checkpoint") from error
    if not isinstance(checkpoint, dict) or not {"radial", "state_dict"} <= checkpoint.keys():
        raise ValueError(f"{path} is not a checkpoint of radial train")
    return checkpoint


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def part(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The entries below a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
