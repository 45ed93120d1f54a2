"""Scores as torchmetrics classes: collect batches, over processes too, and call the function.

    metric = RankMe()
    for features in batches:
        metric.update(features)
    metric.compute()

Each is its function of all batches together, with the settings of the registry. Legend: B images
of a batch, b images with q views each, D features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from radial.checks import needs
from radial.metrics.hypersphere import uniformity
from radial.metrics.multiview import alignment, lidar
from radial.metrics.registry import LIDAR_DELTA
from radial.metrics.retrieval import acr, info_nce, view_retrieval
from radial.metrics.spectra import nesum, participation_ratio, rankme, stable_rank

needs("train", "torchmetrics")

from torchmetrics import Metric  # noqa: E402
from torchmetrics.utilities.data import dim_zero_cat  # noqa: E402


class _Score(Metric):
    """A function of all the batches: one value of what `update` was given, in order of ranks."""

    is_differentiable = False
    full_state_update = False
    of: ClassVar[Callable[..., float]]
    usual: ClassVar[dict[str, Any]] = {}
    dimensions: ClassVar[int]
    shape: ClassVar[str]
    batches: list[Tensor]

    def __init__(self, **options: Any) -> None:
        own = self.of.__kwdefaults__ or {}
        names = {*own, *self.usual}
        super().__init__(**{name: v for name, v in options.items() if name not in names})
        self.options = self.usual | {name: v for name, v in options.items() if name in names}
        self.add_state("batches", default=[], dist_reduce_fx="cat")

    def update(self, batch: Tensor) -> None:
        """Add a batch.

        Args:
            batch: (B, D) or, for scores of views, (b, q, D).

        Raises:
            ValueError: another shape.
        """
        if batch.dim() != self.dimensions:
            raise ValueError(f"a batch must be {self.shape}, not {tuple(batch.shape)}")
        self.batches.append(batch.detach())

    def compute(self) -> Tensor:
        """The score of all batches.

        Returns:
            A scalar, float64 on a CPU.

        Raises:
            ValueError: as the function.
        """
        return torch.tensor(
            type(self).of(dim_zero_cat(self.batches).cpu(), **self.options), dtype=torch.float64
        )


class _OfFeatures(_Score):
    dimensions, shape = 2, "(B, D)"


class _OfViews(_Score):
    dimensions, shape = 3, "(b, q, D)"


class RankMe(_OfFeatures):
    """`radial.metrics.rankme` of features (B, D): effective rank; higher is better.

    Args:
        **options: epsilon, and torchmetrics' own, such as ``dist_sync_on_step``.

    Example:
        >>> metric = RankMe()
        >>> metric.update(torch.eye(4)[:2])
        >>> metric.update(torch.eye(4)[2:])
        >>> round(float(metric.compute()), 3)
        4.0
    """

    of, higher_is_better = staticmethod(rankme), True


class LiDAR(_OfViews):
    """`radial.metrics.lidar` of views (b, q, D), δ 1e-4; higher is better.

    Args:
        **options: delta and epsilon, and torchmetrics' own.
    """

    of, higher_is_better, usual = staticmethod(lidar), True, {"delta": LIDAR_DELTA}


class ViewRetrieval(_OfViews):
    """`radial.metrics.view_retrieval` of views (b, q, D): of the first 512; higher is better.

    Args:
        **options: shrinkage, whiten and top1, and torchmetrics' own.
    """

    of, higher_is_better = staticmethod(view_retrieval), True


class ACR(_OfViews):
    """`radial.metrics.acr` of views (b, q, D), the average confusion ratio; lower is better.

    Args:
        **options: torchmetrics' own.
    """

    of, higher_is_better = staticmethod(acr), False


class InfoNCE(_OfViews):
    """`radial.metrics.info_nce` of views (b, q, D), held out; lower is better.

    Args:
        **options: temperature, whiten and shrinkage, and torchmetrics' own.
    """

    of, higher_is_better = staticmethod(info_nce), False


class Alignment(_OfViews):
    """`radial.metrics.alignment` of views (b, q, D); lower is better.

    Args:
        **options: torchmetrics' own.
    """

    of, higher_is_better = staticmethod(alignment), False


class Uniformity(_OfFeatures):
    """`radial.metrics.uniformity` of features (B, D); lower is better.

    Args:
        **options: t, and torchmetrics' own.
    """

    of, higher_is_better = staticmethod(uniformity), False


class NESum(_OfFeatures):
    """`radial.metrics.nesum` of features (B, D); higher is better.

    Args:
        **options: torchmetrics' own.
    """

    of, higher_is_better = staticmethod(nesum), True


class StableRank(_OfFeatures):
    """`radial.metrics.stable_rank` of features (B, D); higher is better.

    Args:
        **options: torchmetrics' own.
    """

    of, higher_is_better = staticmethod(stable_rank), True


class ParticipationRatio(_OfFeatures):
    """`radial.metrics.participation_ratio` of features (B, D); higher is better.

    Args:
        **options: torchmetrics' own.
    """

    of, higher_is_better = staticmethod(participation_ratio), True
