"""How a label-free score is judged: does it rank the runs of a method as their accuracy does?

1. Within a method: Kendall's τ-b and Spearman's ρ, averaged over methods by Fisher's z; the pooled
   figure beside it, and a flag where their signs disagree (Simpson's paradox).
2. Partial Spearman given method, epoch and widths.
3. Regret of the run it picks, against baselines.
4. Cluster bootstrap, paired between scores; permutation null; Holm over the family.
5. The sign of each score is declared before accuracy is looked at: scores are turned by it first,
   so that a positive figure is good, and tests are one-sided.

Clusters are configurations: runs that differ by seed only, and the checkpoints of a run, are
resampled and permuted together, within their method. Where a method has one configuration only,
its runs are the clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from radial.checks import check_size
from radial.study.analysis.columns import (
    Array,
    by_data,
    frame,
    judged,
    labelled,
    method_order,
    numbers,
    oriented,
)
from radial.study.analysis.correlation import (
    FEWEST,
    Groups,
    fisher_mean,
    kendall,
    partial_spearman,
    spearman,
)

WITHIN_COLUMNS = ("data", "score", "kind", "method", "n", "kendall", "spearman")
JUDGE_COLUMNS = ("data", "score", "kind", "better", "n", "methods", "kendall", "spearman", "low",
                 "high", "pooled_spearman", "pooled_kendall", "simpson", "partial", "partial_n",
                 "p", "p_holm", "regret1", "regret3", "verdict")  # fmt: skip
COMPARE_COLUMNS = ("data", "a", "b", "n", "difference", "low", "high")
REGRET_COLUMNS = ("data", "method", "score", "kind", "n", "regret1", "regret3", "random1",
                  "random3", "picked", "tied", "best", "left_out")  # fmt: skip
RANDOM = "random"
CONTROLS = ("method", "epoch", "hidden_dim", "output_dim")
WITHIN_ONLY = ("train_loss",)  # losses of two methods do not compare
NOTABLE = 0.1  # |ρ| from which a sign is a sign
LEVEL = 0.95
PER_SCORE = 50  # permutations


def within(runs: pd.DataFrame, better: Mapping[str, str]) -> pd.DataFrame:
    """τ-b and ρ of each score (and baseline) with accuracy, by dataset and method."""
    runs = labelled(runs)
    rows = []
    for data, group in by_data(runs):
        groups = Groups(group)
        for name, way, kind in judged(group, better):
            taus, rhos, ns = groups.correlations(groups.oriented(name, way))
            rows += [
                {"data": data, "score": name, "kind": kind, "method": method, "n": n,
                 "kendall": tau, "spearman": rho}
                for method, n, tau, rho in zip(groups.methods, ns, taus, rhos)
            ]  # fmt: skip
    return frame(rows, WITHIN_COLUMNS)


def judge_scores(
    runs: pd.DataFrame,
    better: Mapping[str, str],
    *,
    resamples: int = 1000,
    permutations: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """One row a dataset and score: how well it ranks runs, how sure that is, and what it costs.

    Args:
        runs: one row a run, with accuracy and the columns of the scores.
        better: score -> higher, lower, near 1 (−|score − 1| is ranked) or none (left out).
        resamples: of the clusters, for ``low`` and ``high``: the 2.5 and 97.5 % quantiles of the
            mean within-method ρ.
        permutations: of the score within a method, by cluster, for ``p``, which is one-sided:
            p = (1 + #{permuted ρ ≥ ρ}) / (1 + permutations). ``p_holm`` is over all scores of the
            dataset; baselines are not of that family. At least 50 a score are made: with fewer no
            p could be small enough to stay so after Holm.
        seed: of the resamples and permutations, the same for all scores.

    Baselines are rows of kind "baseline": the training loss (within methods only), a kNN with 1 %
    of the labels, and steps where these differ within a method. ``simpson``: within and pooled ρ
    have opposite signs, both of at least 0.1. Regrets are fractions, means over the methods.
    """
    check_size("resamples", resamples)
    check_size("permutations", permutations)
    runs = labelled(runs)
    regrets = regret(runs, better).groupby(["data", "score"])[["regret1", "regret3"]].mean()
    rows: list[dict[str, Any]] = []
    for data, group in by_data(runs):
        groups = Groups(group)
        counts = groups.resample(resamples, seed)
        several = len(groups.methods) > 1
        columns = judged(group, better)
        enough = max(permutations, PER_SCORE * sum(kind == "score" for _, _, kind in columns))
        found = []
        for name, way, kind in columns:
            x = groups.oriented(name, way)
            row: dict[str, Any] = {"data": data, "score": name, "kind": kind, "better": way}
            taus, rhos, ns = groups.correlations(x)
            row |= {"n": sum(ns), "methods": int(np.isfinite(rhos).sum()),
                    "kendall": float(fisher_mean(taus, ns)),
                    "spearman": float(fisher_mean(rhos, ns))}  # fmt: skip
            row |= dict(zip(("low", "high"), _quantiles(groups.bootstrap(x, counts))))
            row |= _pooled(group, x, row["spearman"], comparable=not several or
                           name not in WITHIN_ONLY)  # fmt: skip
            row |= {"p": groups.permutation_p(x, enough, seed), "p_holm": math.nan}
            row |= regrets.loc[(data, name)].to_dict()
            found.append(row)
        family = [row for row in found if row["kind"] == "score"]
        for row, p in zip(family, holm([row["p"] for row in family])):
            row["p_holm"] = p
        rows += [row | {"verdict": _verdict(row)} for row in found]
    return frame(rows, JUDGE_COLUMNS)


def compare_scores(
    runs: pd.DataFrame,
    better: Mapping[str, str],
    against: Iterable[str] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Difference of mean within-method ρ between every score a and each b, with paired intervals.

    ``against`` names scores or baselines; by default the baselines that the runs have. Both are
    taken over the runs that have both, and both in the same resamples of clusters, so that what
    they share cancels. ``low`` above 0: a ranks better than b.
    """
    check_size("resamples", resamples)
    runs = labelled(runs)
    known = {name for name, _, _ in judged(runs, better)}
    named = None if against is None else set(against)
    if unknown := sorted((named or set()) - known):
        raise ValueError(f"unknown score {unknown[0]!r}; known: {', '.join(sorted(known))}")
    rows = []
    for data, group in by_data(runs):
        groups = Groups(group)
        counts = groups.resample(resamples, seed)
        columns = {name: (groups.oriented(name, way), kind)
                   for name, way, kind in judged(group, better)}  # fmt: skip
        draws: dict[tuple[str, bytes], Array] = {}
        others = [name for name, (_, kind) in columns.items()
                  if (kind == "baseline" if named is None else name in named)]  # fmt: skip
        for a, (x, kind) in columns.items():
            for b in others:
                y = columns[b][0]
                if a == b or kind == "baseline":
                    continue
                both = np.isfinite(x) & np.isfinite(y)
                means, keys = [], []
                for name, values in ((a, x), (b, y)):
                    values = np.where(both, values, np.nan)
                    _, rhos, ns = groups.correlations(values)
                    means.append(float(fisher_mean(rhos, ns)))
                    keys.append((name, both.tobytes()))
                    if keys[-1] not in draws:
                        draws[keys[-1]] = groups.bootstrap(values, counts)
                low, high = _quantiles(draws[keys[0]] - draws[keys[1]])
                rows.append(
                    {"data": data, "a": a, "b": b, "n": int(both.sum()),
                     "difference": means[0] - means[1], "low": low, "high": high}
                )  # fmt: skip
    return frame(rows, COMPARE_COLUMNS)


def regret(runs: pd.DataFrame, better: Mapping[str, str]) -> pd.DataFrame:
    """Regret@1 and @3 of every score, baseline and the random pick, by dataset and method.

    Regret@k = best accuracy − best accuracy among the k runs that the score puts first, over the
    ``n`` runs that have the score; NaN where n ≤ k leaves nothing to choose. Ties are broken at
    random and the expected value is given, so that a constant score is exactly a random pick.
    ``random1`` and ``random3`` are a random pick's from the same runs. ``picked`` is the run put
    first, "" where ``tied`` runs share that place; ``best`` is the first run of highest accuracy.
    ``left_out`` counts the runs of the method that are no contestants: without an accuracy, as
    those that diverged, or without the score.
    """
    rows: list[dict[str, Any]] = []
    for data, group in by_data(labelled(runs)):
        columns = judged(group, better)
        for method in method_order(group["method"]):
            part = group[group["method"] == method]
            accuracy, names = numbers(part, "accuracy"), part["run"].astype(str).to_numpy()
            planned = int((runs["data"].eq(data) & runs["method"].eq(method)).sum())
            scores = [(name, kind, oriented(numbers(part, name), way))
                      for name, way, kind in columns]  # fmt: skip
            scores.append((RANDOM, "baseline", np.zeros(len(part))))
            for name, kind, x in scores:
                kept = np.isfinite(x)
                if kept.any():
                    row = {"data": data, "method": method, "score": name, "kind": kind,
                           "left_out": planned - int(kept.sum())}  # fmt: skip
                    rows.append(row | _picked(x[kept], accuracy[kept], names[kept]))
    return frame(rows, REGRET_COLUMNS)


def expected_regret(x: Array, accuracy: Array, k: int) -> float:
    """Regret@k, expected over random orders of runs with equal scores.

    F runs are above the tie at the k-th place; m = k − F are drawn from the t tied ones without
    replacement. Their highest accuracy is the j-th smallest of the t with probability
    C(j−1, m−1)/C(t, m).

    >>> expected_regret(np.zeros(4), np.array([0.0, 0.25, 0.5, 1.0]), 3)
    0.125
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    n = len(x)
    if n <= k:
        return math.nan
    edge = np.sort(x)[n - k]
    above, tied = accuracy[x > edge], np.sort(accuracy[x == edge])
    m, t = k - len(above), len(tied)
    chances = np.array([math.comb(j, m - 1) / math.comb(t, m) for j in range(t)])
    chosen = np.maximum(tied, above.max(initial=-np.inf))
    return float((chances * (accuracy.max() - chosen)).sum())


def _picked(x: Array, accuracy: Array, names: Any) -> dict[str, Any]:
    first = np.flatnonzero(x == x.max())
    same = np.zeros(len(x))
    return {
        "n": len(x),
        "regret1": expected_regret(x, accuracy, 1),
        "regret3": expected_regret(x, accuracy, 3),
        "random1": expected_regret(same, accuracy, 1),
        "random3": expected_regret(same, accuracy, 3),
        "picked": names[first[0]] if len(first) == 1 else "",
        "tied": len(first),
        "best": names[int(np.argmax(accuracy))],
    }


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's adjusted p: max over the smaller ones of (m − rank + 1) p, at most 1.

    NaN (could not be tested) stays NaN and is not of the family.
    """
    p = np.asarray(list(p_values), dtype=np.float64)
    order = [int(i) for i in np.argsort(p, kind="stable") if np.isfinite(p[i])]
    adjusted, highest = np.full(len(p), np.nan), 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p[i]))
        adjusted[i] = highest
    return [float(value) for value in adjusted]


