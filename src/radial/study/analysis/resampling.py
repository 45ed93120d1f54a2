"""Resamples and permutations of runs, by cluster and within methods.

Shapes: N runs of a dataset, n of them of one method, C its clusters, B resamples, P permutations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from radial.study.analysis.columns import Array, clusters, method_order, numbers, oriented
from radial.study.analysis.correlation import (
    FEWEST,
    fisher_mean,
    kendall,
    pearson,
    ranks,
    spearman,
    weighted_ranks,
)

IntArray = NDArray[np.int64]
Counts = Mapping[str, Array]
FEWEST_CLUSTERS = 5  # for an interval


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
