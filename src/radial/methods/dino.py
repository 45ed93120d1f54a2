"""DINO: a student learns, from small crops too, what its slow teacher says of large ones.

Caron, Touvron, Misra, Jégou, Mairal, Bojanowski & Joulin, 2021, https://arxiv.org/abs/2104.14294.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from radial.checks import check_size
from radial.methods import base
from radial.methods.base import Method, Output
from radial.rbf.functions import squared_euclidean
from radial.verdicts import constant_loss


class DINO(Method):
    """Cross-entropy of the student's softmax over prototypes with the teacher's.

        −Σₖ Pₜᵏ log Pₛᵏ,  Pₛ = softmax(gₛ / τ_s),  Pₜ = softmax((gₜ − c) / τ_t)

    of each of the first two views, seen by the teacher, with every other view, seen by the student.
    The teacher is a momentum copy whose momentum goes from its base to 1 along a cosine; sharpening
    (τ_t < τ_s) and the centre c, a running mean of g_t over all ranks, keep it from collapsing.

    The scores g of an embedding z, brought to unit length, are its cosines with K prototypes
    (LightlySSL's weight-normalised last layer), or, with ``radial``, −(ε_k ‖z − c_k‖)²: the softmax
    is then that of K normalised Gaussian kernels. Kernels start on the unit sphere with ε = 1/√2,
    where −(ε‖z − c‖)² = cos − 1, so both forms begin alike; after that centres may leave the sphere
    and each kernel has a width of its own. Prototypes stay as they are for the first ``frozen``
    share of training.

    Args:
        backbone: images to features.
        projection_head: features to embeddings; LightlySSL's head without its last layer.
        temperature: τ_s, of the student.
        teacher_temperature: τ_t.
        momentum: base momentum of the teacher.
        center_momentum: of the centre.
        prototypes: K.
        radial: kernels in place of cosines.
        frozen: share of training in which prototypes do not move.
    """

    name = "dino"

    center: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        *,
        temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        momentum: float = 0.996,
        center_momentum: float = 0.9,
        prototypes: int = 65536,
        radial: bool = False,
        frozen: float = 0.01,
    ) -> None:
        super().__init__(backbone, projection_head)
        base.check_temperature(temperature)
        base.check_temperature(teacher_temperature, "teacher_temperature")
        base.check_momentum(momentum)
        base.check_momentum(center_momentum, "center_momentum")
        check_size("prototypes", prototypes, minimum=2)
        if not 0.0 <= frozen <= 1.0:
            raise ValueError(f"frozen must lie between 0 and 1, not {frozen!r}")
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        self.momentum, self.center_momentum, self.frozen = momentum, center_momentum, frozen
        form = RadialPrototypes if radial else CosinePrototypes
        self.prototypes = form(base.embedding_dim(projection_head), prototypes)
        self.teacher_backbone = base.momentum_copy(backbone)
        self.teacher_head = base.momentum_copy(projection_head)
        self.teacher_prototypes = base.momentum_copy(self.prototypes)
        self.register_buffer("center", torch.zeros(prototypes))

    def forward(self, views: Sequence[Tensor], progress: float = 0.0) -> Output:
        base.check_view_count(views, crops=True)
        z = [self.project(view) for view in views]
        with torch.no_grad():
            t = [base.full(self.teacher_head(self.teacher_backbone(view))) for view in views[:2]]
        with base.no_autocast(z[0]):
            student = [F.log_softmax(self.prototypes(e) / self.temperature, -1) for e in z]
            with torch.no_grad():
                scores = torch.stack([self.teacher_prototypes(e) for e in t])  # (2, B, K)
                teacher = F.softmax((scores - self.center) / self.teacher_temperature, -1)
            pairs = [(i, j) for i, j in product(range(2), range(len(z))) if i != j]
            terms = [-(teacher[i] * student[j]).sum(-1).mean() for i, j in pairs]
        if self.training:
            mean = scores.flatten(0, 1).mean(0)
            if (world := base.world_size()) > 1:
                distributed.all_reduce(mean)
                mean /= world
            self.center.lerp_(mean, 1 - self.center_momentum)
        return Output(torch.stack(terms).mean(), z[0].detach())

    def after_backward(self, progress: float) -> None:
        if progress < self.frozen:
            for parameter in self.prototypes.parameters():
                parameter.grad = None

    def after_step(self, progress: float) -> None:
        momentum = base.cosine_momentum(self.momentum, progress)
        base.ema_update(self.teacher_backbone, self.backbone, momentum)
        base.ema_update(self.teacher_head, self.projection_head, momentum)
        base.ema_update(self.teacher_prototypes, self.prototypes, momentum)

    def constant_loss(self, batch: int) -> float:
        """The centre takes a constant away: the teacher is even over the prototypes."""
        return constant_loss(self.name, prototypes=len(self.center))


class CosinePrototypes(nn.Module):
    """cos(z, w_k) with K directions, (B, d) → (B, K)."""

    def __init__(self, dim: int, prototypes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(prototypes, dim), dim=1))

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1) @ F.normalize(self.weight, dim=1).T


class RadialPrototypes(nn.Module):
    """−(ε_k ‖z/‖z‖ − c_k‖)² to K kernels, (B, d) → (B, K); parameters named as in an RBFLayer."""

    def __init__(self, dim: int, prototypes: int) -> None:
        super().__init__()
        self.kernels_centers = nn.Parameter(F.normalize(torch.randn(prototypes, dim), dim=1))
        self.log_shapes = nn.Parameter(torch.full((prototypes,), -math.log(2.0) / 2))

    def forward(self, z: Tensor) -> Tensor:
        squared = squared_euclidean(F.normalize(z, dim=1), self.kernels_centers)
        return -squared * torch.exp(2.0 * self.log_shapes)
