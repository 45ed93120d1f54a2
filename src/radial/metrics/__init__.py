"""Label-free quality metrics: plain functions of tensors, a registry, one accumulator.

Names are imported when first used: the registry alone does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radial.metrics.classes import (
        ACR,
        Alignment,
        InfoNCE,
        LiDAR,
        NESum,
        ParticipationRatio,
        RankMe,
        StableRank,
        Uniformity,
        ViewRetrieval,
    )
    from radial.metrics.clusters import (
        cluster_learnability,
        kmeans_agreement,
        kmeans_davies_bouldin,
        kmeans_silhouette,
    )
    from radial.metrics.dimension import mst_dimension, two_nn
    from radial.metrics.gram import Spectra
    from radial.metrics.hypersphere import self_cluster, uniformity, w2_uniformity
    from radial.metrics.multiview import alignment, lidar, rotation_probe
    from radial.metrics.registry import SCORES, ScoreInfo
    from radial.metrics.retrieval import Gallery, acr, arc, gacr, info_nce, view_retrieval
    from radial.metrics.scores import Score, Scores, compare
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

__all__ = [
    "ACR",
    "SCORES",
    "Alignment",
    "Gallery",
    "InfoNCE",
    "LiDAR",
    "NESum",
    "ParticipationRatio",
    "RankMe",
    "Score",
    "ScoreInfo",
    "Scores",
    "Spectra",
    "StableRank",
    "Uniformity",
    "ViewRetrieval",
    "acr",
    "agreement",
    "alignment",
    "alpha_req",
    "arc",
    "center_rank",
    "center_spread",
    "cluster_learnability",
    "compare",
    "decorrelation",
    "gacr",
    "info_nce",
    "information",
    "kmeans_agreement",
    "kmeans_davies_bouldin",
    "kmeans_silhouette",
    "lidar",
    "mst_dimension",
    "nesum",
    "occupancy",
    "participation_ratio",
    "rankme",
    "rankme_centred",
    "rotation_probe",
    "self_cluster",
    "sns",
    "stable_rank",
    "two_nn",
    "uniformity",
    "view_retrieval",
    "w2_uniformity",
]

_HOME = {
    "classes": (
        "ACR", "Alignment", "InfoNCE", "LiDAR", "NESum", "ParticipationRatio", "RankMe",
        "StableRank", "Uniformity", "ViewRetrieval",
    ),
    "clusters": (
        "cluster_learnability", "kmeans_agreement", "kmeans_davies_bouldin", "kmeans_silhouette",
    ),
    "dimension": ("mst_dimension", "two_nn"),
    "gram": ("Spectra",),
    "hypersphere": ("self_cluster", "uniformity", "w2_uniformity"),
    "multiview": ("alignment", "lidar", "rotation_probe"),
    "registry": ("SCORES", "ScoreInfo"),
    "retrieval": ("Gallery", "acr", "arc", "gacr", "info_nce", "view_retrieval"),
    "scores": ("Score", "Scores", "compare"),
    "separation": (
        "agreement", "center_rank", "center_spread", "information", "occupancy", "sns",
    ),
    "spectra": (
        "alpha_req", "decorrelation", "nesum", "participation_ratio", "rankme", "rankme_centred",
        "stable_rank",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            value = getattr(import_module(f"radial.metrics.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'radial.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
