"""Which process of a run this is, and which device it computes on."""

from __future__ import annotations

import os

import torch
from lightning_utilities.core.rank_zero import rank_zero_only

from radial.training.config import RunConfig


def is_leader() -> bool:
    """Rank 0 of all; known from the environment before Lightning has set anything up."""
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return int(getattr(rank_zero_only, "rank", 0) or 0) == 0 and int(node) == 0


def check_processes(config: RunConfig) -> None:
    """torchrun's processes must be the run's ranks, or each would train a run of its own."""
    world = config.devices * config.num_nodes
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1 and started != world:
        raise ValueError(f"started as {started} processes: give --devices and --num-nodes to match")


def device_of(config: RunConfig) -> torch.device:
    if config.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
