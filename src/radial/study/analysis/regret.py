"""What it costs to choose a run by a score: accuracy of the best run − that of the chosen one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

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

REGRET_COLUMNS = ("data", "method", "score", "kind", "n", "regret1", "regret3", "random1",
                  "random3", "picked", "tied", "best")  # fmt: skip
RANDOM = "random"


def regret(runs: pd.DataFrame, better: Mapping[str, str]) -> pd.DataFrame:
    """Regret@1 and @3 of every score, baseline and the random pick, by dataset and method.

    Regret@k = best accuracy − best accuracy among the k runs that the score puts first, over the
    ``n`` runs that have the score; NaN where n ≤ k leaves nothing to choose. Ties are broken at
    random and the expected value is given, so that a constant score is exactly a random pick.
    ``random1`` and ``random3`` are a random pick's from the same runs. ``picked`` is the run put
    first, "" where ``tied`` runs share that place; ``best`` is the first run of highest accuracy.
    """
    runs = labelled(runs)
    rows: list[dict[str, Any]] = []
    for data, group in by_data(runs):
        columns = judged(group, better)
        for method in method_order(group["method"]):
            part = group[group["method"] == method]
            accuracy, names = numbers(part, "accuracy"), part["run"].astype(str).to_numpy()
            scores = [(name, kind, oriented(numbers(part, name), way))
                      for name, way, kind in columns]  # fmt: skip
            scores.append((RANDOM, "baseline", np.zeros(len(part))))
            for name, kind, x in scores:
                kept = np.isfinite(x)
                if kept.any():
                    row = {"data": data, "method": method, "score": name, "kind": kind}
                    rows.append(row | _row(x[kept], accuracy[kept], names[kept]))
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


def mean_regret(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """(data, score) -> regrets, averaged over the methods that have one."""
    means = table.groupby(["data", "score"], sort=False)[["regret1", "regret3"]].mean()
    return {
        key: {"regret1": float(one), "regret3": float(three)}
        for key, (one, three) in zip(means.index, means.to_numpy(np.float64))
    }


def _row(x: Array, accuracy: Array, names: Any) -> dict[str, Any]:
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
