"""Barlow Twins: the cross-correlation of two views' embeddings, driven to the identity.

Zbontar, Jing, Misra, LeCun & Deny, 2021, https://arxiv.org/abs/2103.03230.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class BarlowTwins(Method):
    """Both views' embeddings correlate dimension by dimension, and with no other dimension.

        Σᵢ (1 − Cᵢᵢ)² + λ Σ_{i≠j} Cᵢⱼ²

    with C = Z₀ᵀZ₁ / N, Z the embeddings standardised over the batch of all ranks.
    LightlySSL's loss standardises each rank by itself; here two ranks give the loss and the
    gradients of one.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        redundancy: λ.
    """

    name = "barlow_twins"

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, *, redundancy: float = 5e-3
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_weight("redundancy", redundancy)
        self.redundancy = redundancy

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        with base.no_autocast(z0):
            loss = barlow_twins_loss(base.gathered(z0), base.gathered(z1), self.redundancy)
        return Output(loss, z0.detach())

    def constant_loss(self, batch: int) -> float:
        """C = 0: one for each element of the diagonal."""
        return constant_loss(self.name, output_dim=base.embedding_dim(self.projection_head))


def barlow_twins_loss(z0: Tensor, z1: Tensor, redundancy: float) -> Tensor:
    c = standardised(z0).T @ standardised(z1) / len(z0)
    diagonal = torch.diagonal(c)
    on = (1.0 - diagonal).square().sum()
    off = c.square().sum() - diagonal.square().sum()
    return on + redundancy * off


def standardised(z: Tensor, eps: float = 1e-5) -> Tensor:
    """As BatchNorm without affine parameters: biased variance, eps under the root."""
    return (z - z.mean(0)) * torch.rsqrt(z.var(0, correction=0) + eps)
