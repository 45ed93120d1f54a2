"""Runs without their scores: the best of each method and head, heads in pairs, the seed floor, and
which settings matter (SHAP values of the hyperparameters on accuracy, as published).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from radial.study.analysis.columns import (
    HEAD_SETTINGS,
    METRICS,
    SETTINGS,
    TUNED,
    Array,
    by_data,
    codes,
    configurations,
    final,
    frame,
    labelled,
    method_order,
    numbers,
)

BEST = tuple(f"{metric}_best" for metric in METRICS)
PEAK_COLUMNS = ("data", "method", "head", "run", "runs", "tied", *METRICS, *BEST)
PAIR_COLUMNS = ("data", "method", "a", "b", "pairs", "difference", "low", "high", "a_mean",
                "b_mean", "a_runs", "b_runs", "tuned")  # fmt: skip
SEED_COLUMNS = ("data", "method", "configurations", "repeated", "seeds", "between_seeds",
                "between_configurations", "ratio")  # fmt: skip
AVERAGE, POOLED = "average", "pooled"
PUBLISHED = ("num_layers", "num_kernels", "normalize", "radial_function")
SHAP_COLUMNS = ("data", "feature", "mean_abs", "mean_positive", "mean_negative")
VALUE_COLUMNS = ("data", "run", "feature", "value", "phi")
# The paper's tables are over methods: what a method brings is not a setting; nor is the seed.
NOT_FEATURES = ("data", "method", "seed")
FEWEST_FOR_SHAP = 8  # runs; a tree on fewer says nothing
HINT = "SHAP needs shap and xgboost: pip install 'radial-ssl[study]'"


def peak_table(runs: pd.DataFrame, decimals: int | None = 2) -> pd.DataFrame:
    """The run of highest accuracy of each dataset, method and head, as published.

    All four metrics are those of that one run, not each metric's own maximum ("the best evaluation
    runs based on accuracy"). Of runs with equal accuracy the first counts; ``tied`` says how many
    there are. Of a run with several checkpoints the last counts.

    A row ``average`` a head is the mean over the methods that every head of the dataset has, where
    these are two or more. ``<metric>_best`` is True where the value, rounded to ``decimals`` (None:
    not rounded), is above that of every other head of the same dataset and method.
    """
    runs = final(labelled(runs))
    rows: list[dict[str, Any]] = []
    for data, group in by_data(runs):
        heads = _heads(group)
        peaks = {
            (method, head): _peak(part)
            for method in method_order(group["method"])
            for head in heads
            if len(part := group[(group["method"] == method) & (group["head"] == head)])
        }
        methods = method_order(method for method, _ in peaks)
        common = [m for m in methods if all((m, head) in peaks for head in heads)]
        if len(common) > 1:
            peaks |= {(AVERAGE, h): _mean([peaks[m, h] for m in common]) for h in heads}
        for method in [*methods, AVERAGE]:
            found = {head: peaks[method, head] for head in heads if (method, head) in peaks}
            for head, row in found.items():
                others = [other for name, other in found.items() if name != head]
                best = {f"{m}_best": _best(row[m], [o[m] for o in others], decimals)
                        for m in METRICS}  # fmt: skip
                rows.append({"data": data, "method": method, "head": head} | row | best)
    return frame(rows, PEAK_COLUMNS)


def paired_heads(runs: pd.DataFrame, a: str = "default", b: str = "rbfn") -> pd.DataFrame:
    """Accuracy of head ``b`` minus that of head ``a``, paired by dataset, method and seed.

    Only runs whose settings agree in all but what belongs to the head (its depth, width, kernels)
    are compared; where a head has several runs at the same settings, their mean counts, and the
    differences at one seed are averaged: a pair is one dataset, method and seed. ``a_runs`` and
    ``b_runs`` say how many runs went in. A learning rate or weight decay that was chosen for each
    head (one value a method and head) may differ; ``tuned`` says where.

    The interval is Student's, d̄ ± t₀.₉₇₅(n−1) s/√n over the n pairs; NaN for a single pair. The
    row ``pooled`` takes the pairs of all methods alike: it speaks of these methods, and counts how
    they differ as noise.
    """
    runs = final(labelled(runs))
    runs = runs[runs["head"].isin([a, b])].reset_index(drop=True) if "head" in runs else runs
    if runs.empty:
        return frame([], PAIR_COLUMNS)
    shared = [name for name in SETTINGS if name not in HEAD_SETTINGS]
    seeds = runs["seed"] if "seed" in runs else pd.Series(0, index=runs.index)
    table = pd.DataFrame(
        {"data": runs["data"], "method": runs["method"], "seed": seeds, "head": runs["head"],
         "settings": codes(_alike(runs), shared), "accuracy": numbers(runs, "accuracy")}
    )  # fmt: skip
    keys = ["data", "method", "seed", "settings"]
    cells = table.groupby([*keys, "head"], sort=False, dropna=False)["accuracy"]
    wide = cells.agg(["mean", "size"]).unstack("head")
    if not {a, b} <= set(runs["head"]):
        return frame([], PAIR_COLUMNS)
    matched = wide[wide["mean"][a].notna() & wide["mean"][b].notna()]
    pairs = pd.DataFrame(
        {"a": matched["mean"][a], "b": matched["mean"][b],
         "a_runs": matched["size"][a], "b_runs": matched["size"][b]}
    )  # fmt: skip
    how = {"a": "mean", "b": "mean", "a_runs": "sum", "b_runs": "sum"}
    pairs = pairs.groupby(level=keys[:3], sort=False, dropna=False).agg(how).reset_index()
    rows = []
    for data, group in by_data(pairs):
        sizes = numbers(runs[runs["data"] == data], "test_samples")
        resolution = 1.0 / float(np.nanmin(sizes)) if np.isfinite(sizes).any() else 0.0
        here = runs[runs["data"] == data]
        parts = {m: group[group["method"] == m] for m in method_order(group["method"])}
        for method, part in (parts | {POOLED: group}).items():
            difference = (part["b"] - part["a"]).to_numpy(np.float64)
            low, high = t_interval(difference, resolution)
            rows.append(
                {"data": data, "method": method, "a": a, "b": b, "pairs": len(part),
                 "difference": float(difference.mean()), "low": low, "high": high,
                 "a_mean": part["a"].mean(), "b_mean": part["b"].mean(),
                 "a_runs": int(part["a_runs"].sum()), "b_runs": int(part["b_runs"].sum()),
                 "tuned": _tuned(here[here["method"] == method], a, b)}
            )  # fmt: skip
    return frame(rows, PAIR_COLUMNS)


def _alike(runs: pd.DataFrame) -> pd.DataFrame:
    """Without the tuned settings of which each head of a method has one value."""
    runs = runs.copy()
    for name in (name for name in TUNED if name in runs):
        values = runs.groupby(["data", "method", "head"])[name].transform("nunique")
        most = values.groupby([runs["data"], runs["method"]]).transform("max")
        runs[name] = runs[name].where(most > 1)
    return runs


def _tuned(runs: pd.DataFrame, a: str, b: str) -> str:
    """
    >>> _tuned(pd.DataFrame({"head": ["mlp", "rbfn"], "base_lr": [0.1, 0.2]}), "mlp", "rbfn")
    'base_lr 0.1 and 0.2'
    """
    chosen = []
    for name in (name for name in TUNED if name in runs):
        first, second = (set(runs[runs["head"] == head][name].dropna()) for head in (a, b))
        if len(first) == len(second) == 1 and first != second:
            chosen.append(f"{name} {first.pop():g} and {second.pop():g}")
    return ", ".join(chosen)


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
            apart = math.nan
            if free and len(n) > 1:
                apart = math.sqrt(max(0.0, means.var(ddof=1) - seeds**2 * (1 / n).mean()))
            rows.append(
                {"data": data, "method": method, "configurations": len(n),
                 "repeated": int((n > 1).sum()),
                 "seeds": int(part["seed"].nunique()) if "seed" in part else 0,
                 "between_seeds": seeds, "between_configurations": apart,
                 "ratio": apart / seeds if seeds > 0 else math.nan}
            )  # fmt: skip
    return frame(rows, SEED_COLUMNS)


def t_interval(values: Array, resolution: float = 0.0, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of a mean; NaN for fewer than two values.

    The standard deviation counts as at least ``resolution``: accuracies are multiples of one
    image, and two equal differences are no proof that there is no noise.
    """
    from scipy import stats

    n = len(values)
    if n < 2:
        return math.nan, math.nan
    deviation = max(float(values.std(ddof=1)), resolution)
    half = stats.t.ppf(0.5 + level / 2, n - 1) * deviation / math.sqrt(n)
    return float(values.mean() - half), float(values.mean() + half)


