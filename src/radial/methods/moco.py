"""MoCo v2: a query against its key and a queue of keys of earlier batches.

He, Fan, Wu, Xie & Girshick, 2020, https://arxiv.org/abs/1911.05722; v2: Chen, Fan, Girshick
& He, 2020, https://arxiv.org/abs/2003.04297.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.checks import needs
from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class MoCo(Method):
    """InfoNCE of queries q with their keys k₊ and the queue's keys kᵢ, all of unit length.

        −log [ exp(q·k₊/τ) / (exp(q·k₊/τ) + Σᵢ exp(q·kᵢ/τ)) ]

    Keys come from a momentum copy of backbone and head. Across ranks the copy sees the batch
    shuffled, so that BatchNorm cannot tell a key by its neighbours; on one rank a
    shuffle would change nothing. The queue holds the keys of all ranks and is in the
    checkpoint; it starts with random directions, as published.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        temperature: τ.
        momentum: of the copy.
        queue_size: keys of earlier batches, as negatives.
    """

    name = "moco"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        *,
        temperature: float = 0.2,
        momentum: float = 0.999,
        queue_size: int = 4096,
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        base.check_momentum(momentum)
        self.temperature, self.momentum = temperature, momentum
        self.key_backbone = base.momentum_copy(backbone)
        self.key_head = base.momentum_copy(projection_head)
        self.queue = base.Queue(queue_size, base.embedding_dim(projection_head))

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views)
        z = self.project(views[0])
        keys = self.keys(views[1])
        with base.no_autocast(z):
            q, k = F.normalize(z, dim=1), F.normalize(keys, dim=1)
            positive = (q * k).sum(1, keepdim=True)
            negative = q @ self.queue.rows.to(q).clone().T  # cloned: put() writes below
            logits = torch.cat([positive, negative], dim=1) / self.temperature
            first = torch.zeros(len(q), dtype=torch.long, device=q.device)
            loss = F.cross_entropy(logits, first)
        if self.training:
            self.queue.put(k)
        return Output(loss, z.detach())

    @torch.no_grad()
    def keys(self, view: Tensor) -> Tensor:
        """Embeddings by the momentum copy.

        Args:
            view: (B, 3, S, S).

        Returns:
            (B, d), not yet of unit length.
        """
        if not (self.training and base.world_size() > 1):
            return base.full(self.key_head(self.key_backbone(view)))
        needs("train", "lightly")
        from lightly.models.utils import batch_shuffle, batch_unshuffle

        shuffled, order = batch_shuffle(view, distributed=True)
        keys = base.full(self.key_head(self.key_backbone(shuffled)))
        return batch_unshuffle(keys, order, distributed=True)

    def after_step(self, progress: float) -> None:
        base.ema_update(self.key_backbone, self.backbone, self.momentum)
        base.ema_update(self.key_head, self.projection_head, self.momentum)

    def constant_loss(self, batch: int) -> float:
        """The key among itself and the queue, all equally likely once the queue is full."""
        return constant_loss(self.name, queue_size=len(self.queue.rows))
