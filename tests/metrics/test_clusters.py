"""Scores of k-means clusters: known clusters, closed forms, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import davies_bouldin_score, silhouette_score
from torch import Tensor

from radial.metrics.clusters import (
    cluster_learnability,
    kmeans_agreement,
    kmeans_davies_bouldin,
    kmeans_silhouette,
)

SCORES = [kmeans_silhouette, kmeans_davies_bouldin]


def blobs(spread: float, n: int = 60) -> tuple[Tensor, np.ndarray]:
    """Four clusters at the corners of a square."""
    corners = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]]).repeat(n, 1)
    return corners + spread * torch.randn(4 * n, 2), np.tile(np.arange(4), n)


def test_clusters_that_are_there_are_found() -> None:
    z, labels = blobs(0.3)
    x = z.double().numpy()
    assert kmeans_silhouette(z, clusters=4) == pytest.approx(silhouette_score(x, labels), rel=1e-9)
    exact = davies_bouldin_score(x, labels)
    assert kmeans_davies_bouldin(z, clusters=4) == pytest.approx(exact, rel=1e-9)


def test_tighter_clusters_score_better() -> None:
    tight, loose = blobs(0.1)[0], blobs(2.0)[0]
    assert kmeans_silhouette(tight, clusters=4) > kmeans_silhouette(loose, clusters=4) + 0.2
    assert kmeans_davies_bouldin(tight, clusters=4) < kmeans_davies_bouldin(loose, clusters=4)


def test_silhouette_of_two_pairs() -> None:
    z = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    exact = np.mean([(b - 1.0) / b for b in (10.5, 9.5, 9.5, 10.5)])
    assert kmeans_silhouette(z, clusters=2) == pytest.approx(exact, rel=1e-9)
    assert kmeans_davies_bouldin(z, clusters=2) == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_seed_and_scale(score) -> None:
    z = torch.randn(200, 6)
    assert score(z, clusters=3, seed=5) == score(z, clusters=3, seed=5)
    assert score(16.0 * z, clusters=3) == pytest.approx(score(z, clusters=3), rel=1e-6)


def test_at_most_4096_samples_are_used() -> None:
    z = torch.randn(5000, 2)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    changed = z.clone()
    changed[order[4096:]] = 100.0  # samples that are not drawn
    assert kmeans_silhouette(changed, clusters=2) == kmeans_silhouette(z, clusters=2)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("z", "settings", "message"),
    [
        (torch.randn(9, 4), {"clusters": 1}, "clusters must be an integer of at least 2, not 1"),
        (torch.randn(9, 4), {}, "11 different samples are needed, but of 9 9 are"),
        (torch.ones(99, 4), {}, "11 different samples are needed, but of 99 1 are"),
        (torch.randn(99, 4), {"seed": -1}, "seed must be an integer of at least 0"),
        (torch.full((99, 4), math.nan), {}, "NaN or inf"),
        (torch.ones(99, 4).int(), {}, "floating-point torch tensor"),
        (torch.randn(99), {}, r"not \(99,\)"),
        (torch.randn(1, 4), {}, "N ≥ 2"),
    ],
)
def test_bad_input(score, z: Tensor, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(z, **settings)


def test_learnability_equals_scikit_learn() -> None:
    """The same clusters by scikit-learn, and its own 1-NN of cosines trained on each half."""
    from sklearn.cluster import KMeans
    from sklearn.neighbors import KNeighborsClassifier

    z = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    x = z[order].numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = KMeans(14, n_init=1, random_state=0).fit_predict(x)
    right = 0
    for known, asked in ((slice(0, 100), slice(100, 200)), (slice(100, 200), slice(0, 100))):
        neighbour = KNeighborsClassifier(1, metric="cosine").fit(x[known], y[known])
        right += int((neighbour.predict(x[asked]) == y[asked]).sum())
    assert cluster_learnability(z) == pytest.approx(right / 200)


def test_learnability_of_clusters_and_of_none() -> None:
    generator = torch.Generator().manual_seed(0)
    corners = torch.eye(20).repeat(20, 1) + 0.01 * torch.randn(400, 20, generator=generator)
    assert cluster_learnability(corners) == 1.0
    assert cluster_learnability(torch.randn(400, 200, generator=generator)) < 0.3


def test_agreement_of_two_views() -> None:
    from sklearn.metrics import adjusted_mutual_info_score

    z, labels = blobs(0.2)
    same = torch.stack([z, 3.0 * z + 1.0], dim=1)
    assert kmeans_agreement(same, clusters=4) == pytest.approx(1.0)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    apart = torch.stack([z, z[order]], dim=1)
    exact = adjusted_mutual_info_score(labels, labels[order.numpy()])
    assert kmeans_agreement(apart, clusters=4) == pytest.approx(exact, abs=1e-9)
    assert abs(exact) < 0.05
    with pytest.raises(ValueError, match="different samples are needed"):
        kmeans_agreement(torch.ones(20, 2, 3))
    with pytest.raises(ValueError, match=r"views must have shape"):
        kmeans_agreement(torch.ones(20, 1, 3))
