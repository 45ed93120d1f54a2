"""k-means baselines: scikit-learn's own figures on the same clusters, and blobs far apart."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import davies_bouldin_score, silhouette_score

from radial.metrics.clusters import kmeans_davies_bouldin, kmeans_silhouette


def blobs(apart: float, generator: torch.Generator) -> torch.Tensor:
    centers = apart * torch.randn(10, 1, 6, generator=generator)
    return (centers + torch.randn(10, 40, 6, generator=generator)).flatten(0, 1)


def test_clear_clusters_are_scikit_learns(generator) -> None:
    """So far apart that every start finds the ten blobs."""
    z = blobs(100.0, generator)
    labels = KMeans(10, n_init=10, random_state=1).fit_predict(z.double().numpy())
    exact = z.double().numpy()
    assert kmeans_silhouette(z) == pytest.approx(silhouette_score(exact, labels), rel=1e-6)
    assert kmeans_davies_bouldin(z) == pytest.approx(davies_bouldin_score(exact, labels), rel=1e-6)


def test_further_apart_is_better(generator) -> None:
    near, far = blobs(1.0, generator), blobs(20.0, generator)
    assert kmeans_silhouette(near) < kmeans_silhouette(far)
    assert kmeans_davies_bouldin(near) > kmeans_davies_bouldin(far)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kmeans_silhouette(torch.ones(50, 3)), "different samples"),
        (lambda: kmeans_silhouette(torch.randn(8, 3)), "different samples"),
        (lambda: kmeans_davies_bouldin(torch.randn(50, 3), clusters=1), "clusters"),
        (lambda: kmeans_davies_bouldin(torch.full((50, 3), float("nan"))), "NaN or inf"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
