"""The registry of label-free scores: what each needs, which way is better, how it is computed.

Every score is a plain function of another file of this package, with the settings fixed here
before any accuracy is looked at; but for the two kinds of retrieval, which were chosen by accuracy
on two methods and confirmed on three others (docs/FINDINGS.md).

Legend: N images, n images with q views each, D features, K kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from radial.checks import check_choice
from radial.metrics import (
    assignments,
    clusters,
    dimension,
    gram,
    hypersphere,
    retrieval,
    separation,
    spectra,
)
from radial.metrics.lidar import lidar
from radial.rbf.kernels import Kernels

LAYERS = ("kernels", "backbone", "projector")
ARROWS = {  # which way is better: a sign, and words
    "higher": ("↑", "higher is better"),
    "lower": ("↓", "lower is better"),
    "near 1": ("≈1", "nearer to 1 is better"),
    "none": ("·", "describes, does not rank"),
}
LIDAR_DELTA = 1e-4  # as in the paper; added to the within-image covariance


class Sample:
    """What the scores of one layer are computed from; what is absent is None."""

    def __init__(
        self,
        *,
        features: Tensor | None = None,  # (N, D)
        views: Tensor | None = None,  # (n, q, D)
        kernels: Kernels | None = None,
        nearest: Tensor | None = None,  # (n, q) the kernel nearest to each view
        activations: Tensor | None = None,  # (n, q, K)
        distances: Tensor | None = None,  # (n, q, K) squared and scaled, (ε‖x − c‖)²
        half_of: tuple[Sample, int, int] | None = None,  # with the number and seed of the draw
    ) -> None:
        self.half_of = half_of
        self.features, self.views, self.kernels = features, views, kernels
        self.nearest, self.activations, self.distances = nearest, activations, distances

    @cached_property
    def spectra(self) -> gram.Spectra:
        assert self.features is not None
        return gram.Spectra(self.features)

    @cached_property
    def clustered(self) -> clusters.Clusters:
        assert self.features is not None
        return clusters.kmeans(self.features)

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
        for name in ("features", "views", "nearest", "activations", "distances"):
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


def _half(length: int, number: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * seed + number)
    return torch.randperm(length, generator=generator)[: (length + 1) // 2].sort().values


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInfo:
    """A score of the registry."""

    name: str
    description: str
    needs: str  # an attribute of Sample: kernels, features, views, nearest and so on
    layer: str  # where it is read unless told otherwise
    better: str  # higher, lower, near 1
    settings: str
    reference: str
    fn: Callable[[Sample], float]
    at_most: int | None = None  # images, of those there are

    @property
    def layers(self) -> tuple[str, ...]:
        return LAYERS[1:] if self.needs in ("features", "views") else LAYERS[:1]


def _kernels(sample: Sample) -> Kernels:
    assert sample.kernels is not None
    return sample.kernels


def _sns(scales: str, **options: Any) -> Callable[[Sample], float]:
    def score(sample: Sample) -> float:
        found = _kernels(sample)
        return float(
            separation.sns(found.centers.double(), getattr(found, scales).double(), **options)
        )

    return score


def _of(name: str, fn: Callable[..., float], **options: Any) -> Callable[[Sample], float]:
    """``fn`` of one attribute of the sample."""
    return lambda sample: fn(getattr(sample, name), **options)


def _retrieval(name: str) -> Callable[[Sample], float]:
    return lambda sample: retrieval.view_retrieval(sample.first(name, retrieval.IMAGES))


def _occupancy(sample: Sample) -> float:
    assert sample.nearest is not None
    assert sample.activations is not None
    return assignments.occupancy(sample.nearest, sample.activations.shape[-1])


_SNS = "Schliebitz et al., RBFN projection heads"
_OURS = "of this project"
_CHOSEN = "of this project, chosen on SimCLR and BYOL: docs/FINDINGS.md"
_RETRIEVAL = (
    f"whitened, shrinkage {retrieval.SHRINKAGE:g}, mean log rank, at most {retrieval.IMAGES} images"
)
_ALPHA_REQ = "Agrawal et al., 2022, https://arxiv.org/abs/2202.05808"
_UNIFORMITY = "Wang & Isola, 2020, https://arxiv.org/abs/2005.10242"


def _entry(name: str, description: str, **facts: Any) -> ScoreInfo:
    return ScoreInfo(name=name, description=description, **facts)


_ENTRIES = (
    _entry(
        "sns_paper",
        "separation of kernels as published, shapes used as if they were widths",
        needs="kernels", layer="kernels", better="higher",
        settings="δ = ‖c_i−c_j‖/(√D √(ε_i²+ε_j²+1e-8))", reference=_SNS, fn=_sns("shapes"),
    ),
    _entry(
        "sns_width",
        "separation of kernels with widths: the same for every form of one function",
        needs="kernels", layer="kernels", better="higher",
        settings="δ with σ = 1/(√2 ε) for ε", reference=_SNS, fn=_sns("widths"),
    ),
    _entry(
        "sns_width_raw",
        "the same without √D; starts near its maximum 1/e on a calibrated head",
        needs="kernels", layer="kernels", better="higher",
        settings="δ with σ for ε, without √D", reference=_SNS,
        fn=_sns("widths", dimension_correction=False),
    ),
    _entry(
        "center_spread",
        "root mean square deviation of the centres",
        needs="kernels", layer="kernels", better="higher",
        settings="per coordinate", reference=_OURS,
        fn=lambda sample: separation.center_spread(_kernels(sample).centers),
    ),
    _entry(
        "center_rank",
        "effective rank of the centres",
        needs="kernels", layer="kernels", better="higher",
        settings="centred", reference=_OURS,
        fn=lambda sample: separation.center_rank(_kernels(sample).centers),
    ),
    _entry(
        "kernel_occupancy",
        "entropy of the nearest kernel over images: how many kernels are in use",
        needs="nearest", layer="kernels", better="higher",
        settings="nearest in ε‖x−c‖, over ln K", reference=_OURS, fn=_occupancy,
    ),
    _entry(
        "kernel_information",
        "mutual information between the nearest kernels of two views, beyond chance",
        needs="nearest", layer="kernels", better="higher",
        settings="nats, expected value under chance subtracted", reference=_OURS,
        fn=_of("nearest", assignments.information),
    ),
    _entry(
        "kernel_agreement",
        "how often two views of an image share their nearest kernel, beyond chance",
        needs="nearest", layer="kernels", better="higher",
        settings="Scott's π", reference=_OURS, fn=_of("nearest", assignments.agreement),
    ),
    _entry(
        "kernel_rank",
        "effective rank of the kernels' activations",
        needs="activations", layer="kernels", better="higher",
        settings="all views, standardised for each kernel, ε 1e-7", reference=_OURS,
        fn=lambda sample: spectra.rankme_centred(sample.standardised.flatten(0, -2)),
    ),
    _entry(
        "kernel_lidar",
        "LiDAR of the kernels' activations",
        needs="activations", layer="kernels", better="higher",
        settings=f"standardised for each kernel, δ {LIDAR_DELTA:g}, ε 1e-7", reference=_OURS,
        fn=_of("standardised", lidar, delta=LIDAR_DELTA),
    ),
    _entry(
        "kernel_retrieval",
        "do the views of an image find each other by their distances to the kernels",
        needs="distances", layer="kernels", better="higher",
        settings=_RETRIEVAL, reference=_CHOSEN, at_most=retrieval.IMAGES,
        fn=_retrieval("distances"),
    ),
    _entry(
        "rankme",
        "effective rank by singular values; compares runs of one method only",
        needs="features", layer="projector", better="higher",
        settings="uncentred, ε 1e-7", reference="Garrido et al., 2023, https://arxiv.org/abs/2210.02885",
        fn=_of("spectra", spectra.rankme),
    ),
    _entry(
        "rankme_centred",
        "the same without the mean direction",
        needs="features", layer="projector", better="higher",
        settings="centred, ε 1e-7", reference=_OURS, fn=_of("spectra", spectra.rankme_centred),
    ),
    _entry(
        "lidar",
        "effective rank of what tells images apart beyond their views",
        needs="views", layer="projector", better="higher",
        settings=f"δ {LIDAR_DELTA:g}, ε 1e-7",
        reference="Thilak et al., 2023, https://arxiv.org/abs/2312.04000",
        fn=_of("views", lidar, delta=LIDAR_DELTA),
    ),
    _entry(
        "view_retrieval",
        "do the views of an image find each other among those of all images",
        needs="views", layer="backbone", better="higher",
        settings=_RETRIEVAL, reference=_CHOSEN, at_most=retrieval.IMAGES,
        fn=_retrieval("views"),
    ),
    _entry(
        "alpha_req",
        "decay of the spectrum; not monotone, never to be maximised",
        needs="features", layer="backbone", better="near 1",
        settings="centred, ranks weighted 1/rank", reference=_ALPHA_REQ,
        fn=lambda sample: spectra.alpha_req(sample.spectra).alpha,
    ),
    _entry(
        "nesum",
        "sum of the eigenvalues over the largest",
        needs="features", layer="backbone", better="higher",
        settings="centred", reference="He & Ozay, 2022", fn=_of("spectra", spectra.nesum),
    ),
    _entry(
        "stable_rank",
        "squared Frobenius norm over the largest squared singular value",
        needs="features", layer="backbone", better="higher",
        settings="uncentred", reference="Tsitsulin et al., 2023, https://arxiv.org/abs/2305.16562",
        fn=_of("spectra", spectra.stable_rank),
    ),
    _entry(
        "participation_ratio",
        "(Σλ)² / Σλ²",
        needs="features", layer="backbone", better="higher",
        settings="centred", reference="Gao et al., 2017, https://doi.org/10.1101/214262",
        fn=_of("spectra", spectra.participation_ratio),
    ),
    _entry(
        "decorrelation",
        "mean squared correlation of two features; confounded where a method optimises it",
        needs="features", layer="backbone", better="lower",
        settings="centred", reference="Zbontar et al., 2021, https://arxiv.org/abs/2103.03230",
        fn=_of("spectra", spectra.decorrelation),
    ),
    _entry(
        "alignment",
        "mean squared distance of two views of an image",
        needs="views", layer="projector", better="lower",
        settings="unit length", reference=_UNIFORMITY, fn=_of("views", hypersphere.alignment),
    ),
    _entry(
        "uniformity",
        "log mean Gaussian potential of all pairs",
        needs="features", layer="projector", better="lower",
        settings="unit length, t 2", reference=_UNIFORMITY,
        fn=_of("features", hypersphere.uniformity),
    ),
    _entry(
        "w2_uniformity",
        "Wasserstein distance to an isotropic Gaussian",
        needs="features", layer="projector", better="lower",
        settings="unit length", reference="Fang et al., 2024, https://arxiv.org/abs/2403.00642",
        fn=_of("spectra", hypersphere.w2_uniformity),
    ),
    _entry(
        "self_cluster",
        "squared cosines of all pairs, 0 at random and 1 where all are alike",
        needs="features", layer="backbone", better="lower",
        settings="unit length", reference="Tsitsulin et al., 2023, https://arxiv.org/abs/2305.16562",
        fn=_of("spectra", hypersphere.self_cluster),
    ),
    _entry(
        "two_nn",
        "intrinsic dimension by the ratio of the two nearest distances",
        needs="features", layer="backbone", better="lower",
        settings="duplicates left out, 10 % discarded",
        reference="Facco et al., 2017, https://doi.org/10.1038/s41598-017-11873-y",
        fn=_of("features", dimension.two_nn),
    ),
    _entry(
        "mst_dimension",
        "intrinsic dimension by the growth of minimum spanning trees",
        needs="features", layer="backbone", better="lower",
        settings="duplicates left out, at most 4,096 images",
        reference="Birdal et al., 2021, https://arxiv.org/abs/2111.13171",
        fn=_of("features", dimension.mst_dimension),
    ),
    _entry(
        "kmeans_silhouette",
        "silhouette of ten k-means clusters; a weak baseline",
        needs="features", layer="backbone", better="higher",
        settings="10 clusters", reference="scikit-learn",
        fn=_of("clustered", clusters.kmeans_silhouette),
    ),
    _entry(
        "kmeans_davies_bouldin",
        "Davies–Bouldin index of ten k-means clusters; a weak baseline",
        needs="features", layer="backbone", better="lower",
        settings="10 clusters", reference="scikit-learn",
        fn=_of("clustered", clusters.kmeans_davies_bouldin),
    ),
)  # fmt: skip

SCORES: Mapping[str, ScoreInfo] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def parse(name: str) -> tuple[str, str]:
    """``rankme`` → (rankme, projector), ``rankme@backbone`` → (rankme, backbone).

    >>> parse("lidar@backbone")
    ('lidar', 'backbone')
    """
    name, _, layer = name.partition("@")
    check_choice("score", name, SCORES)
    if layer:
        check_choice(f"layer of {name}", layer, SCORES[name].layers)
    return name, layer or SCORES[name].layer


def layers_of(name: str) -> tuple[str, ...]:
    """The layers that ``name`` may be read from: the one it names, or all, the usual one first.

    >>> layers_of("rankme"), layers_of("rankme@backbone")
    (('projector', 'backbone'), ('backbone',))
    """
    chosen, layer = parse(name)
    if "@" in name:
        return (layer,)
    return (layer, *(other for other in SCORES[chosen].layers if other != layer))


def kernel_scores(found: Kernels) -> dict[str, float]:
    """All scores that the kernels alone give: what a run records before its first step."""
    sample = Sample(kernels=found)
    return {name: info.fn(sample) for name, info in SCORES.items() if info.needs == "kernels"}
