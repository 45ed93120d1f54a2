"""Spectral scores: closed forms, float64 singular values, peers' packages, invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from radial.metrics import gram as module
from radial.metrics.gram import Spectra
from radial.metrics.spectra import (
    PowerLaw,
    alpha_req,
    decorrelation,
    nesum,
    participation_ratio,
    rankme,
    rankme_centred,
    stable_rank,
)

RANKS = [rankme, rankme_centred, nesum, stable_rank, participation_ratio]
SCORES = [*RANKS, decorrelation, lambda z: alpha_req(z).alpha]


def rotation(d: int) -> Tensor:
    return torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q


def power_law(n: int, d: int, alpha: float, mean: float = 0.0) -> Tensor:
    """Random rows whose covariance has eigenvalues j^−α, in float32."""
    scales = torch.arange(1, d + 1, dtype=torch.float64) ** (-alpha / 2)
    return (torch.randn(n, d, dtype=torch.float64) * scales @ rotation(d) + mean).float()


def with_spectrum(values: Tensor, n: int) -> Tensor:
    """Rows with mean 0 and exactly these eigenvalues of the covariance, rotated."""
    d = len(values)
    rows = torch.randn(n, d, dtype=torch.float64)
    left = torch.linalg.qr(rows - rows.mean(0)).Q
    return math.sqrt(n) * (left - left.mean(0)) * values.sqrt() @ rotation(d)


def effective_rank(sigma: np.ndarray, epsilon: float = 1e-7) -> float:
    p = sigma / sigma.sum() + epsilon
    return float(np.exp(-(p * np.log(p)).sum()))


def singular(z: Tensor, *, centre: bool = False) -> np.ndarray:
    x = z.double().numpy()
    return np.linalg.svd(x - x.mean(0) if centre else x, compute_uv=False)


CASES = {
    "isotropic": lambda: torch.randn(600, 80),
    "power law": lambda: power_law(600, 80, 1.0),
    "steep": lambda: power_law(600, 80, 6.0),
    "mean 100": lambda: power_law(600, 80, 1.0, 100.0),
    "mean 10000": lambda: power_law(600, 80, 1.0, 1e4),
    "linear map from 32 to 512": lambda: torch.randn(900, 32) @ torch.randn(32, 512),
    "the same and a mean": lambda: torch.randn(900, 32) @ torch.randn(32, 512) + 100.0,
    "float64 linear map": lambda: (
        torch.randn(900, 8, dtype=torch.float64) @ torch.randn(8, 300, dtype=torch.float64) + 10.0
    ),
    "dead units": lambda: torch.cat([torch.randn(500, 60).relu(), torch.zeros(500, 90)], 1),
    "constant units": lambda: torch.cat(
        [torch.randn(500, 60).relu(), torch.full((500, 90), 0.3)], 1
    ),
    "one constant unit": lambda: torch.cat([torch.randn(500, 9), torch.ones(500, 1)], 1),
    "graded columns": lambda: torch.randn(600, 80) * torch.logspace(0, -12, 80),
    "rank one": lambda: torch.randn(600, 1) @ torch.randn(1, 80),
    "wide": lambda: power_law(90, 300, 1.0),
    "wide with a mean": lambda: power_law(90, 300, 1.0, 50.0),
    "wide, rank 5": lambda: torch.randn(90, 5) @ torch.randn(5, 300),
    "square": lambda: torch.randn(100, 100),
    "two rows": lambda: torch.randn(2, 30),
    "one feature": lambda: torch.randn(30, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_float64_singular_values(case: str) -> None:
    z = CASES[case]()
    s = Spectra(z)
    for got, centre in ((s.singular, False), ((s.eigenvalues * s.n).sqrt(), True)):
        exact = singular(z, centre=centre)
        np.testing.assert_allclose(got.numpy(), exact, rtol=0.0, atol=1e-11 * exact[0])
    assert rankme(s) == pytest.approx(effective_rank(singular(z)), rel=1e-9)
    assert rankme_centred(s) == pytest.approx(effective_rank(singular(z, centre=True)), rel=1e-9)
    sigma, lam = singular(z), singular(z, centre=True) ** 2
    assert stable_rank(s) == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=1e-9)
    assert nesum(s) == pytest.approx(lam.sum() / lam[0], rel=1e-9)
    assert participation_ratio(s) == pytest.approx(lam.sum() ** 2 / (lam**2).sum(), rel=1e-9)


def test_the_gram_matrix_alone_would_not_do() -> None:
    """What the second look at small eigenvalues is for."""
    z = (torch.randn(900, 8) @ torch.randn(8, 512) + 1000.0).double()
    plain = torch.linalg.eigvalsh(z.T @ z).clamp(min=0.0).sqrt().numpy()
    exact = effective_rank(singular(z))
    assert abs(effective_rank(plain) / exact - 1.0) > 1e-5
    assert rankme(z) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("case", ["isotropic", "power law", "mean 100", "dead units"])
def test_float32_products_of_large_features(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    z = CASES[case]()
    monkeypatch.setattr(module, "_LARGE", 0)
    fast, exact = Spectra(z), Spectra(z.double())
    assert fast._gram.dtype == torch.float32
    for score in SCORES:
        assert score(fast) == pytest.approx(score(exact), rel=1e-6)
        assert score(fast) != score(exact)  # it was taken
    unit = fast.unit_eigenvalues.sqrt().sum()
    assert float(unit) == pytest.approx(float(exact.unit_eigenvalues.sqrt().sum()), rel=1e-6)
    assert fast.squared_cosines == pytest.approx(exact.squared_cosines, rel=1e-6)


@pytest.mark.parametrize(
    "case", ["steep", "linear map from 32 to 512", "graded columns", "rank one"]
)
def test_float64_follows_where_float32_does_not_resolve(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = CASES[case]()
    monkeypatch.setattr(module, "_LARGE", 0)
    assert rankme(z) == pytest.approx(effective_rank(singular(z)), rel=1e-9)
    exact = effective_rank(singular(z, centre=True))
    assert rankme_centred(z) == pytest.approx(exact, rel=1e-9)


def test_float32_products_are_not_tried_near_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGE", 0)
    z = torch.randn(300, 20)
    z[0] *= 1e-15  # brought to unit length by a factor that float32 squares badly
    for factor in (1e-20, 1.0, 1e20):
        s = Spectra(z * factor)
        assert rankme(s) == pytest.approx(rankme(z.double()), rel=1e-6)
        assert math.isfinite(s.squared_cosines)


@pytest.mark.parametrize("shape", [(400, 30), (30, 400), (64, 64)])
def test_unit_rows_against_numpy(shape: tuple[int, int]) -> None:
    z = torch.randn(shape) * torch.rand(shape[0], 1) + 0.3
    u = z.double().numpy()
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    s = Spectra(z)
    np.testing.assert_allclose(s.unit_mean.numpy(), u.mean(0), rtol=1e-12)
    lam = np.linalg.svd(u - u.mean(0), compute_uv=False) ** 2 / len(u)
    np.testing.assert_allclose(s.unit_eigenvalues.numpy(), lam, rtol=1e-9, atol=1e-13)
    assert s.squared_cosines == pytest.approx(((u @ u.T) ** 2).sum(), rel=1e-12)


@pytest.mark.parametrize("shape", [(400, 30), (30, 400), (20, 700)])
def test_decorrelation_against_numpy(shape: tuple[int, int]) -> None:
    z = torch.randn(shape) @ torch.randn(shape[1], shape[1]) + 5.0
    z[:, 3], z[:, 7] = 0.1, 0.0
    s = Spectra(z)
    assert s.constant == 2
    rest = [i for i in range(shape[1]) if i not in (3, 7)]
    r = np.corrcoef(z[:, rest].double().numpy(), rowvar=False)
    exact = (r[~np.eye(len(rest), dtype=bool)] ** 2).mean()
    assert decorrelation(s) == pytest.approx(exact, rel=1e-9)


def test_peers() -> None:
    reason = "embedding-quality 0.1.1 is an independent implementation"
    peer = pytest.importorskip("embedding_quality", reason=reason)
    scores = peer.UnsupervisedEmbeddingQualityEvaluation
    for case in ("power law", "mean 100", "linear map from 32 to 512", "dead units", "wide"):
        z = CASES[case]()
        m = z.double().numpy()
        assert rankme(z) == pytest.approx(scores.RankMe(m, epsilon=1e-7), rel=1e-9)
        assert stable_rank(z) == pytest.approx(scores.Stable_rank(m), rel=1e-9)
    z = CASES["power law"]()
    assert nesum(z) == pytest.approx(scores.NESum(z.double().numpy()), rel=1e-9)


def test_isotropic_features_have_full_rank() -> None:
    d = 16
    z = with_spectrum(torch.ones(d, dtype=torch.float64), 200)
    for score in RANKS:
        assert score(z) == pytest.approx(d, rel=1e-4)  # ε lets RankMe exceed D a little
    assert decorrelation(z) == pytest.approx(0.0, abs=1e-15)
    law = alpha_req(z)
    assert law.alpha == pytest.approx(0.0, abs=1e-12)
    assert math.isfinite(law.r2)


def test_rank_one_features() -> None:
    z = torch.randn(200, 1, dtype=torch.float64) @ torch.randn(1, 16, dtype=torch.float64)
    for score in (nesum, stable_rank, participation_ratio):
        assert score(z) == pytest.approx(1.0, rel=1e-12)
    for score in (rankme, rankme_centred):
        assert score(z, epsilon=0.0) == pytest.approx(1.0, rel=1e-6)
        assert 1.0 <= score(z) < 1.0001
    assert decorrelation(z) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.7])
def test_a_power_law_gives_its_exponent(alpha: float) -> None:
    values = torch.arange(1, 41, dtype=torch.float64) ** -alpha
    z = with_spectrum(values, 300) + 7.0
    for first, last in ((1, None), (3, 20), (5, 40)):
        law = alpha_req(z, first=first, last=last)
        assert law.alpha == pytest.approx(alpha, abs=1e-9)
        assert law.r2 == pytest.approx(1.0, abs=1e-9)
        assert (law.first, law.last) == (first, last or 40)


def test_the_power_law_is_numpys_weighted_fit() -> None:
    z = torch.randn(300, 40)
    lam = singular(z, centre=True)[4:30] ** 2 / 300
    j = np.arange(5, 31)
    slope, offset = np.polyfit(np.log(j), np.log(lam), 1, w=np.sqrt(1.0 / j))
    y, w = np.log(lam), 1.0 / j
    rest = w @ (y - slope * np.log(j) - offset) ** 2
    r2 = 1.0 - rest / (w @ (y - np.average(y, weights=w)) ** 2)
    law = alpha_req(z, first=5, last=30)
    assert law == PowerLaw(alpha=law.alpha, r2=law.r2, first=5, last=30)
    assert law.alpha == pytest.approx(-slope, rel=1e-9)
    assert law.r2 == pytest.approx(r2, rel=1e-9)


def test_the_power_law_ends_where_the_spectrum_does() -> None:
    values = torch.ones(20, dtype=torch.float64)
    values[12:] = 1e-10
    assert alpha_req(with_spectrum(values, 200)).last == 12


def test_a_large_epsilon_exceeds_the_dimension() -> None:
    z = with_spectrum(torch.ones(256, dtype=torch.float64), 600)
    assert rankme(z) == pytest.approx(256, rel=2e-4)
    assert rankme(z, epsilon=1e-3) > 300.0


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("shape", [(200, 24), (24, 200)])
def test_invariances(score, shape: tuple[int, int]) -> None:
    z = torch.randn(shape, dtype=torch.float64) + 0.5
    exact = score(z)
    rows, columns = torch.randperm(shape[0]), torch.randperm(shape[1])
    for same in (3e5 * z, 3e-5 * z, -z, z[rows], z[:, columns]):
        assert score(same) == pytest.approx(exact, rel=1e-9)
    if score is not decorrelation:
        assert score(z @ rotation(shape[1])) == pytest.approx(exact, rel=1e-9)
    else:
        scaled = z * torch.rand(shape[1], dtype=torch.float64) + 3.0
        assert score(scaled) == pytest.approx(exact, rel=1e-9)
    moved = score(z + 4.0)
    if score in (rankme, stable_rank):
        assert moved < exact - 0.1  # one large mean direction eats an uncentred spectrum
    else:
        assert moved == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_are_all_the_same(
    shape: tuple[int, int], value: float, dtype: torch.dtype
) -> None:
    z = torch.full(shape, value, dtype=dtype) * torch.rand(shape[1], dtype=dtype)
    s = Spectra(z)
    for score in RANKS:
        assert score(s) == pytest.approx(1.0, abs=2e-3)
    assert s.constant == shape[1]
    assert decorrelation(s) == 1.0
    with pytest.raises(ValueError, match="at least 3 ranks"):
        alpha_req(s)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_is_left_alone(shape: tuple[int, int], dtype: torch.dtype) -> None:
    z = torch.randn(shape, dtype=dtype, requires_grad=True)
    before = z.detach().clone()
    s = Spectra(z)
    for score in SCORES:
        assert isinstance(score(s), float)
    assert s.squared_cosines > 0.0
    assert len(s.unit_eigenvalues) == 6
    torch.testing.assert_close(z.detach(), before, rtol=0.0, atol=0.0)


def test_half_precision_is_widened() -> None:
    half = torch.randn(40, 6).to(torch.bfloat16)
    assert rankme(half) == pytest.approx(rankme(half.double()), rel=1e-9)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.randn(1, 4), r"N ≥ 2, not \(1, 4\)"),
        (torch.randn(4), r"shape \(N, D\) with N ≥ 2, not \(4,\)"),
        (torch.randn(4, 3, 2), r"not \(4, 3, 2\)"),
        (torch.randn(4, 0), r"not \(4, 0\)"),
        (torch.ones(4, 3, dtype=torch.int64), "floating-point torch tensor, not torch.int64"),
        ([[1.0, 2.0], [3.0, 4.0]], "floating-point torch tensor, not list"),
        (torch.tensor([[1.0, math.nan], [2.0, math.inf]]), "2 of 4 values are NaN or inf"),
        (torch.full((4, 3), 1e200, dtype=torch.float64), "the largest is 1e.200"),
        (torch.full((4, 3), 1e-200, dtype=torch.float64), "the largest is 1e-200"),
    ],
)
def test_bad_input(score, z, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: rankme(z, epsilon=-1.0), "epsilon must be a finite number of at least 0"),
        (lambda z: rankme_centred(z, epsilon=math.nan), "epsilon must be a finite number"),
        (lambda z: alpha_req(z, first=0), "first must be an integer of at least 1, not 0"),
        (lambda z: alpha_req(z, last=0), "last must be an integer of at least 1, not 0"),
        (lambda z: alpha_req(z, first=5, last=6), "at least 3 ranks.*first is 5, last 6"),
        (lambda z: alpha_req(z, last=9), "ranks 1 to 8, and first is 1, last 9"),
        (lambda z: Spectra(torch.cat([z, 0.0 * z])).squared_cosines, "40 of 80 rows have length 0"),
    ],
)
def test_bad_settings(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.randn(40, 8))
