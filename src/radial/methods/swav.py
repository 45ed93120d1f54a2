"""SwAV: predict the prototypes that another view of the image was assigned to.

Caron, Misra, Mairal, Goyal, Bojanowski & Joulin, 2020, https://arxiv.org/abs/2006.09882.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.checks import check_size, needs
from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class SwAV(Method):
    """Cross-entropy of each view's softmax over prototypes with another view's code q.

        −Σₖ qₖ log softmaxₖ(C z / τ)

    Codes come from the first two views by three Sinkhorn iterations (ε = 0.05) over the
    batches of all ranks, in float32; predictions from every other view (multi-crop). The
    prototypes C have no bias, are of unit length after every step, and stay as they are for
    the first ``frozen`` share of training. With ``queue_size`` > 0 embeddings of earlier
    batches join the Sinkhorn problem once the queue is full, each rank with its share.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        temperature: τ.
        prototypes: K, how many.
        queue_size: embeddings of earlier batches; 0 for none.
        frozen: share of training for which the prototypes stay as they are.
    """

    name = "swav"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        *,
        temperature: float = 0.1,
        prototypes: int = 2048,
        queue_size: int = 0,
        frozen: float = 0.01,
    ) -> None:
        needs("train", "lightly")
        from lightly.loss.swav_loss import SwaVLoss  # here: its package takes longer than torch

        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        check_size("prototypes", prototypes, minimum=2)
        if not 0.0 <= frozen <= 1.0:
            raise ValueError(f"frozen must lie between 0 and 1, not {frozen!r}")
        dim = base.embedding_dim(projection_head)
        self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.frozen = frozen
        self.criterion = SwaVLoss(temperature=temperature, sinkhorn_gather_distributed=True)
        self.queue = (
            base.Queue(queue_size, 2 * dim) if queue_size else None
        )  # both views side by side
        self.normalize_prototypes()

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views, crops=True)
        z = [self.project(view) for view in views]
        with base.no_autocast(z[0]):
            unit = [F.normalize(embedding, dim=1) for embedding in z]
            scores = [self.prototypes(embedding) for embedding in unit]
            loss = self.criterion(scores[:2], scores[2:], self.queue_scores())
        if self.training and self.queue is not None:
            self.queue.put(torch.cat(unit[:2], dim=1).detach())
        return Output(loss.squeeze(0), z[0].detach())

    @torch.no_grad()
    def queue_scores(self) -> list[Tensor] | None:
        """The prototypes' scores of this rank's share of the queue.

        Returns:
            One tensor for each of the first two views; None until the queue is full.
        """
        if self.queue is None or not self.queue.full:
            return None
        share = self.queue.rows[base.rank() :: base.world_size()]
        return [self.prototypes(rows) for rows in share.chunk(2, dim=1)]

    def after_backward(self, progress: float) -> None:
        if progress < self.frozen:
            self.prototypes.weight.grad = None

    def after_step(self, progress: float) -> None:
        self.normalize_prototypes()

    @torch.no_grad()
    def normalize_prototypes(self) -> None:
        """Back to unit length, as after every step."""
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))

    def constant_loss(self, batch: int) -> float:
        """Codes spread evenly over the prototypes."""
        return constant_loss(self.name, prototypes=self.prototypes.out_features)