def _quantiles(draws: Array) -> tuple[float, float]:
    """The middle 95 % of the resamples that have a value; NaN where fewer than half have one."""
    draws = draws[np.isfinite(draws)] if np.isfinite(draws).mean() >= 0.5 else draws[:0]
    if not len(draws):
        return math.nan, math.nan
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _pooled(runs: pd.DataFrame, x: Array, mean: float, comparable: bool) -> dict[str, Any]:
    """The figures over all methods together, where the score compares between them."""
    y = numbers(runs, "accuracy")
    kept = np.isfinite(x)
    rho = tau = partial = math.nan
    if comparable and kept.sum() >= FEWEST:
        rho, tau = spearman(x[kept], y[kept]), kendall(x[kept], y[kept])
        rows = runs[kept]
        controls = {name: rows[name] for name in CONTROLS
                    if name in rows and rows[name].nunique(dropna=False) > 1}  # fmt: skip
        partial = partial_spearman(x[kept], y[kept], pd.DataFrame(controls, index=rows.index))
    opposed = rho * mean < 0 and min(abs(rho), abs(mean)) >= NOTABLE
    n = int(kept.sum()) if math.isfinite(partial) else 0
    return {"pooled_spearman": rho, "pooled_kendall": tau, "simpson": bool(opposed),
            "partial": partial, "partial_n": n}  # fmt: skip


def _verdict(row: Mapping[str, Any]) -> str:
    if math.isnan(row["spearman"]):
        return "too few runs, or constant"
    p = row["p_holm"] if row["kind"] == "score" else row["p"]
    if p < 1 - LEVEL and row["low"] > 0:
        return "ranks runs"
    return "ranks them backwards" if row["high"] < 0 else "no evidence"
