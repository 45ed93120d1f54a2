"""SimSiam: predict the other view's embedding, with a stop-gradient and nothing else.

Chen & He, 2021, https://arxiv.org/abs/2011.10566.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from radial.methods.base import Method, Output, check_view_count, full, no_autocast
from radial.methods.byol import symmetric_cosine
from radial.verdicts import constant_loss


class SimSiam(Method):
    """−½ [cos(p₀, z₁) + cos(p₁, z₀)], p = predictor(z), no gradient through the bare z.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        prediction_head: embeddings to predictions.
    """

    name = "simsiam"
    predicts = True

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, prediction_head: nn.Module
    ) -> None:
        super().__init__(backbone, projection_head)
        self.prediction_head = prediction_head

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        p0, p1 = full(self.prediction_head(z0)), full(self.prediction_head(z1))
        with no_autocast(z0):
            return Output(symmetric_cosine(p0, p1, z0, z1), z0.detach())

    def constant_loss(self, batch: int) -> float:
        """All cosines are 1."""
        return constant_loss(self.name)
