"""Label-free quality metrics: plain functions of tensors, a registry, one accumulator."""

from radial.metrics.assignments import agreement, information, occupancy
from radial.metrics.clusters import kmeans_davies_bouldin, kmeans_silhouette
from radial.metrics.dimension import mst_dimension, two_nn
from radial.metrics.gram import Spectra
from radial.metrics.hypersphere import alignment, self_cluster, uniformity, w2_uniformity
from radial.metrics.lidar import lidar
from radial.metrics.registry import SCORES, ScoreInfo
from radial.metrics.retrieval import view_retrieval
from radial.metrics.scores import Score, Scores, compare
from radial.metrics.separation import center_rank, center_spread, sns
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
    "SCORES",
    "Score",
    "ScoreInfo",
    "Scores",
    "Spectra",
    "agreement",
    "alignment",
    "alpha_req",
    "center_rank",
    "center_spread",
    "compare",
    "decorrelation",
    "information",
    "kmeans_davies_bouldin",
    "kmeans_silhouette",
    "lidar",
    "mst_dimension",
    "nesum",
    "occupancy",
    "participation_ratio",
    "rankme",
    "rankme_centred",
    "self_cluster",
    "sns",
    "stable_rank",
    "two_nn",
    "uniformity",
    "view_retrieval",
    "w2_uniformity",
]
