"""Groups of runs with one accuracy though their settings differ: nothing they set had an effect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from radial.study.analysis.columns import SETTINGS
from radial.study.results import ONLY_RBFN

SAME = 5e-7  # accuracies are the same to six digits
LEAST = 3  # runs make a group
FEW = 5  # wrong test images: below, runs are alike because they are good
CHANCE = 0.01  # groups that would be expected by accident
SPREAD = 0.05  # accuracies are taken to lie this far apart, at least
COARSE = 1e-3  # test sets of unknown size have a thousand images, at least
OTHERS = ("precision", "recall", "f1")
COLUMNS = ("data", "method", "accuracy", "runs", "common", "all_of", "differ", "members")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs with one accuracy.

    Args:
        rows: their places in the frame.
        common: settings that vary over the data and method, but not over the group.
        all_of: values of a setting *all* of whose runs are in the group, with the number of them.
        differ: settings that vary over the group.
    """

    rows: tuple[int, ...]
    data: str
    method: str
    accuracy: float
    common: tuple[tuple[str, Any], ...]
    all_of: tuple[tuple[str, Any, int], ...]
    differ: tuple[str, ...]


def find_groups(runs: pd.DataFrame) -> list[Group]:
    """Three runs or more of one data and method with the same accuracy, the largest first.

    Their settings must differ; another seed is no other setting. A perfect accuracy is no
    finding. Good runs may agree by accident, since accuracies are multiples of 1/n:

    - Where n is known, five images at least must be wrong, and precision, recall and F1 must
      agree as well: the same predictions.
    - Where n or the others are unknown, with N runs spread over b possible values, m of them
      agree at some value about C(N, m) / b^(m−1) times; that must be below 0.01, or the others
      must agree. Without n, b follows from the smallest step between accuracies of that data.
    """
    settings = setting_keys(runs)
    steps = {data: _step(accuracy) for data, accuracy in runs.groupby("data")["accuracy"]}
    groups = []
    for (data, method), part in runs.groupby(["data", "method"], sort=False):
        for rows in _alike(part, steps[data]):
            if settings.loc[rows].drop_duplicates().shape[0] > 1:
                groups.append(_describe(runs, settings, str(data), str(method), part.index, rows))
    return sorted(groups, key=lambda group: (-len(group.rows), group.rows))


def groups_frame(groups: Sequence[Group], runs: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {
            "data": group.data,
            "method": group.method,
            "accuracy": group.accuracy,
            "runs": len(group.rows),
            "common": ", ".join(f"{name} {value}" for name, value in group.common),
            "all_of": ", ".join(f"{name} {value} ({n})" for name, value, n in group.all_of),
            "differ": ", ".join(group.differ),
            "members": tuple(runs["run"].loc[list(group.rows)]),
        }
        for group in groups
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def setting_keys(runs: pd.DataFrame) -> pd.DataFrame:
    """The settings there are as text, what a head does not have as None."""
    names = [name for name in SETTINGS if name in runs and name not in ("data", "method", "seed")]
    keys = pd.DataFrame(
        {name: [setting_text(value) for value in runs[name]] for name in names},
        index=runs.index,
        dtype=object,
    )
    rbfn = runs["head"].astype(str).str.startswith("rbfn")
    for name in ONLY_RBFN:
        if name in keys:
            keys[name] = keys[name].where(rbfn, None)
    return keys


def setting_text(value: Any) -> str | None:
    """One text for 2 and 2.0, which frames do not keep apart; None for what is not there."""
    if isinstance(value, str | list | tuple):
        return str(value)
    if value is None or pd.isna(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:.12g}"


def _alike(part: pd.DataFrame, step: float) -> Iterator[list[int]]:
    """Rows of one data and method that agree more than chance allows."""
    accuracy = pd.to_numeric(part["accuracy"], errors="coerce").dropna().sort_values(kind="stable")
    for rows in _clusters(accuracy):
        value = accuracy.loc[rows[0]]
        if len(rows) < LEAST or value >= 1 - SAME:
            continue
        images = (
            pd.to_numeric(part["test_samples"]).loc[rows].min() if "test_samples" in part else 0
        )
        known = images > 0  # not where it is NaN
        if known and (1 - value) * images < FEW:
            continue
        spread = max(SPREAD, accuracy.iloc[-1] - accuracy.iloc[0])
        values = 1 + spread * (images if known else 1 / step)
        wonder = by_chance(len(accuracy), len(rows), values) < CHANCE
        others = part.loc[rows, [name for name in OTHERS if name in part]].dropna(axis=1)
        if wonder and (others.empty or not known):
            yield sorted(rows)
        else:
            yield from _same_predictions(others)


def _same_predictions(others: pd.DataFrame) -> list[list[int]]:
    """Rows whose other classification metrics agree as well."""
    if others.empty:
        return []
    same = others.astype(float).round(6).groupby(list(others), sort=False).groups
    return [sorted(rows) for rows in same.values() if len(rows) >= LEAST]


def _step(accuracy: pd.Series) -> float:
    """Between possible accuracies where the test set is unknown: the smallest seen."""
    gaps = np.diff(np.sort(pd.to_numeric(accuracy).dropna().to_numpy(dtype=float)))
    return float(gaps[gaps > SAME].min(initial=COARSE))


def by_chance(total: int, size: int, values: float) -> float:
    """How many groups of ``size`` among ``total`` runs agree at one of ``values`` values.

    >>> round(by_chance(24, 3, 100), 4)  # C(24, 3) / 100²
    0.2024
    """
    ways = math.lgamma(total + 1) - math.lgamma(size + 1) - math.lgamma(total - size + 1)
    return math.exp(ways - (size - 1) * math.log(values))


def _clusters(accuracy: pd.Series) -> Iterator[list[int]]:
    """Rows of sorted accuracies, apart where they differ in the sixth digit."""
    rows: list[int] = []
    for row, value in accuracy.items():
        if rows and value - accuracy.loc[rows[0]] > SAME:
            yield rows
            rows = []
        rows.append(int(row))
    if rows:
        yield rows


def _describe(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    data: str,
    method: str,
    part: pd.Index,
    rows: list[int],
) -> Group:
    everything, group = settings.loc[part], settings.loc[rows]
    like = everything[everything["head"].isin(group["head"])]  # a head implies some settings
    varied = [name for name in settings if like[name].nunique(dropna=False) > 1]
    if everything["head"].nunique() > 1 and "head" not in varied:
        varied.insert(0, "head")
    common = [
        (name, group[name].iloc[0])
        for name in varied
        if group[name].nunique(dropna=False) == 1 and group[name].iloc[0] is not None
    ]
    verdicts = set(runs["verdict"].loc[rows]) if "verdict" in runs else set()
    if len(verdicts) == 1 and not verdicts & {"ok", "imported"}:
        common.append(("verdict", verdicts.pop()))
    whole: list[tuple[set[int], tuple[str, Any, int]]] = []
    for name in varied:
        for value, members in everything.groupby(name, sort=False).groups.items():
            if len(members) >= LEAST and set(members) <= set(rows):
                whole.append((set(members), (name, value, len(members))))
    whole.sort(key=lambda item: -len(item[0]))
    all_of = [
        named
        for place, (members, named) in enumerate(whole)
        if not any(members <= earlier for earlier, _ in whole[:place])
    ]
    return Group(
        rows=tuple(rows),
        data=data,
        method=method,
        accuracy=float(runs["accuracy"].loc[rows[0]]),
        common=tuple(common),
        all_of=tuple(all_of),
        differ=tuple(name for name in varied if group[name].nunique(dropna=False) > 1),
    )
