"""Checkpoints as files: whole or not there, and read without executing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


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
