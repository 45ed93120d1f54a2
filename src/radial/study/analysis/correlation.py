"""Correlations: Pearson, Spearman, Kendall, partial Spearman, and means of them by Fisher's z; and
their resamples and permutations, by cluster and within methods (:class:`Groups`).

Shapes: N runs of a dataset, n of them of one method, C its clusters, G groups, B resamples,
P permutations. What works along the last axis takes any number of others.
A constant has no correlation with anything: NaN, without a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from radial.study.analysis.columns import (
    METRICS,
    Array,
    by_data,
    clusters,
    frame,
    method_order,
    numbers,
    oriented,
)

CORRELATION_COLUMNS = ("data", "score", "metric", "n", "pearson", "pearson_p", "spearman",
                       "spearman_p")  # fmt: skip
FEWEST = 3  # pairs for a correlation
IntArray = NDArray[np.int64]
Counts = Mapping[str, Array]
FEWEST_CLUSTERS = 5  # for an interval


class Correlation(NamedTuple):
    n: int
    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float


def correlate(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Pearson's r and Spearman's ρ with two-sided p-values, over the pairs where both are finite.

    p is that of t = r √((n−2)/(1−r²)) with n−2 degrees of freedom, for both, as in scipy.

    >>> correlate([1, 2, 3, 4], [1, 4, 9, 16]).spearman
    1.0
    """
    x, y = _finite_pairs(x, y)
    if len(x) < FEWEST:
        raise ValueError(f"a correlation needs {FEWEST} pairs of finite numbers, not {len(x)}")
    return _correlate(x, y)


def correlations(
    runs: pd.DataFrame, scores: Iterable[str], metrics: Iterable[str] = METRICS
) -> pd.DataFrame:
    """Each score with each metric, over all runs of a dataset pooled, as published.

    The scores are taken as they are, not turned by their direction. With fewer than three runs
    that have both, the figures are NaN.
    """
    rows: list[dict[str, Any]] = []
    metrics = [metric for metric in metrics if metric in runs]
    for data, group in by_data(runs):
        for score in scores:
            for metric in metrics:
                x, y = _finite_pairs(numbers(group, score), numbers(group, metric))
                found = _correlate(x, y)._asdict()
                rows.append({"data": data, "score": score, "metric": metric} | found)
    return frame(rows, CORRELATION_COLUMNS)


def pearson(x: Array, y: Array, weights: Array | None = None) -> Array:
    """r along the last axis, each pair counted ``weights`` times; NaN where one is constant."""
    weights = np.ones(x.shape[-1]) if weights is None else weights
    total = weights.sum(-1, keepdims=True)
    sizes = [np.abs(values).max(-1, initial=0.0) for values in (x, y)]
    with np.errstate(invalid="ignore", divide="ignore"):
        x = x - (weights * x).sum(-1, keepdims=True) / total
        y = y - (weights * y).sum(-1, keepdims=True) / total
        xx, yy, xy = ((weights * a * b).sum(-1) for a, b in ((x, x), (y, y), (x, y)))
        r = xy / np.sqrt(xx * yy)
    flat = [square <= total[..., 0] * (1e-13 * size) ** 2 for square, size in zip((xx, yy), sizes)]
    return np.clip(np.where(flat[0] | flat[1], np.nan, r), -1.0, 1.0)


def ranks(x: Array) -> Array:
    """Average ranks along the last axis, from 1."""
    from scipy import stats

    return np.asarray(stats.rankdata(x, axis=-1), dtype=np.float64)


def weighted_ranks(x: Array, weights: Array) -> Array:
    """Average ranks of x (N) in each sample that has value i ``weights[b, i]`` times: (B, N).

    In a sample that repeats values, rank_i = Σ_{x_j < x_i} w_j + (Σ_{x_j = x_i} w_j + 1)/2. The
    values are sorted once for all samples.
    """
    order = np.argsort(x, kind="stable")
    starts = np.flatnonzero(np.diff(x[order], prepend=np.nan) != 0)  # NaN ≠ 0: the first counts
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    middle = np.cumsum(counts, axis=1) - counts / 2 + 0.5
    place = np.empty(len(x), dtype=np.int64)
    place[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(x)))
    return np.asarray(middle[:, place])


def spearman(x: Array, y: Array) -> float:
    """ρ, the Pearson correlation of average ranks; NaN for fewer than three or a constant."""
    if len(x) < FEWEST or _constant(x) or _constant(y):
        return math.nan
    return float(pearson(ranks(x), ranks(y)))


def kendall(x: Array, y: Array) -> float:
    """τ-b, which counts ties; NaN for fewer than three or a constant."""
    from scipy import stats

    if len(x) < FEWEST or _constant(x) or _constant(y):
        return math.nan
    return float(stats.kendalltau(x, y, method="asymptotic").statistic)


