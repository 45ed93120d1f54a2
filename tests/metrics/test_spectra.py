"""Spectral scores: closed forms, float64 SVD by NumPy, embedding-quality; invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from radial.metrics.spectra import (
    Spectra,
    alpha_req,
    decorrelation,
    nesum,
    participation_ratio,
    rankme,
    rankme_centred,
    stable_rank,
)

SCORES = (
    rankme,
    rankme_centred,
    nesum,
    stable_rank,
    participation_ratio,
    decorrelation,
    lambda z: alpha_req(z).alpha,
)


def with_spectrum(values: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Centred features (n, D) whose covariance has exactly these eigenvalues."""
    d = len(values)
    basis = torch.randn(n, d, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(basis - basis.mean(0)).Q
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    return basis * (values * n).sqrt() @ rotation.T


def svd_rank(z: Tensor, epsilon: float = 1e-7) -> float:
    values = np.linalg.svd(z.double().numpy(), compute_uv=False)
    p = values / values.sum() + epsilon
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize("shape", [(300, 20), (20, 300), (64, 64)])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_spectra_are_numpys(shape, mean, generator) -> None:
    z = torch.randn(*shape, generator=generator) * torch.linspace(1, 0.01, shape[1]) + mean
    found, exact = Spectra(z), z.double().numpy()
    singular = np.linalg.svd(exact, compute_uv=False)
    assert np.allclose(found.singular, singular, rtol=1e-7, atol=1e-9 * singular[0])
    centred = np.linalg.svd(exact - exact.mean(0), compute_uv=False) ** 2 / shape[0]
    assert np.allclose(found.eigenvalues, centred, rtol=1e-7, atol=1e-12 * centred[0])


@pytest.mark.parametrize("shape", [(400, 60), (60, 400)])
def test_all_scores_against_numpy(shape, generator) -> None:
    z = torch.randn(*shape, generator=generator).relu() * torch.linspace(2, 0.1, shape[1]) + 0.2
    x = z.double().numpy()
    c = x - x.mean(0)
    squared = np.linalg.svd(c, compute_uv=False) ** 2
    sigma = np.linalg.svd(x, compute_uv=False)
    correlation = np.corrcoef(x.T)
    d = shape[1]
    assert rankme(z) == pytest.approx(svd_rank(z), rel=1e-6)
    assert rankme_centred(z) == pytest.approx(svd_rank(z.double() - z.double().mean(0)), rel=1e-6)
    assert nesum(z) == pytest.approx(squared.sum() / squared[0], rel=1e-9)
    assert stable_rank(z) == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=1e-9)
    ratio = squared.sum() ** 2 / (squared**2).sum()
    assert participation_ratio(z) == pytest.approx(ratio, rel=1e-9)
    off = (correlation**2).sum() - d
    assert decorrelation(z) == pytest.approx(off / (d * (d - 1)), rel=1e-8)


def dead_columns(generator: torch.Generator) -> Tensor:
    return torch.randn(600, 96, generator=generator) * (torch.arange(96) % 3 > 0)


def wide_output(generator: torch.Generator) -> Tensor:
    """Of a linear map from 24 to 256 dimensions, in float32: rank 24 and rounding."""
    weight = torch.randn(24, 256, generator=generator)
    return torch.randn(800, 24, generator=generator) @ weight


def ill_conditioned(generator: torch.Generator) -> Tensor:
    return with_spectrum(10.0 ** -torch.linspace(0, 13, 80, dtype=torch.float64), 500, generator)


def large_mean(generator: torch.Generator) -> Tensor:
    return torch.randn(500, 64, generator=generator) + 1000.0


@pytest.mark.parametrize("make", [dead_columns, wide_output, ill_conditioned, large_mean])
def test_rankme_where_a_gram_matrix_is_not_enough(make, generator) -> None:
    z = make(generator)
    assert rankme(z) == pytest.approx(svd_rank(z), rel=1e-5)
    assert rankme_centred(z) == pytest.approx(svd_rank(z.double() - z.double().mean(0)), rel=1e-5)


def test_peer_package(generator) -> None:
    module = pytest.importorskip("embedding_quality.evaluation", reason="needs embedding-quality")
    peer = module.UnsupervisedEmbeddingQualityEvaluation
    z = torch.randn(300, 40, generator=generator, dtype=torch.float64)
    matrix = z.numpy()
    assert rankme(z) == pytest.approx(float(peer.RankMe(matrix, epsilon=1e-7)), rel=1e-6)
    assert stable_rank(z) == pytest.approx(float(peer.Stable_rank(matrix)), rel=1e-9)
    assert nesum(z) == pytest.approx(float(peer.NESum(matrix)), rel=1e-9)


