"""What the methods share: a backbone, a projection head, and small functions.

A method turns views into a loss. It receives its backbone and heads, and builds no
optimiser, loader or probe. Legend: B samples of this rank, W ranks, d embedding width.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, distributed, nn

from radial.checks import check_size


class Output(NamedTuple):
    """What a method gives of one step.

    Attributes:
        loss: a scalar, to be minimised.
        embeddings: of the first view, (B, d), without gradient: what collapse is seen by.
    """

    loss: Tensor
    embeddings: Tensor


class Method(nn.Module):
    """Views → `Output`: what every method is.

    Args:
        backbone: images (B, 3, S, S) to features (B, D).
        projection_head: features to embeddings (B, d).
    """

    name: ClassVar[str]
    predicts: ClassVar[bool] = False  # takes a prediction head
    labelled: ClassVar[bool] = False  # an anchor: its forward takes the labels as well

    def __init__(self, backbone: nn.Module, projection_head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection_head = projection_head

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        """The loss of a batch.

        Args:
            views: of the same images, each (B, 3, S, S); crops of SwAV and DINO may be smaller.
            progress: of the whole training, 0 to 1: what momentum and schedules follow.

        Returns:
            Loss and embeddings.

        Raises:
            ValueError: another number of views than the method takes.
        """
        raise NotImplementedError

    def project(self, view: Tensor) -> Tensor:
        """Embeddings in full precision, whatever autocast made of the layers before.

        Args:
            view: (B, 3, S, S).

        Returns:
            (B, d), in float32 at least.
        """
        return full(self.projection_head(self.backbone(view)))

    def after_backward(self, progress: float) -> None:
        """Called between the gradients and the optimiser's step.

        Args:
            progress: of the whole training, 0 to 1.
        """

    def after_step(self, progress: float) -> None:
        """Called after each optimiser step; momentum copies move here.

        Args:
            progress: of the whole training, 0 to 1.
        """

    def constant_loss(self, batch: int) -> float:
        """The loss when every embedding is the same: a run that stays there learns nothing.

        Args:
            batch: images of all ranks.

        Returns:
            The loss, in closed form.
        """
        raise NotImplementedError


def full(z: Tensor) -> Tensor:
    """To float32 at least: losses divide by temperatures and take exponentials."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


def no_autocast(z: Tensor) -> torch.autocast:
    return torch.autocast(z.device.type, enabled=False)


def embedding_dim(head: nn.Module) -> int:
    """Output width of a head: that of its last layer with one."""
    widths = [m.out_features for m in head.modules() if hasattr(m, "out_features")]
    if not widths:
        raise ValueError(f"cannot tell the output width of {type(head).__name__}")
    width = widths[-1]
    assert isinstance(width, int)
    return width


def gathered(z: Tensor) -> Tensor:
    """The embeddings of all ranks (B·W, d), in the order of ranks.

    Its backward sums over ranks what each rank's loss asks of z. With the mean over ranks
    that DistributedDataParallel takes of the gradients, a loss that each rank computes on
    its own rows, or that all compute alike on all rows, has the gradient of one process.
    """
    if world_size() == 1:
        return z
    rows: Tensor = _Gather.apply(z.contiguous())
    return rows


class _Gather(torch.autograd.Function):
    """LightlySSL's ``gather`` in a few lines: importing its package takes longer than torch."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        parts = [torch.empty_like(z) for _ in range(world_size())]
        distributed.all_gather(parts, z)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        distributed.all_reduce(total)
        return total.chunk(world_size())[rank()]


def rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def momentum_copy(module: nn.Module) -> nn.Module:
    """A copy without gradients, to be moved by `ema_update`."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """teacher ← m·teacher + (1−m)·student, of parameters and of BatchNorm's statistics.

    LightlySSL's ``update_momentum`` leaves the buffers out. Counters are copied.
    """
    pairs = zip(
        [*teacher.parameters(), *teacher.buffers()], [*student.parameters(), *student.buffers()]
    )
    for mine, theirs in pairs:
        if mine.is_floating_point():
            mine.lerp_(theirs, 1.0 - momentum)
        else:
            mine.copy_(theirs)


def cosine_momentum(base: float, progress: float) -> float:
    """From ``base`` to 1 along half a cosine (BYOL, appendix J)."""
    return 1.0 - (1.0 - base) * (math.cos(math.pi * min(max(progress, 0.0), 1.0)) + 1.0) / 2.0


def check_momentum(momentum: float, name: str = "momentum") -> None:
    if not 0.0 <= momentum <= 1.0:
        raise ValueError(f"{name} must lie between 0 and 1, not {momentum!r}")


def check_temperature(temperature: float, name: str = "temperature") -> None:
    if not 0.0 < temperature < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {temperature!r}")


def check_weight(name: str, weight: float) -> None:
    if not 0.0 <= weight < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, not {weight!r}")


def check_view_count(views: Sequence[Tensor], *, crops: bool = False) -> None:
    """Two views, or with ``crops`` two or more."""
    if len(views) < 2 or (len(views) > 2 and not crops):
        least = "at least " if crops else ""
        raise ValueError(f"the method needs {least}two views, not {len(views)}")


class Queue(nn.Module):
    """The last ``size`` rows that were put in, the same on every rank; part of the checkpoint.

    LightlySSL's memory bank is not in the state dict: a resumed run starts from noise.
    """

    rows: Tensor
    pointer: Tensor  # how many rows were ever put in

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        check_size("queue_size", size)
        rows = torch.randn(size, dim, generator=torch.Generator().manual_seed(0))
        self.register_buffer("rows", nn.functional.normalize(rows, dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @property
    def full(self) -> bool:
        return int(self.pointer) >= len(self.rows)

    @torch.no_grad()
    def put(self, rows: Tensor) -> None:
        """Add the rows of all ranks, over the oldest ones."""
        rows = gathered(rows)[-len(self.rows) :]
        places = torch.arange(len(rows), device=rows.device) + self.pointer
        self.rows[places % len(self.rows)] = rows.to(self.rows)
        self.pointer += len(rows)
