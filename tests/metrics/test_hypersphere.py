"""Scores on the sphere: double loops in float64, scipy's matrix root, closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import pdist

from radial.metrics.hypersphere import alignment, self_cluster, uniformity, w2_uniformity


def unit(z: torch.Tensor) -> np.ndarray:
    x = z.double().numpy()
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_uniformity_is_scipys(generator) -> None:
    z = torch.randn(300, 16, generator=generator) + 0.5
    expected = math.log(np.exp(-2.0 * pdist(unit(z), "sqeuclidean")).mean())
    assert uniformity(z) == pytest.approx(expected, abs=1e-6)
    assert uniformity(z.double()) == pytest.approx(expected, abs=1e-12)
    expected = math.log(np.exp(-5.0 * pdist(unit(z), "sqeuclidean")).mean())
    assert uniformity(z.double(), t=5.0) == pytest.approx(expected, abs=1e-12)


def test_uniformity_over_several_blocks(generator) -> None:
    z = torch.randn(3000, 4, generator=generator)
    expected = math.log(np.exp(-2.0 * pdist(unit(z), "sqeuclidean")).mean())
    assert uniformity(z) == pytest.approx(expected, abs=1e-6)


def test_alignment_is_a_double_loop(generator) -> None:
    views = torch.randn(20, 4, 8, generator=generator)
    u = unit(views)
    pairs = [
        ((u[i, a] - u[i, b]) ** 2).sum() for i in range(20) for a in range(4) for b in range(a)
    ]
    assert alignment(views) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert alignment(views[:, :1].expand(-1, 3, -1) * 2.0) == pytest.approx(0.0, abs=1e-12)
    opposite = torch.stack([views[:, 0], -views[:, 0]], 1)
    assert alignment(opposite) == pytest.approx(4.0)


@pytest.mark.parametrize("shape", [(400, 12), (12, 40)])
def test_w2_is_scipys_matrix_root(shape, generator) -> None:
    z = torch.randn(*shape, generator=generator) + torch.linspace(0, 1, shape[1])
    u = unit(z)
    mean, cov = u.mean(0), np.cov(u.T, bias=True)
    root = np.trace(np.real(sqrtm(cov)))
    squared = mean @ mean + 1 + np.trace(cov) - 2 / math.sqrt(shape[1]) * root
    assert w2_uniformity(z) == pytest.approx(math.sqrt(squared), rel=1e-6)


def test_w2_sees_dimensional_collapse_where_uniformity_does_not(generator) -> None:
    whole = torch.randn(2000, 8, generator=generator)
    twice = torch.cat([whole, whole], 1)  # eight of sixteen directions
    assert uniformity(twice) == pytest.approx(uniformity(whole), abs=1e-6)
    assert w2_uniformity(twice) > w2_uniformity(whole) + 0.3


def test_self_cluster_closed_forms(generator) -> None:
    basis = torch.eye(8).repeat(5, 1)  # more even than at random: a little below 0
    q = float(((unit(basis) @ unit(basis).T) ** 2).sum())
    n, d = 40, 8
    even = n + n * (n - 1) / d
    assert self_cluster(basis) == pytest.approx((q - even) / (n * n - even), rel=1e-12)
    assert self_cluster(torch.ones(30, 8)) == pytest.approx(1.0)
    line = torch.randn(30, 1, generator=generator) * torch.ones(1, 8)
    assert self_cluster(line) == pytest.approx(1.0)
    assert abs(self_cluster(torch.randn(5000, 8, generator=generator))) < 2e-3
    z = torch.randn(60, 100, generator=generator) + 0.3
    cosines = unit(z) @ unit(z).T
    even = 60 + 60 * 59 / 100
    expected = ((cosines**2).sum() - even) / (3600 - even)
    assert self_cluster(z) == pytest.approx(expected, rel=1e-9)


def test_all_alike_reads_as_collapsed() -> None:
    same = torch.ones(20, 6)
    assert uniformity(same) == pytest.approx(0.0, abs=1e-9)
    assert w2_uniformity(same) == pytest.approx(math.sqrt(2.0))
    assert self_cluster(same) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniformity(torch.zeros(4, 3)), "4 of 4 rows have length 0"),
        (lambda: self_cluster(torch.eye(3) * torch.tensor([1.0, 0.0, 1.0])), "1 of 3 rows"),
        (lambda: uniformity(torch.ones(4, 3), t=-1.0), "t must be a finite number"),
        (lambda: alignment(torch.ones(4, 1, 3)), "q ≥ 2"),
        (lambda: alignment(torch.ones(4, 3)), "views must have shape"),
        (lambda: w2_uniformity(torch.full((4, 3), math.inf)), "NaN or inf"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