def partial_spearman(
    x: ArrayLike, y: ArrayLike, controls: pd.DataFrame | Mapping[str, ArrayLike]
) -> float:
    """Spearman's ρ of what the controls leave of x and y.

    Ranks of x and y are regressed by least squares on the ranks of numeric controls and on
    indicators of the others; ρ is the Pearson correlation of the residuals. Rows where x or y is
    missing are left out; a missing control is a value of its own. NaN where fewer than three
    rows are left over after the controls, or nothing is left of x or y.
    """
    table = {str(name): pd.Series(np.asarray(values)) for name, values in controls.items()}
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    lengths = [len(values) for values in (x, y, *table.values())]
    if len(set(lengths)) > 1:
        raise ValueError(f"x, y and controls must be of one length, not {lengths}")
    kept = np.isfinite(x) & np.isfinite(y)
    if kept.sum() < FEWEST:
        return math.nan
    design = _design([column[kept] for column in table.values()], int(kept.sum()))
    if kept.sum() - np.linalg.matrix_rank(design) < 2:
        return math.nan
    targets = np.stack([ranks(x[kept]), ranks(y[kept])], axis=1)
    fitted = design @ np.linalg.lstsq(design, targets, rcond=None)[0]
    left = targets - fitted
    if (np.linalg.norm(left, axis=0) <= 1e-9 * np.linalg.norm(targets, axis=0)).any():
        return math.nan
    return float(pearson(left[:, 0], left[:, 1]))


def fisher_mean(rhos: ArrayLike, ns: ArrayLike) -> Array:
    """Mean correlation over the groups (last axis): tanh(Σ (n−3) artanh ρ / Σ (n−3)).

    NaN groups are left out. Groups of three have weight 0, and count (all alike) only where there
    is no larger one. ±1 has no finite artanh: it counts as half a step below, 1 − 6/(n³−n), where
    12/(n³−n) is the smallest step of ρ without ties. The mean never leaves the range of the ρ.
    """
    rhos, n = np.atleast_1d(np.asarray(rhos, dtype=np.float64)), np.asarray(ns, dtype=np.float64)
    usable = np.isfinite(rhos) & (n >= FEWEST)
    weights = np.where(usable, np.maximum(n - FEWEST, 0.0), 0.0)
    small = weights.sum(-1, keepdims=True) == 0
    weights = np.where(small, usable, weights)
    total, m = weights.sum(-1), np.maximum(n, FEWEST)
    limit = 1 - 6 / (m**3 - m)
    z = np.arctanh(np.clip(np.where(usable, rhos, 0.0), -limit, limit))
    counted = weights > 0
    lowest = np.where(counted, rhos, np.inf).min(-1, initial=np.inf)
    highest = np.where(counted, rhos, -np.inf).max(-1, initial=-np.inf)
    mean = np.tanh((weights * z).sum(-1) / np.where(total > 0, total, 1.0))
    return np.where(total > 0, np.clip(mean, np.minimum(lowest, highest), highest), np.nan)


def _finite_pairs(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"x and y must be of one length, not {x.shape} and {y.shape}")
    kept = np.isfinite(x) & np.isfinite(y)
    return x[kept], y[kept]


def _constant(x: Array) -> bool:
    return bool((x == x[0]).all())


def _correlate(x: Array, y: Array) -> Correlation:
    if len(x) < FEWEST or _constant(x) or _constant(y):
        return Correlation(len(x), math.nan, math.nan, math.nan, math.nan)
    r, rho = float(pearson(x, y)), spearman(x, y)
    return Correlation(len(x), r, _p_value(r, len(x)), rho, _p_value(rho, len(x)))


def _p_value(r: float, n: int) -> float:
    from scipy import stats

    if math.isnan(r) or abs(r) >= 1:
        return math.nan if math.isnan(r) else 0.0
    return float(2 * stats.t.sf(abs(r) * math.sqrt((n - 2) / (1 - r * r)), n - 2))


def _design(controls: Sequence[pd.Series], n: int) -> Array:
    """Columns of the regression: 1, ranks of numeric controls, indicators of the others."""
    columns = [np.ones(n)]
    for column in controls:
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            values = column.to_numpy(np.float64, na_value=np.nan)
            missing = ~np.isfinite(values)
            columns.append(np.where(missing, 0.0, ranks(np.where(missing, np.inf, values))))
            columns.append(missing.astype(np.float64))
        else:
            kinds = pd.factorize(column, use_na_sentinel=False)[0]
            columns += [(kinds == kind).astype(np.float64) for kind in range(1, kinds.max() + 1)]
    return np.stack(columns, axis=1)