def _heads(group: pd.DataFrame) -> list[str]:
    """The default head first, then the others by name."""
    names = sorted(set(group["head"]))
    return sorted(names, key=lambda name: name != "default")


def _peak(part: pd.DataFrame) -> dict[str, Any]:
    accuracy = numbers(part, "accuracy")
    best = int(np.argmax(accuracy))
    counts = {"runs": len(part), "tied": int((accuracy == accuracy[best]).sum())}
    values = {metric: float(numbers(part, metric)[best]) for metric in METRICS}
    return {"run": str(part["run"].iloc[best])} | counts | values


def _mean(peaks: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {"run": "", "runs": sum(peak["runs"] for peak in peaks), "tied": 0}
    return counts | {m: float(np.mean([peak[m] for peak in peaks])) for m in METRICS}


def _best(value: float, others: list[float], decimals: int | None) -> bool:
    known: list[float] = [other for other in others if not math.isnan(other)]
    if not known or math.isnan(value):
        return False
    if decimals is None:
        return value > max(known)
    return round(value, decimals) > round(max(known), decimals)


def shap_table(
    runs: pd.DataFrame, target: str = "accuracy", features: Iterable[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """SHAP values φ of the settings of RBFN heads, by dataset: their means, and all of them.

    A gradient-boosted tree (XGBoost's defaults) is fitted to ``target`` and explained with the
    runs themselves as background (100 of them where there are more, as shap draws them). The
    figures depend on the order of the runs in their second decimal: keep that of the table. They
    say how the fitted tree uses a setting, over all methods together, and have no interval.

    Args:
        runs: one row a run; other heads and intermediate checkpoints are left out.
        target: one of f1, accuracy, precision, recall.
        features: settings to look at, of which those that vary are taken. By default the published
            four (layers, kernels, normalise, radial function) and every other setting that varies
            and is not settled by the method alone; never method or seed.

    Returns:
        The table (data, feature, mean_abs, mean_positive, mean_negative; mean φ over the runs
        where it is positive or negative, 0 where there are none) and the values (data, run,
        feature, value, phi). Text is one feature a value, such as ``radial_function=gaussian``,
        with value 1 or 0. Datasets of fewer than 8 runs, or where nothing varies, are left out.
    """
    if target not in METRICS:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(METRICS)}")
    chosen = None if features is None else list(features)
    if unknown := [name for name in chosen or () if name not in SETTINGS]:
        raise ValueError(f"unknown feature {unknown[0]!r}; known: {', '.join(SETTINGS)}")
    runs = final(labelled(runs, target))
    means: list[dict[str, Any]] = []
    values: list[pd.DataFrame] = []
    for data, group in by_data(rbfn_runs(runs)):
        table = _encoded(group, varying(group) if chosen is None else _vary(group, chosen))
        if len(group) < FEWEST_FOR_SHAP or not len(table.columns):
            continue
        phi = _explain(table, numbers(group, target))
        for name, column in zip(table.columns, phi.T):
            up, down = column[column > 0], column[column < 0]
            means.append(
                {"data": data, "feature": name, "mean_abs": float(np.abs(column).mean()),
                 "mean_positive": float(up.mean()) if len(up) else 0.0,
                 "mean_negative": float(down.mean()) if len(down) else 0.0}
            )  # fmt: skip
            values.append(
                pd.DataFrame({"data": data, "run": group["run"], "feature": name,
                              "value": table[name], "phi": column})
            )  # fmt: skip
    points = pd.concat(values, ignore_index=True) if values else frame([], VALUE_COLUMNS)
    return frame(means, SHAP_COLUMNS), points


def rbfn_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose head is an RBFN."""
    return runs[runs["head"].astype(str).str.startswith("rbfn")] if "head" in runs else runs[:0]


def varying(runs: pd.DataFrame) -> list[str]:
    """The published settings, then the others, that vary and are not settled by the method."""
    others = [name for name in SETTINGS if name not in (*PUBLISHED, *NOT_FEATURES)]
    free = [name for name in _vary(runs, others)
            if len(set(codes(runs, ["method", name]))) > runs["method"].nunique()]  # fmt: skip
    return _vary(runs, PUBLISHED) + free


def _vary(runs: pd.DataFrame, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in runs and len(set(codes(runs, [name]))) > 1]


def _encoded(runs: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Numbers and booleans as floats (NaN where missing), text as one column of 0/1 a value; of
    two values the second is enough, but for the radial function, which is as published.
    """
    columns: dict[str, Any] = {}
    for name in names:
        present = runs[name].dropna()
        if all(isinstance(value, int | float | np.number | np.bool_) for value in present):
            columns[name] = runs[name].astype(object).map(float, na_action="ignore").astype(float)
        else:
            kinds = runs[name].map(str, na_action="ignore").fillna("none")
            known = sorted(set(kinds))
            whole = len(known) > 2 or name in PUBLISHED
            for kind in known if whole else known[1:]:
                columns[f"{name}={kind}"] = (kinds == kind).astype(float)
    return pd.DataFrame(columns, index=runs.index)


def _explain(table: pd.DataFrame, target: Any) -> Any:
    try:
        with warnings.catch_warnings():
            # matplotlib's, which shap imports for its own plots
            warnings.filterwarnings("ignore", "The set_", PendingDeprecationWarning)
            import shap
            import xgboost
    except ImportError as error:
        raise ImportError(HINT) from error
    model = xgboost.XGBRegressor(n_jobs=1).fit(table, target)
    return shap.Explainer(model, table)(table).values
