"""The analysis of a study, frames in, frames out: the paper's tables, and what it did not ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from radial.study.analysis.columns import (
    BASELINES,
    by_data,
    final,
    frame,
    labelled,
    numbers,
    of_different_views,
    score_columns,
    with_clid,
)
from radial.study.analysis.correlation import FEWEST, correlations
from radial.study.analysis.judging import compare_scores, judge_scores, regret, within
from radial.study.analysis.peaks import (
    FEWEST_FOR_SHAP,
    PAIR_COLUMNS,
    SHAP_COLUMNS,
    VALUE_COLUMNS,
    paired_heads,
    peak_table,
    rbfn_runs,
    seed_floor,
    shap_table,
    varying,
)
from radial.verdicts import DIVERGED

LABELS = {"train_loss": "training loss", "knn_1pct": "accuracy of a kNN with 1 % of the labels"}
Note = tuple[str, str]  # the table that it is about ("" all of them), and what is missing


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """All tables of a study; ``missing`` says what could not be computed, and why."""

    peaks: pd.DataFrame
    heads: pd.DataFrame
    importance: pd.DataFrame
    importance_values: pd.DataFrame
    correlations: pd.DataFrame
    within: pd.DataFrame
    judgement: pd.DataFrame
    regret: pd.DataFrame
    comparisons: pd.DataFrame
    seeds: pd.DataFrame
    missing: tuple[Note, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.missing)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Name -> table, for export."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "missing"}


def analyse(
    runs: pd.DataFrame,
    better: Mapping[str, str],
    *,
    decimals: int | None = 2,
    seed: int = 0,
    resamples: int = 1000,
) -> Analysis:
    """Every table that the runs allow; the others are empty, and a note says why.

    Args:
        runs: one row a run; see :mod:`radial.study.analysis.columns`.
        better: score column -> higher, lower, near 1 or none.
        decimals: at which two peaks are told apart; see :func:`peak_table`.
        seed: of resamples and permutations.
        resamples: of the bootstrap; twice as many permutations are drawn.
    """
    runs, better = with_clid(runs, better)
    better = {**better, **dict.fromkeys(of_different_views(runs, better), "none")}
    importance, values, without_shap = _importance(runs)
    return Analysis(
        peaks=peak_table(runs, decimals),
        heads=_heads(runs),
        importance=importance,
        importance_values=values,
        correlations=correlations(runs, score_columns(runs)),
        within=within(runs, better),
        judgement=judge_scores(
            runs, better, resamples=resamples, permutations=2 * resamples, seed=seed
        ),
        regret=regret(runs, better),
        comparisons=compare_scores(runs, better, resamples=resamples, seed=seed),
        seeds=seed_floor(runs),
        missing=(*_missing(runs, better), *_without_importance(runs), *without_shap),
    )


def _heads(runs: pd.DataFrame) -> pd.DataFrame:
    """The default head against every other, RBFN heads first."""
    names = sorted(set(runs["head"].astype(str)) - {"default"}) if "head" in runs else []
    others = sorted(names, key=lambda name: not name.startswith("rbfn"))
    tables = [paired_heads(runs, "default", head) for head in others]
    tables = [table for table in tables if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else frame([], PAIR_COLUMNS)


def _importance(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[Note]]:
    try:
        return *shap_table(runs), []
    except ImportError as error:
        empty = frame([], SHAP_COLUMNS), frame([], VALUE_COLUMNS)
        return *empty, [("importance", str(error))]


def _without_importance(runs: pd.DataFrame) -> Iterator[Note]:
    for data, group in by_data(final(labelled(runs))):
        heads = rbfn_runs(group).reset_index(drop=True)
        few = f"fewer than {FEWEST_FOR_SHAP} runs with an RBFN head"
        if len(heads) < FEWEST_FOR_SHAP:
            yield "importance", f"{few} on {data}: no SHAP values"
        elif not varying(heads):
            yield "importance", f"no setting of the RBFN heads varies on {data}: no SHAP values"


def _missing(runs: pd.DataFrame, better: Mapping[str, str]) -> Iterator[Note]:
    if not len(runs):
        yield "", "no complete runs in this study: nothing to analyse"
        return
    found = labelled(runs)
    if not len(found):
        yield "", "no accuracy in this study: no table can be computed"
        return
    if left := len(runs) - len(found):
        fallen = int(runs["verdict"].eq(DIVERGED).sum()) if "verdict" in runs else 0
        which = f", {fallen} of them diverged" if fallen else ""
        yield "runs", f"{left} of {len(runs)} runs have no accuracy{which}: left out"
        others = f"a random pick, as every other, is one of the {len(found)} runs with an accuracy"
        yield "regret", f"{others}; {left} are left out{which}"
    yield from _without_heads(found)
    yield from _without_scores(found, better)
    if not np.isfinite(seed_floor(found)["between_seeds"].to_numpy(np.float64)).any():
        yield "seeds", "no configuration was run with two seeds: no seed floor"


def _without_heads(runs: pd.DataFrame) -> Iterator[Note]:
    heads = set(runs["head"])
    others = sorted(set(rbfn_runs(runs)["head"]))
    if "default" not in heads or not others:
        absent = "default head" if "default" not in heads else "RBFN head"
        yield "heads", f"no runs with the {absent}: heads are not compared"
        return
    for head in others:
        if not len(paired_heads(runs, "default", head)):
            shares = f"no run of {head} shares method, seed and settings with one of default"
            yield "heads", f"{shares}: no pairs"


def _without_scores(runs: pd.DataFrame, better: Mapping[str, str]) -> Iterator[Note]:
    scores = score_columns(runs)
    if not scores:
        yield "scores", "no scores in this study: no correlations"
    if unknown := [name for name in scores if name not in better]:
        yield "scores", f"no direction is declared for {', '.join(unknown)}: not judged"
    if apart := of_different_views(runs, scores):
        words = "runs were scored with different views, which do not compare"
        yield "scores", f"{words}: {', '.join(apart)}: not judged"
    for data, group in by_data(runs):
        sizes = group["method"].value_counts(sort=False)
        for method in [str(name) for name, size in sizes.items() if size < FEWEST]:
            few = f"fewer than three runs of {method} on {data}"
            yield "scores", f"{few}: no correlation within it"
        constant = [name for name in scores if pd.Series(numbers(group, name)).nunique() == 1]
        if constant and len(group) >= FEWEST:
            yield "scores", f"constant on {data}: {', '.join(constant)}; no correlation"
    for name in BASELINES:
        if name in LABELS and not np.isfinite(numbers(runs, name)).any():
            yield "regret", f"no {LABELS[name]} in this study: that baseline is missing"
