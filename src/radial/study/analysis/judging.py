"""How a label-free score is judged: does it rank the runs of a method as their accuracy does?

1. Within a method: Kendall's τ-b and Spearman's ρ, averaged over methods by Fisher's z; the pooled
   figure beside it, and a flag where their signs disagree (Simpson's paradox).
2. Partial Spearman given method, epoch and widths.
3. Regret of the run it picks, against baselines (:mod:`radial.study.analysis.regret`).
4. Cluster bootstrap, paired between scores; permutation null; Holm over the family.
5. The seed floor: the spread between seeds beside the spread between configurations.
6. The sign of each score is declared before accuracy is looked at: scores are turned by it first,
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
    configurations,
    final,
    frame,
    judged,
    labelled,
    method_order,
    numbers,
)
from radial.study.analysis.correlation import (
    FEWEST,
    fisher_mean,
    kendall,
    partial_spearman,
    spearman,
)
from radial.study.analysis.regret import mean_regret, regret
from radial.study.analysis.resampling import Groups

__all__ = ["compare_scores", "holm", "judge", "regret", "seed_floor", "within"]

WITHIN_COLUMNS = ("data", "score", "kind", "method", "n", "kendall", "spearman")
JUDGE_COLUMNS = ("data", "score", "kind", "better", "n", "methods", "kendall", "spearman", "low",
                 "high", "pooled_spearman", "pooled_kendall", "simpson", "partial", "partial_n",
                 "p", "p_holm", "regret1", "regret3", "verdict")  # fmt: skip
COMPARE_COLUMNS = ("data", "a", "b", "n", "difference", "low", "high")
SEED_COLUMNS = ("data", "method", "configurations", "repeated", "seeds", "between_seeds",
                "between_configurations", "ratio")  # fmt: skip
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
            taus, rhos, ns = _by_method(groups, groups.oriented(name, way))
            rows += [
                {"data": data, "score": name, "kind": kind, "method": method, "n": n,
                 "kendall": tau, "spearman": rho}
                for method, n, tau, rho in zip(groups.methods, ns, taus, rhos)
            ]  # fmt: skip
    return frame(rows, WITHIN_COLUMNS)


def judge(
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
    regrets = mean_regret(regret(runs, better))
    rows: list[dict[str, Any]] = []
    for data, group in by_data(runs):
        groups = Groups(group)
        counts = groups.draw(resamples, seed)
        several = len(groups.methods) > 1
        columns = judged(group, better)
        enough = max(permutations, PER_SCORE * sum(kind == "score" for _, _, kind in columns))
        found = []
        for name, way, kind in columns:
            x = groups.oriented(name, way)
            row: dict[str, Any] = {"data": data, "score": name, "kind": kind, "better": way}
            taus, rhos, ns = _by_method(groups, x)
            row |= {"n": sum(ns), "methods": int(np.isfinite(rhos).sum()),
                    "kendall": float(fisher_mean(taus, ns)),
                    "spearman": float(fisher_mean(rhos, ns))}  # fmt: skip
            row |= dict(zip(("low", "high"), _quantiles(groups.bootstrap(x, counts))))
            row |= _pooled(group, x, row["spearman"], comparable=not several or
                           name not in WITHIN_ONLY)  # fmt: skip
            row |= {"p": groups.permutation_p(x, enough, seed), "p_holm": math.nan}
            row |= regrets.get((data, name), {"regret1": math.nan, "regret3": math.nan})
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
        counts = groups.draw(resamples, seed)
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
                pair = {a: np.where(both, x, np.nan), b: np.where(both, y, np.nan)}
                first, second = (_mean_rho(groups, values) for values in pair.values())
                for name, values in pair.items():
                    if (key := (name, both.tobytes())) not in draws:
                        draws[key] = groups.bootstrap(values, counts)
                low, high = _quantiles(draws[a, both.tobytes()] - draws[b, both.tobytes()])
                rows.append(
                    {"data": data, "a": a, "b": b, "n": int(both.sum()),
                     "difference": first - second, "low": low, "high": high}
                )  # fmt: skip
    return frame(rows, COMPARE_COLUMNS)


def seed_floor(runs: pd.DataFrame) -> pd.DataFrame:
    """How much of the spread of accuracies is between seeds: a score cannot rank below that.

    s² = Σ_c Σ_i (a_ci − ā_c)² / Σ_c (n_c − 1) over the configurations c with two or more runs;
    ``between_configurations`` is √max(0, var_c ā_c − s² mean_c 1/n_c), the spread of the means
    without what the seeds add to it, NaN for fewer than two. ``seeds`` is how many there are.
    """
    runs = final(labelled(runs))
    rows = []
    for data, group in by_data(runs):
        for method in method_order(group["method"]):
            part = group[group["method"] == method].reset_index(drop=True)
            cells = pd.Series(numbers(part, "accuracy")).groupby(configurations(part))
            n, means = cells.size().to_numpy(), cells.mean().to_numpy()
            free = int((n - 1).sum())
            square = float(((cells.var(ddof=1).to_numpy() * (n - 1))[n > 1]).sum())
            seeds = math.sqrt(square / free) if free else math.nan
            spread = math.nan
            if free and len(n) > 1:
                spread = math.sqrt(max(0.0, means.var(ddof=1) - seeds**2 * (1 / n).mean()))
            rows.append(
                {"data": data, "method": method, "configurations": len(n),
                 "repeated": int((n > 1).sum()),
                 "seeds": int(part["seed"].nunique()) if "seed" in part else 0,
                 "between_seeds": seeds, "between_configurations": spread,
                 "ratio": spread / seeds if seeds > 0 else math.nan}
            )  # fmt: skip
    return frame(rows, SEED_COLUMNS)


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


def _by_method(groups: Groups, x: Array) -> tuple[list[float], list[float], list[int]]:
    parts = [groups.pairs(x, method) for method in groups.methods]
    taus, rhos = [kendall(*pair) for pair in parts], [spearman(*pair) for pair in parts]
    return taus, rhos, [len(pair[0]) for pair in parts]


def _mean_rho(groups: Groups, x: Array) -> float:
    parts = [groups.pairs(x, method) for method in groups.methods]
    return float(fisher_mean([spearman(*pair) for pair in parts], [len(a) for a, _ in parts]))


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
