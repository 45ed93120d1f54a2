"""VICReg: invariance between views, variance and decorrelation within each.

Bardes, Ponce & LeCun, 2022, https://arxiv.org/abs/2105.04906.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from radial.checks import needs
from radial.methods.base import Method, Output, check_view_count, check_weight, no_autocast
from radial.verdicts import constant_loss


class VICReg(Method):
    """λ s(Z₀, Z₁) + μ [v(Z₀) + v(Z₁)] / 2 + ν [c(Z₀) + c(Z₁)], by LightlySSL's loss.

    Here s is the mean square difference, v the mean of max(0, 1 − √(variance + 10⁻⁴)), c the sum of
    squared covariances off the diagonal over d; v and c over the batch of all ranks. The
    factor ½ of v is that of the authors' code; the paper has none.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        invariance: λ.
        variance: μ.
        covariance: ν.
    """

    name = "vicreg"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
    ) -> None:
        needs("train", "lightly")
        from lightly.loss.vicreg_loss import VICRegLoss  # here: its package takes longer than torch

        super().__init__(backbone, projection_head)
        check_weight("invariance", invariance)
        check_weight("variance", variance)
        check_weight("covariance", covariance)
        self.variance = variance
        self.criterion = VICRegLoss(invariance, variance, covariance, gather_distributed=True)

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        with no_autocast(z0):
            return Output(self.criterion(z0, z1), z0.detach())

    def constant_loss(self, batch: int) -> float:
        """No variance: the hinge at 1 − √10⁻⁴."""
        return constant_loss(self.name, variance=self.variance)
