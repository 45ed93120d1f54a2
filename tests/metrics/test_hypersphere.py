"""Scores of directions: closed forms, double loops in NumPy, invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from radial.metrics import hypersphere
from radial.metrics.gram import Spectra
from radial.metrics.hypersphere import self_cluster, uniformity, w2_uniformity
from radial.metrics.multiview import alignment

SCORES = [uniformity, w2_uniformity, self_cluster]


def unit(z: Tensor) -> np.ndarray:
    x = z.double().numpy()
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def basis(d: int) -> Tensor:
    return torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q


@pytest.mark.parametrize("q", [2, 3, 5])
def test_alignment_against_all_pairs(q: int) -> None:
    views = torch.randn(30, 1, 7) + 0.3 * torch.randn(30, q, 7)
    u = unit(views)
    pairs = [((u[:, i] - u[:, j]) ** 2).sum(-1) for i in range(q) for j in range(i)]
    assert alignment(views) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert alignment(5.0 * views @ basis(7).float()) == pytest.approx(alignment(views), rel=1e-5)


def test_alignment_of_views_that_are_the_same_is_0_and_of_opposite_ones_4() -> None:
    x = torch.randn(20, 1, 7)
    assert alignment(x.expand(20, 3, 7)) == pytest.approx(0.0, abs=1e-30)
    assert alignment(torch.cat([x, -2.0 * x], 1)) == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("t", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("tile", [1, 30, 1024])
def test_uniformity_against_all_pairs(t: float, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypersphere, "_TILE", tile)
    z = torch.randn(101, 9) + 0.5
    u = unit(z)
    squared = ((u[:, None] - u) ** 2).sum(-1)[np.triu_indices(101, 1)]
    exact = math.log(np.exp(-t * squared).mean())
    assert uniformity(z, t=t) == pytest.approx(exact, abs=1e-7)
    assert uniformity(z.double(), t=t) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("spread", [1e-4, 1e-2, 1.0, 100.0])
def test_float32_products_of_uniformity_are_good_to_1e_7(spread: float) -> None:
    z = 1.0 + spread * torch.randn(1500, 256)
    assert abs(uniformity(z) - uniformity(z.double())) < 1e-7


def test_w2_uniformity_takes_the_matrix_square_root() -> None:
    z = torch.randn(300, 8) @ torch.randn(8, 8) + 0.2
    u = unit(z)
    mean, cov = u.mean(0), np.cov(u, rowvar=False, bias=True)
    root = np.trace(scipy.linalg.sqrtm(cov).real)
    exact = math.sqrt(mean @ mean + 1.0 + np.trace(cov) - 2.0 / math.sqrt(8) * root)
    assert w2_uniformity(z) == pytest.approx(exact, rel=1e-9)
    elementwise = np.sqrt(np.diag(cov)).sum()
    assert abs(root - elementwise) > 0.1  # which the trap would give


def test_self_cluster_against_all_pairs() -> None:
    for n, d in ((200, 12), (12, 200)):
        z = torch.randn(n, d) + 0.3
        q = ((unit(z) @ unit(z).T) ** 2).sum()
        even = n + n * (n - 1) / d
        assert self_cluster(z) == pytest.approx((q - even) / (n * n - even), rel=1e-9)


def test_balanced_directions() -> None:
    """±e_i equally often: no mean, covariance I/D."""
    d, axes = 8, basis(8)
    z = torch.cat([axes, -axes] * 50)
    assert w2_uniformity(z) == pytest.approx(0.0, abs=1e-6)
    n = len(z)  # Q = N²/D: a little below the N + N(N−1)/D of random directions
    expected = (n * n / d - n - n * (n - 1) / d) / (n * n - n - n * (n - 1) / d)
    assert self_cluster(z) == pytest.approx(expected, rel=1e-9)
    assert -2.0 / n < self_cluster(z) < 0.0
    assert self_cluster(torch.randn(20_000, d)) == pytest.approx(0.0, abs=1e-4)


def test_a_missing_direction_shows_in_w2_and_hardly_in_uniformity() -> None:
    full = torch.randn(3000, 64)
    half = full * (torch.arange(64) < 32)
    assert w2_uniformity(half) > w2_uniformity(full) + 0.4
    assert uniformity(half) == pytest.approx(uniformity(full), abs=0.15)


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_all_point_the_same_way(shape: tuple[int, int], dtype: torch.dtype) -> None:
    z = (1.0 + torch.rand(shape[0], 1, dtype=dtype)) * torch.rand(shape[1], dtype=dtype)
    for rows in (z, z[:1].expand(shape)):
        assert uniformity(rows) == pytest.approx(0.0, abs=1e-7)
        assert w2_uniformity(rows) == pytest.approx(math.sqrt(2.0), abs=1e-6)
        assert self_cluster(rows) == pytest.approx(1.0, rel=1e-9)


def test_one_feature_is_one_line() -> None:
    z = torch.tensor([[1.0], [-2.0], [3.0]])
    assert self_cluster(z) == 1.0
    assert w2_uniformity(z) == pytest.approx(math.sqrt(2.0 - 2.0 * math.sqrt(8.0) / 3.0))


@pytest.mark.parametrize("score", SCORES)
def test_invariances(score) -> None:
    z = torch.randn(150, 12, dtype=torch.float64) + 0.4
    exact = score(z)
    scaled = z * (0.1 + torch.rand(150, 1, dtype=torch.float64))
    for same in (1e6 * z, scaled, z[torch.randperm(150)], z[:, torch.randperm(12)], z @ basis(12)):
        assert score(same) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_is_left_alone(dtype: torch.dtype) -> None:
    views = torch.randn(30, 2, 5, dtype=dtype, requires_grad=True)
    before = views.detach().clone()
    alignment(views)
    for score in SCORES:
        score(views[:, 0])
    torch.testing.assert_close(views.detach(), before, rtol=0.0, atol=0.0)


def test_spectra_are_shared() -> None:
    z = torch.randn(60, 5)
    s = Spectra(z)
    assert w2_uniformity(s) == w2_uniformity(z)
    assert self_cluster(s) == self_cluster(z)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.randn(1, 4), r"N ≥ 2, not \(1, 4\)"),
        (torch.randn(4), r"not \(4,\)"),
        (torch.ones(4, 3).int(), "not torch.int32"),
        (torch.full((4, 3), math.nan), "12 of 12 values are NaN or inf"),
        (torch.eye(4)[:, :3], "1 of 4 rows have length 0, and so no direction"),
    ],
)
def test_bad_features(score, z: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniformity(torch.randn(4, 3), t=0.0), "t must be a finite number between 1e-06"),
        (lambda: uniformity(torch.randn(4, 3), t=math.inf), "t must be a finite number"),
        (lambda: alignment(torch.randn(4, 3)), r"\(n, q, D\) with n ≥ 1 and q ≥ 2, not \(4, 3\)"),
        (lambda: alignment(torch.randn(4, 1, 3)), r"q ≥ 2, not \(4, 1, 3\)"),
        (lambda: alignment(torch.randn(0, 2, 3)), r"n ≥ 1 and q ≥ 2, not \(0, 2, 3\)"),
        (lambda: alignment(torch.zeros(4, 2, 3)), "8 of 8 rows have length 0"),
        (lambda: alignment(torch.full((4, 2, 3), math.inf)), "24 of 24 values are NaN"),
        (lambda: alignment(torch.ones(4, 2, 3).int()), "views must be a floating-point"),
    ],
)
def test_bad_settings(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
