"""Scores of k-means clusters: weak baselines, to be beaten rather than trusted.

They reward any tight grouping, of classes or of anything else, depend on the number of clusters
asked for, and a collapse to a few points looks excellent to them.

Legend: N samples, D features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from radial.checks import check_size
from radial.metrics.dimension import distinct
from radial.metrics.gram import check_features

_SAMPLES = 4096  # at most; the silhouette looks at all their pairs
_STARTS = 3


class Clusters(NamedTuple):
    """The samples that were used, and the cluster of each."""

    samples: Any  # (N, D), a NumPy array
    labels: Any  # (N,)


def kmeans_silhouette(z: Tensor | Clusters, *, clusters: int = 10, seed: int = 0) -> float:
    """Mean silhouette of k-means clusters, between −1 and 1; higher is better, weakly.

    Rousseeuw, 1987, https://doi.org/10.1016/0377-0427(87)90125-7, by scikit-learn, of at most 4,096
    samples that ``seed`` draws; k-means takes the best of three starts. With a the mean distance
    of a sample to its own cluster and b that to the nearest other one: (b − a)/max(a, b).

    Args:
        z: features (N, D), or :class:`Clusters` of them.
        clusters: how many k-means is asked for.
        seed: draws samples and starts.

    Returns:
        −1 to 1.

    Raises:
        ValueError: features that are not (N, D) and finite, or too few different samples.

    Example:
        >>> z = torch.randn(60, 2, generator=Generator().manual_seed(0))
        >>> far = torch.cat([z, z + 100.0])
        >>> kmeans_silhouette(far, clusters=2) > 0.95
        True
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(*_clusters(z, clusters, seed)))


def kmeans_davies_bouldin(z: Tensor | Clusters, *, clusters: int = 10, seed: int = 0) -> float:
    """Davies–Bouldin index of the same k-means clusters, at least 0; lower is better, weakly.

    Davies & Bouldin, 1979, https://doi.org/10.1109/TPAMI.1979.4766909, by scikit-learn: with s the
    mean distance of a cluster's samples to its centre c, the mean over clusters i of the largest
    (s_i + s_j)/‖c_i − c_j‖.

    Args:
        z: features (N, D), or :class:`Clusters` of them.
        clusters: how many k-means is asked for.
        seed: draws samples and starts.

    Returns:
        At least 0.

    Raises:
        ValueError: features that are not (N, D) and finite, or too few different samples.

    Example:
        >>> z = torch.randn(60, 2, generator=Generator().manual_seed(0))
        >>> kmeans_davies_bouldin(torch.cat([z, z + 100.0]), clusters=2) < 0.05
        True
    """
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(*_clusters(z, clusters, seed)))


def _clusters(z: Tensor | Clusters, clusters: int, seed: int) -> Clusters:
    return z if isinstance(z, Clusters) else kmeans(z, clusters=clusters, seed=seed)


def kmeans(z: Tensor, *, clusters: int = 10, seed: int = 0) -> Clusters:
    """k-means by scikit-learn; both scores take its result in place of the samples."""
    from sklearn.cluster import KMeans

    check_features(z)
    check_size("clusters", clusters, minimum=2)
    check_size("seed", seed, minimum=0)
    z = z.detach().cpu()
    order = torch.randperm(len(z), generator=Generator().manual_seed(seed))[:_SAMPLES]
    x = z[order]
    distinct(x, least=clusters + 1)
    samples = x.double().numpy()
    model = KMeans(n_clusters=clusters, n_init=_STARTS, random_state=seed)
    return Clusters(samples, model.fit_predict(samples))
