"""What a run does when, as functions of (seed, epoch, step) and nothing else.

So a checkpoint holds no random state, and a resumed run is the run that was never interrupted.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Generator
from torch.utils.data import Sampler


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
