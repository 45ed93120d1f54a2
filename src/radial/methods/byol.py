"""BYOL: predict the embedding that a slow copy of the network gives the other view.

Grill et al., 2020, https://arxiv.org/abs/2006.07733.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class BYOL(Method):
    r"""−½ [cos(p₀, t₁) + cos(p₁, t₀)], p the prediction of a view, t its target embedding.

    Targets come from a momentum copy of backbone and projector whose momentum goes from its
    base to 1 along a cosine. The paper's loss, 2 − 2 cos summed over both directions, is 4 + 4ℓ
    of this ℓ.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        prediction_head: embeddings to predictions.
        momentum: of the copy, at the start; 1 at the end.
    """

    name = "byol"
    predicts = True

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        prediction_head: nn.Module,
        *,
        momentum: float = 0.996,
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_momentum(momentum)
        self.prediction_head = prediction_head
        self.momentum = momentum
        self.target_backbone = base.momentum_copy(backbone)
        self.target_head = base.momentum_copy(projection_head)

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        p0, p1 = base.full(self.prediction_head(z0)), base.full(self.prediction_head(z1))
        with torch.no_grad():
            t0, t1 = (base.full(self.target_head(self.target_backbone(view))) for view in views)
        with base.no_autocast(z0):
            return Output(symmetric_cosine(p0, p1, t0, t1), z0.detach())

    def after_step(self, progress: float) -> None:
        momentum = base.cosine_momentum(self.momentum, progress)
        base.ema_update(self.target_backbone, self.backbone, momentum)
        base.ema_update(self.target_head, self.projection_head, momentum)

    def constant_loss(self, batch: int) -> float:
        """All cosines are 1."""
        return constant_loss(self.name)


def symmetric_cosine(p0: Tensor, p1: Tensor, t0: Tensor, t1: Tensor) -> Tensor:
    """−½ [cos(p₀, t₁) + cos(p₁, t₀)], mean over samples; no gradient reaches the targets."""
    cosines = F.cosine_similarity(p0, t1.detach()) + F.cosine_similarity(p1, t0.detach())
    return -0.5 * cosines.mean()
