"""Scores of k-means clusters: weak baselines, to be beaten rather than trusted.

They reward any tight grouping, of classes or of anything else, depend on the number of clusters
asked for, and a collapse to a few points looks excellent to them.

Legend: N samples, D features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from radial.checks import check_finite, check_size, check_tensor, needs
from radial.metrics.dimension import distinct
from radial.metrics.gram import check_features

_SAMPLES = 4096  # at most; the silhouette looks at all their pairs
_STARTS = 3
_LEARNABLE = 1024  # samples at most, √1024 = 32 clusters
_AGREEING = 1024  # images at most


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
        z: features (N, D), or `Clusters` of them.
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
    needs("score", "sklearn")
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(*_clusters(z, clusters, seed)))


def kmeans_davies_bouldin(z: Tensor | Clusters, *, clusters: int = 10, seed: int = 0) -> float:
    """Davies–Bouldin index of the same k-means clusters, at least 0; lower is better, weakly.

    Davies & Bouldin, 1979, https://doi.org/10.1109/TPAMI.1979.4766909, by scikit-learn: with s the
    mean distance of a cluster's samples to its centre c, the mean over clusters i of the largest
    (s_i + s_j)/‖c_i − c_j‖.

    Args:
        z: features (N, D), or `Clusters` of them.
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
    needs("score", "sklearn")
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(*_clusters(z, clusters, seed)))


def cluster_learnability(z: Tensor, *, seed: int = 0) -> float:
    """How well nearest neighbours predict k-means clusters: CL of CLID; higher is better.

        CL = 1/N Σ_i [ŷ_i = y_i]

    with y the clusters of a k-means of all N samples into √N clusters, and ŷ_i that of the nearest
    sample of the half that sample i is not of; unit length, so that distances are cosines. Lu et
    al., 2022, https://arxiv.org/abs/2206.01251: their abstract says as much. That there are √N
    clusters, one neighbour and two halves is from independent implementations; the paper's own
    text was not at hand. Here each half predicts the other, there one of them. CLID adds TwoNN's
    dimension, *higher* being better there, after standardising both over the pool of runs:
    `radial.study.analysis.columns.with_clid`.

    Args:
        z: (N, D); at most 1,024 of them, drawn by ``seed``.
        seed: of the draw, the halves and k-means.

    Returns:
        The accuracy, 0 to 1.

    Raises:
        ValueError: if fewer than √N + 1 samples differ, or a value is NaN or inf.

    Example:
        >>> corners = torch.eye(5).repeat(7, 1)
        >>> cluster_learnability(corners + 1e-3 * torch.arange(35.0)[:, None])
        1.0
    """
    check_features(z, least=4)
    check_size("seed", seed, minimum=0)
    order = torch.randperm(len(z), generator=Generator().manual_seed(seed))[:_LEARNABLE]
    x = F.normalize(z.detach().cpu()[order].double(), dim=1)
    found = kmeans(x, clusters=max(2, int(len(x) ** 0.5)), seed=seed, starts=1, shuffle=False)
    labels = torch.as_tensor(found.labels)
    halves = torch.arange(len(x)).tensor_split(2)  # x is in random order already
    right = sum(
        int((labels[known[(x[asked] @ x[known].T).argmax(1)]] == labels[asked]).sum())
        for known, asked in (halves, halves[::-1])
    )
    return right / len(x)


def kmeans_agreement(views: Tensor, *, clusters: int = 10, seed: int = 0) -> float:
    """Adjusted mutual information of the k-means clusters of two views; higher is better.

        AMI = (I(C₁; C₂) − E I) / (½ (H(C₁) + H(C₂)) − E I)

    C₁ of the first views and C₂ of the second, each by a k-means of its own: 1 where images fall
    into the same clusters, 0 at chance. Xu, Lowe, Trappenberg, 2024,
    https://arxiv.org/abs/2409.06612, who take as many clusters as there are classes; AMI by
    scikit-learn.

    Args:
        views: (n, q, D); the first two views of the first 1,024 images at most.
        clusters: of each k-means.
        seed: of both.

    Returns:
        The agreement, at most 1.

    Raises:
        ValueError: for another shape, or if fewer than ``clusters`` + 1 views differ.

    Example:
        >>> corners = torch.eye(4).repeat(8, 1) + 1e-3 * torch.arange(32.0)[:, None]
        >>> kmeans_agreement(corners[:, None].expand(-1, 2, -1), clusters=4)
        1.0
    """
    needs("score", "sklearn")
    from sklearn.metrics import adjusted_mutual_info_score

    check_tensor("views", views)
    if views.dim() != 3 or views.shape[1] < 2:
        raise ValueError(f"views must have shape (n, q ≥ 2, D), not {tuple(views.shape)}")
    check_finite("views", views)
    few = views[:_AGREEING]
    first, second = (
        kmeans(few[:, v], clusters=clusters, seed=seed, shuffle=False).labels for v in (0, 1)
    )
    return float(adjusted_mutual_info_score(first, second))


def _clusters(z: Tensor | Clusters, clusters: int, seed: int) -> Clusters:
    return z if isinstance(z, Clusters) else kmeans(z, clusters=clusters, seed=seed)


def kmeans(
    z: Tensor, *, clusters: int = 10, seed: int = 0, starts: int = _STARTS, shuffle: bool = True
) -> Clusters:
    """k-means by scikit-learn, the best of some starts; scores take it in place of the samples.

    At most 4,096 samples, drawn by ``seed``; without ``shuffle`` the first of them, in order.
    """
    needs("score", "sklearn")
    from sklearn.cluster import KMeans

    check_features(z)
    check_size("clusters", clusters, minimum=2)
    check_size("seed", seed, minimum=0)
    z = z.detach().cpu()
    order = torch.randperm(len(z), generator=Generator().manual_seed(seed))
    x = z[order[:_SAMPLES]] if shuffle else z[:_SAMPLES]
    distinct(x, least=clusters + 1)
    samples = x.double()
    x = samples - samples.mean(0)  # centred and of unit size float32 is enough to tell clusters
    model = KMeans(n_clusters=clusters, n_init=starts, random_state=seed)
    labels = model.fit_predict((x / x.square().mean().sqrt()).float().numpy())
    return Clusters(samples.numpy(), labels)
