"""How each score of the registry is computed, from what was collected of one layer.

Legend: N images, n images with q views each, D features, K kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from radial.metrics.clusters import (
    Clusters,
    cluster_learnability,
    kmeans,
    kmeans_agreement,
    kmeans_davies_bouldin,
    kmeans_silhouette,
)
from radial.metrics.dimension import mst_dimension, two_nn
from radial.metrics.gram import Spectra
from radial.metrics.hypersphere import Pairs, self_cluster, uniformity, w2_uniformity
from radial.metrics.multiview import alignment, lidar, rotation_probe
from radial.metrics.registry import (
    LIDAR_DELTA,
    PAIRS_IMAGES,
    RETRIEVAL_IMAGES,
    ROTATION_IMAGES,
    SCORES,
)
from radial.metrics.retrieval import Gallery, acr, arc, gacr, info_nce, view_retrieval
from radial.metrics.separation import (
    agreement,
    center_rank,
    center_spread,
    information,
    occupancy,
    sns,
)
from radial.metrics.spectra import (
    alpha_req,
    decorrelation,
    nesum,
    participation_ratio,
    rankme,
    rankme_centred,
    stable_rank,
)
from radial.rbf.kernels import Kernels

BY_IMAGE = (
    "features", "views", "recipes", "rotations", "start_views", "nearest", "activations",
    "distances",
)  # fmt: skip


class Sample:
    """What the scores of one layer are computed from; what is absent is None."""

    def __init__(
        self,
        *,
        features: Tensor | None = None,  # (N, D)
        views: Tensor | None = None,  # (n, q, D)
        recipes: Tensor | None = None,  # (n, r, q, D) q views by each of r recipes
        rotations: Tensor | None = None,  # (n, 4, D) of images turned by quarters
        start_views: Tensor | None = None,  # (n, q, D) of the network before its first step
        kernels: Kernels | None = None,
        nearest: Tensor | None = None,  # (n, q) the kernel nearest to each view
        activations: Tensor | None = None,  # (n, q, K)
        distances: Tensor | None = None,  # (n, q, K) squared and scaled, (ε‖x − c‖)²
        half_of: tuple[Sample, int, int] | None = None,  # with the number and seed of the draw
    ) -> None:
        self.half_of = half_of
        self.features, self.views, self.kernels = features, views, kernels
        self.recipes, self.rotations, self.start_views = recipes, rotations, start_views
        self.nearest, self.activations, self.distances = nearest, activations, distances
        self._galleries: dict[str, Gallery] = {}

    @cached_property
    def spectra(self) -> Spectra:
        assert self.features is not None
        return Spectra(self.features)

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.first("features", PAIRS_IMAGES))

    @cached_property
    def clustered(self) -> Clusters:
        assert self.features is not None
        return kmeans(self.features)

    @cached_property
    def standardised(self) -> Tensor:
        """Activations with mean 0 and variance 1 for each kernel; constant ones are 0."""
        assert self.activations is not None
        flat = self.activations.double().flatten(0, -2)
        deviation = flat.std(0, correction=0)
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        return ((flat - flat.mean(0)) / scale).view(self.activations.shape)

    def has(self, needs: str) -> bool:
        return getattr(self, needs) is not None

    def size(self, needs: str) -> int:
        """Images, or kernels where the kernels alone are scored."""
        value = getattr(self, needs)
        return len(value.centers) if isinstance(value, Kernels) else len(value)

    def half(self, number: int, seed: int) -> Sample:
        """Half of the images, and half of the kernels, drawn by (seed, number); none twice."""
        parts: dict[str, Any] = {}
        for name in BY_IMAGE:
            value = getattr(self, name)
            if value is not None:
                parts[name] = value[_half(len(value), number, seed)]
        if self.kernels is not None:
            rows = _half(len(self.kernels.centers), number, seed)
            parts["kernels"] = replace(
                self.kernels,
                centers=self.kernels.centers[rows],
                shapes=self.kernels.shapes[rows],
                widths=self.kernels.widths[rows],
            )
        return Sample(**parts, half_of=(self, number, seed))

    def first(self, name: str, most: int) -> Tensor:
        """The first images at most; of a half-sample half of those, drawn in the same way."""
        if self.half_of is None:
            return getattr(self, name)[:most]  # type: ignore[no-any-return]
        whole, number, seed = self.half_of
        kept = whole.first(name, most)
        return kept[_half(len(kept), number, seed)]

    def gallery(self, name: str) -> Gallery:
        """Of the first views, or what stands for them; the scores of retrieval share it."""
        if name not in self._galleries:
            self._galleries[name] = Gallery(self.first(name, RETRIEVAL_IMAGES))
        return self._galleries[name]


def _half(length: int, number: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * seed + number)
    return torch.randperm(length, generator=generator)[: (length + 1) // 2].sort().values


def _of(name: str, fn: Callable[..., float], **options: Any) -> Callable[[Sample], float]:
    """``fn`` of one attribute of the sample."""
    return lambda sample: fn(getattr(sample, name), **options)


def _kernels(sample: Sample) -> Kernels:
    assert sample.kernels is not None
    return sample.kernels


def _sns(scales: str, **options: Any) -> Callable[[Sample], float]:
    def score(sample: Sample) -> float:
        found = _kernels(sample)
        return float(sns(found.centers.double(), getattr(found, scales).double(), **options))

    return score


def _found(fn: Callable[..., float], name: str = "views", **options: Any) -> Any:
    """``fn`` of the gallery that the scores of retrieval share."""
    return lambda sample: fn(sample.gallery(name), **options)


def _over_recipes(sample: Sample) -> float:
    return fmean(map(view_retrieval, sample.first("recipes", RETRIEVAL_IMAGES).unbind(1)))


def _relative(over: str) -> Callable[[Sample], float]:
    def score(sample: Sample) -> float:
        now, start = (gacr(sample.gallery(name), over=over) for name in ("views", "start_views"))
        return arc(now, start)

    return score


def _occupancy(sample: Sample) -> float:
    assert sample.nearest is not None
    assert sample.activations is not None
    return occupancy(sample.nearest, sample.activations.shape[-1])


COMPUTE: Mapping[str, Callable[[Sample], float]] = {
    "sns_paper": _sns("shapes"),
    "sns_width": _sns("widths"),
    "sns_width_raw": _sns("widths", dimension_correction=False),
    "center_spread": lambda sample: center_spread(_kernels(sample).centers),
    "center_rank": lambda sample: center_rank(_kernels(sample).centers),
    "kernel_occupancy": _occupancy,
    "kernel_information": _of("nearest", information),
    "kernel_agreement": _of("nearest", agreement),
    "kernel_rank": lambda sample: rankme_centred(sample.standardised.flatten(0, -2)),
    "kernel_lidar": _of("standardised", lidar, delta=LIDAR_DELTA),
    "kernel_retrieval": _found(view_retrieval, "distances"),
    "rankme": _of("spectra", rankme),
    "rankme_centred": _of("spectra", rankme_centred),
    "lidar": _of("views", lidar, delta=LIDAR_DELTA),
    "view_retrieval": _found(view_retrieval),
    "view_retrieval_recipes": _over_recipes,
    "view_retrieval_plain": _found(view_retrieval, whiten=False),
    "view_retrieval_top1": _found(view_retrieval, top1=True),
    "acr": _found(acr),
    "arc": _relative("min"),
    "garc_mean": _relative("mean"),
    "garc_max": _relative("max"),
    "info_nce": _found(info_nce),
    "info_nce_whitened": _found(info_nce, whiten=True),
    "rotation_probe": lambda sample: rotation_probe(sample.first("rotations", ROTATION_IMAGES)),
    "alpha_req": lambda sample: alpha_req(sample.spectra).alpha,
    "nesum": _of("spectra", nesum),
    "stable_rank": _of("spectra", stable_rank),
    "participation_ratio": _of("spectra", participation_ratio),
    "decorrelation": _of("spectra", decorrelation),
    "alignment": _of("views", alignment),
    "uniformity": _of("pairs", uniformity),
    "w2_uniformity": _of("spectra", w2_uniformity),
    "self_cluster": _of("spectra", self_cluster),
    "two_nn": _of("pairs", two_nn),
    "mst_dimension": _of("features", mst_dimension),
    "cluster_learnability": _of("features", cluster_learnability),
    "kmeans_agreement": _of("views", kmeans_agreement),
    "kmeans_silhouette": _of("clustered", kmeans_silhouette),
    "kmeans_davies_bouldin": _of("clustered", kmeans_davies_bouldin),
}


def kernel_scores(found: Kernels) -> dict[str, float]:
    """All scores that the kernels alone give: what a run records before its first step."""
    sample = Sample(kernels=found)
    return {name: COMPUTE[name](sample) for name, info in SCORES.items() if info.needs == "kernels"}
