"""SimCLR: two views of an image against all other images of the batch.

Chen, Kornblith, Norouzi & Hinton, 2020, https://arxiv.org/abs/2002.05709.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class SimCLR(Method):
    """NT-Xent over the 2B embeddings z of both views, s = cosine similarity / temperature.

        ℓᵢⱼ = −log [ exp s(zᵢ, zⱼ) / Σ_{k≠i} exp s(zᵢ, zₖ) ]

    averaged over the 2B positive pairs (i, j). Negatives come from all ranks, with their
    gradients. The views pass the backbone one after the other, as in LightlySSL: BatchNorm
    sees one view at a time.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        temperature: τ.

    Example:
        >>> from torch import nn
        >>> method = SimCLR(nn.Flatten(), nn.Linear(3 * 8 * 8, 16))
        >>> loss, embeddings = method([torch.rand(4, 3, 8, 8), torch.rand(4, 3, 8, 8)])
        >>> loss.ndim, embeddings.shape, round(method.constant_loss(4), 3)  # ln 7
        (0, torch.Size([4, 16]), 1.946)
    """

    name = "simclr"

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, *, temperature: float = 0.5
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        self.temperature = temperature

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        with base.no_autocast(z0):
            return Output(nt_xent(z0, z1, self.temperature), z0.detach())

    def constant_loss(self, batch: int) -> float:
        """2·batch − 1 candidates, all equally likely."""
        return constant_loss(self.name, batch_size=batch)


def nt_xent(z0: Tensor, z1: Tensor, temperature: float, *, gather: bool = True) -> Tensor:
    """NT-Xent of this rank's 2B embeddings among the 2BW of all ranks; or, alone, W = 1.

    LightlySSL's loss does the same on one process; on several GPUs its diagonal mask is made
    on the CPU and indexed by tensors on the device, which torch refuses.
    """
    z0, z1 = F.normalize(z0, dim=1), F.normalize(z1, dim=1)
    everyone = torch.cat([base.gathered(z0), base.gathered(z1)] if gather else [z0, z1])  # (2BW, d)
    first = base.rank() * len(z0) if gather else 0
    mine = torch.arange(first, first + len(z0), device=z0.device)
    other = mine + len(everyone) // 2
    itself, partner = torch.cat([mine, other]), torch.cat([other, mine])
    logits = torch.cat([z0, z1]) @ everyone.T / temperature
    return F.cross_entropy(logits.scatter(1, itself[:, None], -math.inf), partner)
