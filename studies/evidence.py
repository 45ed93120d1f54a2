"""The statistics that REGISTERED.md names: cells, hierarchical bootstrap, permutations, Holm.

Legend: a cell is data set × method × budget, n runs; the n runs of a method stand in one order in
all its cells. R resamples, P permutations, S scores, C cells. Scores are oriented by their declared
direction before they come in: more is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.stats import rankdata

RESAMPLES, PERMUTATIONS = 10_000, 20_000
Array = np.ndarray


@dataclass(frozen=True)
class Cell:
    data: str
    method: str
    budget: str
    accuracy: Array  # (n,)
    scores: Array  # (n, S)


def spearman(x: Array, y: Array) -> Array:
    """ρ along the last axis, ties by average ranks; 0 where one side is constant."""
    a, b = (rankdata(v, axis=-1) for v in (x, y))
    a, b = (v - v.mean(-1, keepdims=True) for v in (a, b))
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.divide((a * b).sum(-1), scale, out=np.zeros(scale.shape), where=scale > 0)


def fisher(rho: Array, n: int) -> Array:
    """artanh ρ, where ±1 counts as half a step below."""
    most = 1.0 - 6.0 / (n**3 - n)
    return np.arctanh(np.clip(rho, -most, most))


def regret(score: Array, accuracy: Array) -> Array:
    """Accuracy of the best run minus that of the picked one, along the last axis."""
    picked = np.take_along_axis(accuracy, score.argmax(-1)[..., None], -1)[..., 0]
    return accuracy.max(-1) - picked


def holm(p: Array) -> Array:
    """Adjusted p-values of a family."""
    order = np.argsort(p)
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


class Evidence:
    """What a table of runs says of its scores.

    Args:
        runs: columns run, data, method, accuracy, the budget, and the oriented scores. Runs without
            an accuracy or a score, or that lack one of their method's budgets, are left out, and so
            are methods with fewer than four runs.
        names: the scores.
        budget: the column that tells budgets apart.
        labelled: which of the names see labels: no part of Holm's family.
        seed: of resamples and permutations.
    """

    def __init__(
        self,
        runs: pd.DataFrame,
        names: Sequence[str],
        *,
        budget: str = "epoch",
        labelled: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        self.names, self.labelled, self.seed = list(names), list(labelled), seed
        self.cells: list[Cell] = []
        self.runs = 0  # that take part
        whole = runs.dropna(subset=["accuracy", *names])
        for (data, method), part in whole.groupby(["data", "method"], sort=False):
            seen = part.groupby("run")[budget].agg(frozenset)
            most = max(seen.value_counts().items(), key=lambda item: (len(item[0]), item[1]))[0]
            kept = part[part["run"].isin(seen.index[seen == most])]
            if kept["run"].nunique() < 4:
                continue
            self.runs += int(kept["run"].nunique())
            for when, cell in kept.sort_values("run").groupby(budget):
                values = cell[self.names].to_numpy(dtype=np.float64)
                accuracy = cell["accuracy"].to_numpy(dtype=np.float64)
                self.cells.append(Cell(str(data), str(method), str(when), accuracy, values))

    def only(self, names: Sequence[str]) -> Evidence:
        """The same runs and cells with some of the scores."""
        places = [self.names.index(name) for name in names]
        few = copy(self)
        for cached in ("z", "resampled", "p"):
            few.__dict__.pop(cached, None)
        few.names = list(names)
        few.cells = [replace(cell, scores=cell.scores[:, places]) for cell in self.cells]
        return few

    def _z(self, cell: Cell, rows: Array | slice = slice(None)) -> Array:
        """(…, S) Fisher's z of every score, of the runs in ``rows``, (…, n)."""
        accuracy, scores = cell.accuracy[rows], np.moveaxis(cell.scores[rows], -1, 0)
        return np.moveaxis(fisher(spearman(scores, accuracy[None]), accuracy.shape[-1]), 0, -1)

    def _lost(self, cell: Cell, rows: Array | slice = slice(None)) -> Array:
        accuracy, scores = cell.accuracy[rows], np.moveaxis(cell.scores[rows], -1, 0)
        return np.moveaxis(regret(scores, np.broadcast_to(accuracy, scores.shape)), 0, -1)

    @cached_property
    def z(self) -> Array:
        """(C, S)"""
        return np.array([self._z(cell) for cell in self.cells])

    def methods(self) -> pd.DataFrame:
        """The mean ρ of each method's cells, a column a score."""
        rho = pd.DataFrame(np.tanh(self.z), columns=self.names)
        return rho.groupby([cell.method for cell in self.cells]).mean()

    @cached_property
    def resampled(self) -> tuple[Array, Array]:
        """(R, S) mean z and mean regret, as registered."""
        return self.resample(np.ones(len(self.cells)))

    def resample(self, weight: Array, *, apart: bool = True) -> tuple[Array, Array]:
        """(R, S) mean z and mean regret: methods drawn within data sets, runs within methods.

        The runs of a method are drawn alike for all its budgets, and alike for every score.

        Args:
            weight: of each cell.
            apart: a method in two data sets is two; else it is drawn in all of them at once.
        """
        random = np.random.default_rng(self.seed)
        z, lost, total = 0.0, 0.0, 0.0
        for stratum in dict.fromkeys(cell.data if apart else "" for cell in self.cells):
            here = [(cell, w) for cell, w in zip(self.cells, weight, strict=True)
                    if not apart or cell.data == stratum]  # fmt: skip
            methods = list(dict.fromkeys(cell.method for cell, _ in here))
            chance = np.full(len(methods), 1 / len(methods))
            times = random.multinomial(len(methods), chance, RESAMPLES)  # (R, methods)
            pools: dict[tuple[str, str], Array] = {}
            for cell, w in here:
                n, key = len(cell.accuracy), (cell.data, cell.method)
                if key not in pools:
                    pools[key] = random.integers(0, n, (RESAMPLES, n))
                drawn = w * times[:, methods.index(cell.method), None]
                z = z + drawn * self._z(cell, pools[key])
                lost = lost + drawn * self._lost(cell, pools[key])
                total = total + drawn
        return z / total, lost / total

    def counted(self, name: str, weight: Array, *, apart: bool = True) -> dict[str, float]:
        """One score with the cells weighted: ρ and regret in points, with their intervals."""
        place = self.names.index(name)
        z, lost = (drawn[:, place] for drawn in self.resample(weight, apart=apart))
        low, high = np.tanh(np.percentile(z, [2.5, 97.5]))
        least, most = 100 * np.percentile(lost, [2.5, 97.5])
        return {
            "rho": float(np.tanh(np.average(self.z[:, place], weights=weight))),
            "low": float(low),
            "high": float(high),
            "plain": float(np.average([spearman(cell.scores[:, place], cell.accuracy)
                                       for cell in self.cells], weights=weight)),
            "regret": 100 * float(np.average([self._lost(cell)[place] for cell in self.cells],
                                             weights=weight)),
            "regret_low": float(least),
            "regret_high": float(most),
        }  # fmt: skip

    @cached_property
    def p(self) -> Array:
        """(S,) one-sided: how often permuted accuracies are ranked as well as the real ones."""
        random = np.random.default_rng(self.seed + 1)
        orders: dict[tuple[str, str], Array] = {}
        total = np.zeros((PERMUTATIONS, len(self.names)))
        for cell in self.cells:
            key, n = (cell.data, cell.method), len(cell.accuracy)
            if key not in orders:  # alike for all budgets, so that their dependence stays
                orders[key] = random.random((PERMUTATIONS, n)).argsort(1)
            accuracy = rankdata(cell.accuracy)[orders[key]]
            ranks = rankdata(cell.scores, axis=0)
            a, b = accuracy - accuracy.mean(), ranks - ranks.mean(0)
            scale = np.sqrt((a[0] ** 2).sum() * (b**2).sum(0))
            rho = np.divide(a @ b, scale, out=np.zeros(total.shape), where=scale > 0)
            total += fisher(rho, n)
        beyond = (total / len(self.cells) >= self.z.mean(0) - 1e-12).sum(0)
        return (1 + beyond) / (1 + PERMUTATIONS)

    def table(self) -> pd.DataFrame:
        """ρ and its interval, the least method, the top half, regret in points, Holm's p."""
        z, lost = self.resampled
        tops = []
        for cell in self.cells:
            better = np.flatnonzero(cell.accuracy >= np.median(cell.accuracy))
            if len(better) >= 4:
                tops.append(np.tanh(self._z(cell, better)))
        low, high = np.tanh(np.percentile(z, [2.5, 97.5], axis=0))
        least, most = 100 * np.percentile(lost, [2.5, 97.5], axis=0)
        family = ~np.isin(self.names, self.labelled)
        adjusted = np.full(len(self.names), np.nan)
        adjusted[family] = holm(self.p[family])
        columns = {
            "rho": np.tanh(self.z.mean(0)),
            "low": low,
            "high": high,
            "least": self.methods().min().to_numpy(),
            "top_half": np.mean(tops, axis=0) if tops else np.full(len(self.names), np.nan),
            "regret": 100 * np.mean([self._lost(cell) for cell in self.cells], axis=0),
            "regret_low": least,
            "regret_high": most,
            "p_holm": adjusted,
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, name="score"))

    def ahead(self, name: str, percent: float = 95.0) -> pd.DataFrame:
        """Mean ρ of a score minus that of each other, with the paired interval."""
        me, rho, drawn = self.names.index(name), np.tanh(self.z.mean(0)), np.tanh(self.resampled[0])
        ends = [50 - percent / 2, 50 + percent / 2]
        low, high = np.percentile(drawn[:, [me]] - drawn, ends, axis=0)
        columns = {"ahead": rho[me] - rho, "low": low, "high": high}
        table = pd.DataFrame(columns, index=pd.Index(self.names, name="score"))
        return table.drop(index=name)