class Groups:
    """The runs of one dataset, by method: rows, clusters and accuracies, looked up once."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self.runs = runs.reset_index(drop=True)
        self.methods = method_order(runs["method"])
        self.accuracy = numbers(runs, "accuracy")
        names, cluster = self.runs["method"].to_numpy(), clusters(self.runs)
        self.rows = {method: np.flatnonzero(names == method) for method in self.methods}
        self.clusters: dict[str, IntArray] = {
            method: np.unique(cluster[rows], return_inverse=True)[1].astype(np.int64)
            for method, rows in self.rows.items()
        }
        self._last: dict[str, tuple[Any, IntArray, IntArray]] = {}

    def oriented(self, name: str, better: str) -> Array:
        """A column such that more is better: (N)."""
        return oriented(numbers(self.runs, name), better)

    def correlations(self, x: Array) -> tuple[list[float], list[float], list[int]]:
        """τ-b, ρ and how many runs of each method have the score."""
        parts = [rows[np.isfinite(x[rows])] for rows in self.rows.values()]
        pairs = [(x[rows], self.accuracy[rows]) for rows in parts]
        taus, rhos = [kendall(*pair) for pair in pairs], [spearman(*pair) for pair in pairs]
        return taus, rhos, [len(rows) for rows in parts]

    def resample(self, resamples: int, seed: int) -> Counts:
        """How often each run is in each resample of the clusters, by method: (B, n).

        C clusters are drawn from C with replacement; all runs of a cluster come together.
        """
        random = np.random.default_rng([seed, 0])
        counts = {}
        for method, cluster in self.clusters.items():
            number = int(cluster.max()) + 1
            drawn = random.multinomial(number, np.full(number, 1 / number), size=resamples)
            counts[method] = drawn[:, cluster].astype(np.float64)
        return counts

    def bootstrap(self, x: Array, counts: Counts) -> Array:
        """The mean within-method ρ of each resample, ranked anew: (B).

        A method with fewer than three runs that have the score is left out. NaN where fewer than
        five clusters are left in all: so few repeat themselves, and the interval is too narrow.
        """
        columns, ns, number = [], [], 0
        for method, rows in self.rows.items():
            kept = np.isfinite(x[rows])
            if kept.sum() < FEWEST:
                continue
            weights, a, b = counts[method][:, kept], x[rows][kept], self.accuracy[rows][kept]
            columns.append(pearson(weighted_ranks(a, weights), weighted_ranks(b, weights), weights))
            ns.append(len(a))
            number += len(np.unique(self.clusters[method][kept]))
        if number < FEWEST_CLUSTERS:
            return np.full(len(next(iter(counts.values()))), np.nan)
        return fisher_mean(np.stack(columns, axis=1), ns)

    def permutation_p(self, x: Array, permutations: int, seed: int) -> float:
        """One-sided p of the mean within-method ρ: (1 + #{permuted ρ ≥ ρ}) / (1 + P).

        The scores of a method are laid anew over its runs, cluster after cluster in random order:
        with clusters of one size whole clusters change places; with unequal sizes some straddle.
        """
        observed, columns, ns = [], [], []
        for method, rows in self.rows.items():
            kept = np.isfinite(x[rows])
            a, b = x[rows][kept], self.accuracy[rows][kept]
            cluster = self.clusters[method][kept]
            rho = spearman(a, b)
            if math.isnan(rho) or len(np.unique(cluster)) < 2:
                continue
            order, base = self._orders(method, cluster, kept, permutations, seed)
            a, b = _standard(ranks(a)), _standard(ranks(b))
            observed.append(rho)
            columns.append(np.clip(a[order] @ b[base], -1.0, 1.0))
            ns.append(len(a))
        if not observed:
            return math.nan
        least = float(fisher_mean(observed, ns)) - 1e-12
        reached = int((fisher_mean(np.stack(columns, axis=1), ns) >= least).sum())
        return (1 + reached) / (1 + permutations)

    def _orders(
        self, method: str, cluster: IntArray, kept: NDArray[np.bool_], number: int, seed: int
    ) -> tuple[IntArray, IntArray]:
        """Random orders of the rows, clusters together (P, n), and the rows they are laid on (n).

        Kept for the next score, which mostly is there for the same runs.
        """
        key = (kept.tobytes(), number, seed)
        if method not in self._last or self._last[method][0] != key:
            random = np.random.default_rng([seed, 1, self.methods.index(method)])
            places = random.random((number, int(cluster.max()) + 1))
            order = np.argsort(places[:, cluster], axis=1, kind="stable")
            self._last[method] = (key, order, np.argsort(cluster, kind="stable"))
        return self._last[method][1:]


def _standard(values: Array) -> Array:
    """Mean 0 and length 1, so that a product of two is their correlation."""
    values = values - values.mean()
    return np.asarray(values / np.linalg.norm(values), dtype=np.float64)
