"""Correlations against scipy, brute force and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from radial.study.analysis.correlation import (
    correlate,
    correlations,
    fisher_mean,
    kendall,
    partial_spearman,
    pearson,
    ranks,
    spearman,
    weighted_ranks,
)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("n", [3, 4, 20, 200])
@pytest.mark.parametrize("ties", [False, True])
def test_correlate_equals_scipy(n: int, ties: bool, random: np.random.Generator) -> None:
    x = random.normal(size=n)
    y = x + random.normal(size=n)
    if ties:
        x, y = np.round(x), np.round(y, 1)
        x[0] += 1  # not constant
    found = correlate(x, y)
    r, rho = stats.pearsonr(x, y), stats.spearmanr(x, y)
    assert found.n == n
    assert found[1:3] == pytest.approx((r.statistic, r.pvalue))
    assert found[3:] == pytest.approx((rho.statistic, rho.pvalue), abs=1e-12)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)


def test_kendall_counts_pairs(random: np.random.Generator) -> None:
    x, y = random.integers(0, 4, (2, 12)).astype(float)
    signs = np.array([(np.sign(a - b), np.sign(c - d)) for (a, c), (b, d) in
                      itertools.combinations(zip(x, y), 2)])  # fmt: skip
    tau = (signs[:, 0] * signs[:, 1]).sum() / math.sqrt(np.prod((signs != 0).sum(0)))
    assert kendall(x, y) == pytest.approx(tau)


def test_perfect_constant_and_missing() -> None:
    assert correlate([1, 2, 3], [3, 2, 1])[1:] == pytest.approx((-1, 0, -1, 0))
    constant = correlate([1, 1, 1], [1, 2, 3])
    assert constant.n == 3
    assert np.isnan(constant[1:]).all()
    gaps = correlate([1, np.nan, 2, 4, np.inf], [1, 5, 2, 3, 9])
    assert gaps.n == 3
    assert gaps.spearman == 1
    with pytest.raises(ValueError, match="needs 3 pairs of finite numbers, not 2"):
        correlate([1, 2, np.nan], [1, 2, 3])
    with pytest.raises(ValueError, match="one length"):
        correlate([1, 2, 3], [1, 2])
    assert math.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert math.isnan(kendall(np.arange(2.0), np.arange(2.0)))


def test_pearson_along_the_last_axis(random: np.random.Generator) -> None:
    x, y = random.normal(size=(2, 5, 9))
    assert pearson(x, y) == pytest.approx([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y)])
    assert pearson(x * 1e-9, y * 1e9) == pytest.approx(pearson(x, y))
    x[2] = 0.1  # no exact binary fraction: its mean is off by rounding
    assert np.isnan(pearson(x, y)).tolist() == [False, False, True, False, False]


def test_weighted_ranks_are_ranks_of_the_repeated_sample(random: np.random.Generator) -> None:
    x = np.round(random.normal(size=15), 1)
    y = random.normal(size=15)
    weights = random.multinomial(15, np.full(15, 1 / 15), size=20).astype(float)
    a, b = weighted_ranks(x, weights), weighted_ranks(y, weights)
    rho = pearson(a, b, weights)
    for row, w in enumerate(weights.astype(int)):
        assert np.repeat(a[row], w) == pytest.approx(stats.rankdata(np.repeat(x, w)))
        expected = stats.spearmanr(np.repeat(x, w), np.repeat(y, w)).statistic
        assert rho[row] == pytest.approx(expected)


def test_partial_with_one_number_is_the_closed_form(random: np.random.Generator) -> None:
    z = random.normal(size=60)
    x, y = z + random.normal(size=(2, 60))
    xy, xz, yz = (stats.spearmanr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, {"z": z}) == pytest.approx(expected)
    assert partial_spearman(x, y, pd.DataFrame({"z": z, "same": 1.0})) == pytest.approx(expected)
    assert partial_spearman(x, y, {}) == pytest.approx(xy)


def test_partial_with_many_controls_is_the_precision_matrix(random: np.random.Generator) -> None:
    z = random.normal(size=(80, 3))
    x, y = (z @ random.normal(size=(3, 2)) + random.normal(size=(80, 2))).T
    inverse = np.linalg.inv(np.corrcoef(stats.rankdata(np.column_stack([x, y, z]), axis=0).T))
    expected = -inverse[0, 1] / math.sqrt(inverse[0, 0] * inverse[1, 1])
    assert partial_spearman(x, y, dict(zip("abc", z.T))) == pytest.approx(expected)


def test_partial_with_a_method_is_centring_within(random: np.random.Generator) -> None:
    method = np.repeat(["simclr", "moco", "byol"], 10)
    level = np.repeat([0.0, 5.0, 9.0], 10)
    x, y = level + random.normal(size=(2, 30))
    table = pd.DataFrame({"x": stats.rankdata(x), "y": stats.rankdata(y), "method": method})
    centred = table[["x", "y"]] - table.groupby("method")[["x", "y"]].transform("mean")
    expected = np.corrcoef(centred.to_numpy().T)[0, 1]
    assert partial_spearman(x, y, {"method": method}) == pytest.approx(expected)
    x[3] = np.nan
    kept = np.isfinite(x)
    assert partial_spearman(x, y, {"method": method}) == pytest.approx(
        partial_spearman(x[kept], y[kept], {"method": method[kept]})
    )


def test_partial_without_anything_left() -> None:
    x, y = np.arange(6.0), np.array([2.0, 1, 4, 3, 6, 5])
    assert math.isnan(partial_spearman(x, y, {"itself": x}))
    assert math.isnan(partial_spearman(x, y, {"each": list("abcdef")}))
    assert math.isnan(partial_spearman(x[:2], y[:2], {}))
    with pytest.raises(ValueError, match=r"one length, not \[6, 6, 5\]"):
        partial_spearman(x, y, {"short": np.arange(5)})


def test_missing_controls_are_a_value() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 20))
    gaps = np.where(np.arange(20) < 8, np.nan, 3.0)
    same = partial_spearman(x, y, {"z": np.where(np.isnan(gaps), "none", "three")})
    assert partial_spearman(x, y, {"z": gaps}) == pytest.approx(same)


def test_fisher_mean() -> None:
    rhos, ns = np.array([0.3, -0.2, 0.8]), np.array([10, 5, 23])
    expected = np.tanh(np.average(np.arctanh(rhos), weights=ns - 3))
    assert fisher_mean(rhos, ns) == pytest.approx(expected)
    assert fisher_mean([0.3, np.nan, 0.8], ns) == pytest.approx(fisher_mean([0.3, 0.8], [10, 23]))
    assert fisher_mean([0.5, 1.0], [10, 3]) == pytest.approx(0.5)  # three runs weigh nothing
    assert fisher_mean([0.5, -0.5, 0.5], [3, 3, 3]) == pytest.approx(np.tanh(np.arctanh(0.5) / 3))
    assert math.isnan(fisher_mean([np.nan, 0.4], [9, 2]))
    assert math.isnan(fisher_mean([], []))
    many = fisher_mean(np.stack([rhos, -rhos]), ns)
    assert many == pytest.approx([expected, -expected])


def test_fisher_mean_of_perfect_ranks() -> None:
    assert fisher_mean([1.0], [4]) == 1
    assert fisher_mean([1.0, 1.0], [4, 40]) == 1
    assert fisher_mean([-1.0, 1.0], [7, 7]) == pytest.approx(0)
    mixed = float(fisher_mean([1.0, 0.2], [10, 10]))
    assert mixed == pytest.approx(np.tanh((np.arctanh(1 - 6 / 990) + np.arctanh(0.2)) / 2))


def test_table() -> None:
    random = np.random.default_rng(0)
    runs = pd.DataFrame(random.normal(size=(12, 3)), columns=["sns@kernels", "accuracy", "f1"])
    runs["data"] = ["a"] * 10 + ["b"] * 2
    runs["flat@backbone"] = 1.0
    runs.loc[0, "sns@kernels"] = np.nan
    table = correlations(runs, ["sns@kernels", "flat@backbone"])
    assert len(table) == 2 * 2 * 2  # precision and recall are not there
    row = table[(table["data"] == "a") & (table["metric"] == "f1")].iloc[0]
    part = runs[1:10]
    assert row["n"] == 9
    expected = stats.spearmanr(part["sns@kernels"], part["f1"])
    assert (row["spearman"], row["spearman_p"]) == pytest.approx(tuple(expected))
    assert table[table["data"] == "b"]["pearson"].isna().all()
    assert table[table["score"] == "flat@backbone"]["spearman"].isna().all()
    assert correlations(runs, []).columns.tolist() == table.columns.tolist()
    assert ranks(np.array([3.0, 1.0, 3.0])).tolist() == [2.5, 1.0, 2.5]
