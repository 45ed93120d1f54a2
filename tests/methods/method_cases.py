"""Small methods and views that the tests of this directory share.

Legend: B samples, d embedding width, K prototypes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from radial.methods import METHODS, Method
from radial.rbf.heads import build_head

FEATURES, HIDDEN, DIM, KERNELS = 16, 32, 8, 8
MOMENTA = ("target_", "key_", "teacher_")  # what the momentum copies' names begin with

# Small enough for loops; momenta far enough from 1 to see them move.
SMALL: dict[str, dict[str, Any]] = {
    "moco": {"queue_size": 10, "momentum": 0.9},
    "byol": {"momentum": 0.9},
    "swav": {"prototypes": 12},
    "dino": {"prototypes": 12, "momentum": 0.9},
    "nnclr": {"queue_size": 10},
    "supervised": {"classes": 3},
}


class Backbone(nn.Sequential):
    """Convolution → BatchNorm → ReLU → mean over pixels: images of any size to 16 features."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, FEATURES, 3, bias=False),
            nn.BatchNorm2d(FEATURES),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )


def build(name: str, head: str, *, seed: int = 0, **options: Any) -> Method:
    """A method of :data:`METHODS` with small heads; the same seed gives the same weights."""
    kernels = {"num_kernels": KERNELS} if head.startswith("rbfn") else {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        backbone = Backbone()
        heads = [build_head(head, name, FEATURES, HIDDEN, DIM, **kernels)]
        if METHODS[name].predicts:
            heads.append(build_head(head, name, DIM, HIDDEN, DIM, kind="prediction", **kernels))
        if name == "dino":  # as a run with such a head has it
            options = {"radial": head.startswith("rbfn")} | options
        return METHODS[name](backbone, *heads, **SMALL.get(name, {}) | options)


def given(name: str, batch: int, start: int = 0) -> dict[str, Tensor]:
    """What the method's forward takes beside views: the anchors their labels, of three classes."""
    return {"labels": torch.arange(start, start + batch) % 3} if METHODS[name].labelled else {}


def views(batch: int, count: int = 2, *, seed: int = 0, dtype: Any = torch.float32) -> list[Tensor]:
    """``count`` noisy views of the same images; from the third on they are smaller crops."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 3, 6, 6, generator=generator, dtype=torch.float64)
    noisy = [
        images + 0.5 * torch.randn(images.shape, generator=generator, dtype=torch.float64)
        for _ in range(count)
    ]
    return [
        view if i < 2 else view[:, :, :4, :4] for i, view in enumerate(v.to(dtype) for v in noisy)
    ]


def step(
    method: Method, optimizer: torch.optim.Optimizer, x: list[Tensor], progress: float
) -> Tensor:
    """One training step with the hooks in their places; returns the loss."""
    optimizer.zero_grad()
    loss = method(x, progress, **given(method.name, len(x[0]))).loss
    loss.backward()
    method.after_backward(progress)
    optimizer.step()
    method.after_step(progress)
    return loss.detach()
