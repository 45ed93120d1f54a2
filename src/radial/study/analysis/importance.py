"""Which settings matter: SHAP values of the hyperparameters on accuracy, as published."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from radial.study.analysis.columns import (
    METRICS,
    SETTINGS,
    by_data,
    codes,
    final,
    frame,
    labelled,
    numbers,
)

PUBLISHED = ("num_layers", "num_kernels", "normalize", "radial_function")
SHAP_COLUMNS = ("data", "feature", "mean_abs", "mean_positive", "mean_negative")
VALUE_COLUMNS = ("data", "run", "feature", "value", "phi")
# The paper's tables are over methods: what a method brings is not a setting; nor is the seed.
NOT_FEATURES = ("data", "method", "seed")
FEWEST = 8  # runs; a tree on fewer says nothing
HINT = "SHAP needs shap and xgboost: pip install 'radial-ssl[study]'"


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
        if len(group) < FEWEST or not len(table.columns):
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
