"""NNCLR: a view against the nearest neighbour, among earlier images, of the other view.

Dwibedi, Aytar, Tompson, Sermanet & Zisserman, 2021, https://arxiv.org/abs/2104.14548.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class NNCLR(Method):
    """InfoNCE of the neighbour NN(z) in a queue of earlier embeddings with the predictions p.

        −log [ exp(NN(zᵢ)·pᵢ⁺/τ) / Σₖ exp(NN(zᵢ)·pₖ⁺/τ) ]

    where p⁺ predicts the other view; all vectors are of unit length, k runs over the batches of all
    ranks, and both directions are averaged. As in the paper's pseudo-code the first view's
    embeddings enter the queue after each step. The queue is in the checkpoint; it starts with
    random directions.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        prediction_head: embeddings to predictions.
        temperature: τ.
        queue_size: embeddings in which neighbours are looked for.
    """

    name = "nnclr"
    predicts = True

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        prediction_head: nn.Module,
        *,
        temperature: float = 0.1,
        queue_size: int = 98304,
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        self.prediction_head = prediction_head
        self.temperature = temperature
        self.queue = base.Queue(queue_size, base.embedding_dim(projection_head))

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views)
        z0, z1 = (self.project(view) for view in views)
        p0, p1 = base.full(self.prediction_head(z0)), base.full(self.prediction_head(z1))
        with base.no_autocast(z0):
            loss = (self.info_nce(z0, p1) + self.info_nce(z1, p0)) / 2
        if self.training:
            self.queue.put(F.normalize(z0.detach(), dim=1))
        return Output(loss, z0.detach())

    def info_nce(self, z: Tensor, p: Tensor) -> Tensor:
        """Of this rank's rows, against the predictions of all ranks.

        Args:
            z: embeddings of a view, (B, d).
            p: predictions of the other one, (B, d).

        Returns:
            The mean over the rows.
        """
        everyone = base.gathered(F.normalize(p, dim=1))  # (B·W, d)
        mine = torch.arange(len(z), device=z.device) + base.rank() * len(z)
        return F.cross_entropy(self.neighbours(z) @ everyone.T / self.temperature, mine)

    @torch.no_grad()
    def neighbours(self, z: Tensor) -> Tensor:
        """The row of the queue nearest to each embedding, by cosine.

        Args:
            z: (B, d).

        Returns:
            (B, d), of unit length.
        """
        rows = self.queue.rows.to(z)
        return rows[(F.normalize(z, dim=1) @ rows.T).argmax(1)]

    def constant_loss(self, batch: int) -> float:
        """``batch`` predictions, all equally likely."""
        return constant_loss(self.name, batch_size=batch)
