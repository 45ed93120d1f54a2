"""Two supervised methods: fixed points for pools of label-free runs, not methods to choose from.

Cross-entropy, and SupCon: Khosla et al., 2020, https://arxiv.org/abs/2004.11362.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.checks import check_size
from radial.methods import base
from radial.methods.base import Method, Output
from radial.verdicts import constant_loss


class CrossEntropy(Method):
    """−log softmax(W z)_y of both views' embeddings z and the label y.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        classes: how many there are.
    """

    name = "supervised"
    labelled = True

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, *, classes: int = 1000
    ) -> None:
        super().__init__(backbone, projection_head)
        check_size("classes", classes, minimum=2)
        self.classifier = nn.Linear(base.embedding_dim(projection_head), classes)

    def forward(
        self, views: Sequence[Tensor], progress: float = 0.0, labels: Tensor | None = None
    ) -> Output:
        base.check_view_count(views)
        labels = given(labels)
        z0, z1 = (self.project(view) for view in views)
        with base.no_autocast(z0):
            losses = [F.cross_entropy(self.classifier(z), labels) for z in (z0, z1)]
            return Output(torch.stack(losses).mean(), z0.detach())

    def constant_loss(self, batch: int) -> float:
        """All classes equally likely."""
        return constant_loss(self.name, classes=self.classifier.out_features)


class SupCon(Method):
    """SimCLR whose positives P(i) are all views of the same class.

        −1/|P(i)| Σ_{p∈P(i)} log [ exp(zᵢ·zₚ/τ) / Σ_{k≠i} exp(zᵢ·zₖ/τ) ]

    over the views of all ranks, z of unit length (the paper's L_out, its equation 2). Where every
    image has a label of its own this is NT-Xent.

    Args:
        backbone: images to features.
        projection_head: features to embeddings.
        temperature: τ.
    """

    name = "supcon"
    labelled = True

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, *, temperature: float = 0.1
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        self.temperature = temperature

    def forward(
        self, views: Sequence[Tensor], progress: float = 0.0, labels: Tensor | None = None
    ) -> Output:
        base.check_view_count(views)
        labels = given(labels)
        z0, z1 = (self.project(view) for view in views)
        with base.no_autocast(z0):
            unit = [F.normalize(z, dim=1) for z in (z0, z1)]
            everyone = torch.cat([base.gathered(u) for u in unit])  # (2BW, d)
            classes = base.gathered(labels)
            rows = torch.arange(len(labels), device=labels.device) + base.rank() * len(labels)
            itself = torch.cat([rows, rows + len(classes)])[:, None]
            logits = torch.cat(unit) @ everyone.T / self.temperature
            log_p = logits.scatter(1, itself, -math.inf).log_softmax(1)
            same = labels.repeat(2)[:, None] == classes.repeat(2)[None]
            same = same.scatter(1, itself, False)
            per_view = -log_p.masked_fill(~same, 0.0).sum(1) / same.sum(1)
            return Output(per_view.mean(), z0.detach())

    def constant_loss(self, batch: int) -> float:
        """2·batch − 1 candidates, all equally likely."""
        return constant_loss(self.name, batch_size=batch)


def given(labels: Tensor | None) -> Tensor:
    if labels is None:
        raise ValueError("the method needs labels")
    return labels