def test_isotropic_is_d_and_rank_one_is_1(generator) -> None:
    flat = with_spectrum(torch.ones(16, dtype=torch.float64), 400, generator)
    for score in (rankme, rankme_centred, nesum, stable_rank, participation_ratio):
        assert score(flat) == pytest.approx(16.0, rel=1e-4)
    assert decorrelation(flat) == pytest.approx(0.0, abs=1e-12)
    line = torch.randn(50, 1, generator=generator) * torch.randn(1, 16, generator=generator)
    for score in (rankme, rankme_centred, nesum, stable_rank, participation_ratio):
        assert score(line) == pytest.approx(1.0, abs=1e-4)
    assert decorrelation(line) == pytest.approx(1.0, rel=1e-5)


def test_large_epsilon_exceeds_the_dimension() -> None:
    """The trap: 1e-5 scores more than the number of features."""
    z = torch.eye(2048)
    assert rankme(z) == pytest.approx(2048, rel=5e-3)
    assert rankme(z, epsilon=1e-5) > 2300


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_power_law(exponent, generator) -> None:
    values = torch.arange(1, 41, dtype=torch.float64) ** -exponent
    law = alpha_req(with_spectrum(values, 300, generator))
    assert law.alpha == pytest.approx(exponent, rel=1e-6)
    assert law.r2 == pytest.approx(1.0, abs=1e-9)
    assert (law.first, law.last) == (1, 40)
    assert alpha_req(with_spectrum(values, 300, generator), first=5, last=20).last == 20


@pytest.mark.parametrize("score", SCORES)
def test_scale_and_order_do_not_matter(score, generator) -> None:
    z = torch.randn(200, 24, generator=generator, dtype=torch.float64).relu() + 0.1
    order = torch.randperm(200, generator=generator)
    assert score(z[order]) == pytest.approx(score(z), rel=1e-9)
    assert score(z * 1e4) == pytest.approx(score(z), rel=1e-9)
    assert score(Spectra(z)) == score(z)


@pytest.mark.parametrize("score", [*SCORES[:5], SCORES[-1]])
def test_rotation_does_not_matter(score, generator) -> None:
    z = torch.randn(200, 24, generator=generator, dtype=torch.float64).relu() + 0.1
    rotation = torch.linalg.qr(torch.randn(24, 24, generator=generator, dtype=torch.float64)).Q
    assert score(z @ rotation) == pytest.approx(score(z), rel=1e-8)


@pytest.mark.parametrize("score", [rankme_centred, nesum, participation_ratio, decorrelation])
def test_centred_scores_ignore_the_mean(score, generator) -> None:
    z = torch.randn(200, 24, generator=generator, dtype=torch.float64)
    assert score(z + 50.0) == pytest.approx(score(z), rel=1e-6)


def test_a_large_mean_eats_an_uncentred_spectrum(generator) -> None:
    z = torch.randn(200, 24, generator=generator)
    assert rankme(z + 100.0) < 3.0 < rankme(z)


def test_constant_features(generator) -> None:
    same = torch.full((30, 8), 3.0)
    for score in (rankme, rankme_centred, nesum, stable_rank, participation_ratio):
        assert score(same) == pytest.approx(1.0, abs=1e-4)
    assert decorrelation(same) == 1.0
    with pytest.raises(ValueError, match="power law"):
        alpha_req(same)
    some = torch.cat([torch.randn(50, 6, generator=generator), torch.ones(50, 3)], 1)
    assert Spectra(some).constant == 3
    assert decorrelation(some) == pytest.approx(decorrelation(some[:, :6]), rel=1e-9)


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.zeros(1, 4), r"shape \(N, D\) with N ≥ 2, not \(1, 4\)"),
        (torch.zeros(4), "shape"),
        (torch.zeros(4, 4, dtype=torch.int64), "floating-point"),
        (torch.full((4, 4), math.nan), "16 of 16 values are NaN or inf"),
    ],
)
def test_bad_input(z, message) -> None:
    with pytest.raises(ValueError, match=message):
        rankme(z)


def test_bad_settings() -> None:
    z = torch.randn(20, 8)
    for call, message in (
        (lambda: rankme(z, epsilon=-1.0), "epsilon"),
        (lambda: alpha_req(z, first=0), "first"),
        (lambda: alpha_req(z, first=7), "at least 3 ranks"),
        (lambda: alpha_req(z, last=30), "at least 3 ranks"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
