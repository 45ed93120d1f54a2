"""What the findings confirm of each score: src/radial/scoring/confirmed.json.

Runs of one method are judged as in docs/FINDINGS.md, in the cells that no score was chosen on.
The other kinds of comparison are judged by pairs of runs of one study that differ in what the kind
says: τ is the share of pairs that a score puts in the order of their accuracies minus the share
that it does not, with a 95 % bootstrap interval over groups. A kind that no kept study has enough
groups for is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from evidence import Evidence

from radial.metrics.registry import quality
from radial.scoring.leaderboard import ARCHITECTURES, METHODS, ONE_METHOD, ONE_RUN, SUPERVISED
from radial.study.analysis.columns import final
from radial.study.results import directions

CHALLENGER = "view_retrieval_recipes@backbone"  # read of the runs whose weights were kept
LABELLED = ("supervised", "supcon")
LEAST = {METHODS: 5, ARCHITECTURES: 3, SUPERVISED: 5, ONE_RUN: 10}  # groups that it takes
COLUMNS = {METHODS: "method", ARCHITECTURES: "backbone", SUPERVISED: "method", ONE_RUN: "run"}
RESAMPLES = 2000
WEAK = 0.5  # the registered goal: no method below it


def facts(
    found: Evidence,
    others: Sequence[Evidence],
    studies: Mapping[str, pd.DataFrame],
    read: pd.DataFrame,
) -> str:
    """The file's text.

    Args:
        found: of the registered confirming cells.
        others: for the scores that not all of these have: of kernels, and the challenger.
        studies: the kept results by name, without runs that a score was chosen on.
        read: the runs of one of them that the challenger was read on.
    """
    within = _within(found)
    for other in others:
        of = {"runs": other.runs, "groups": len({cell.method for cell in other.cells})}
        within |= {n: e | of for n, e in _within(other).items()
                   if n.endswith("@kernels") or n == CHALLENGER}  # fmt: skip
    within = dict(sorted(within.items()))
    told: dict[str, Any] = dict.fromkeys((ONE_RUN, ONE_METHOD, METHODS, ARCHITECTURES, SUPERVISED))
    groups = sorted({cell.method for cell in found.cells})
    told[ONE_METHOD] = {"runs": found.runs, "groups": groups, "scores": within}
    for kind in LEAST:
        for _, runs in sorted(studies.items()):
            one = by_pairs(runs, kind, directions(runs))
            known = 0 if told[kind] is None else told[kind]["runs"]
            if one and one["scores"] and one["runs"] > known:
                told[kind] = one
        part = by_pairs(read, kind, {CHALLENGER: "higher"})
        if part and told[kind]:
            of = {"runs": part["runs"], "groups": len(part["groups"])}
            told[kind]["scores"][CHALLENGER] = part["scores"][CHALLENGER] | of
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def by_pairs(runs: pd.DataFrame, kind: str, better: Mapping[str, str]) -> dict[str, Any] | None:
    """τ of every score over the pairs of runs that a kind is about; None with too few groups."""
    rows = (runs if kind == ONE_RUN else final(runs)).dropna(subset=["accuracy", COLUMNS[kind]])
    named = rows[COLUMNS[kind]].astype(str)
    names = (named.str.partition("@")[0] if kind == ONE_RUN else named).to_numpy()
    groups, group = np.unique(names, return_inverse=True)
    same = group[:, None] == group[None, :]
    if kind == ONE_RUN:
        wanted = same & (rows["epoch"].to_numpy()[:, None] != rows["epoch"].to_numpy()[None, :])
    else:
        wanted = ~same
    if kind == SUPERVISED:
        labelled = np.isin(names, LABELLED)
        wanted &= labelled[:, None] != labelled[None, :]
    pairs = np.argwhere(np.triu(wanted))
    taking_part = np.unique(group[pairs])
    if len(taking_part) < LEAST[kind]:
        return None
    accuracy = rows["accuracy"].to_numpy()
    scores = {}
    for name, way in better.items():
        if name not in rows or way == "none" or rows[name].isna().any():
            continue
        value = np.array([quality(way, float(x)) for x in rows[name]])
        a, b = pairs.T
        agreed = np.sign(value[a] - value[b]) * np.sign(accuracy[a] - accuracy[b])
        scores[name] = _entry("τ", *_over_groups(agreed, group[a], group[b], len(groups)))
    listed = [str(groups[i]) for i in taking_part]
    return {"runs": len(np.unique(pairs)), "groups": listed, "scores": scores}


def _over_groups(
    agreed: np.ndarray, first: np.ndarray, second: np.ndarray, groups: int
) -> tuple[float, float, float]:
    """The mean over pairs, and its interval over groups drawn with replacement."""
    total, count = np.zeros((groups, groups)), np.zeros((groups, groups))
    np.add.at(total, (first, second), agreed)
    np.add.at(count, (first, second), 1)
    drawn = np.random.default_rng(0).multinomial(groups, [1 / groups] * groups, size=RESAMPLES)
    if (first == second).all():  # pairs within groups
        weights = [np.diag(w) for w in drawn]
    else:
        weights = [np.outer(w, w) for w in drawn]
    means = [(w * total).sum() / n for w in weights if (n := (w * count).sum())]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(agreed.mean()), float(low), float(high)


def _within(found: Evidence) -> dict[str, dict[str, Any]]:
    """ρ within methods of every score that sees no labels, and the methods that miss the goal."""
    methods = found.methods()
    labelled = [name for name in found.names if "@" not in name]
    return {
        name: _entry("ρ", row["rho"], row["low"], row["high"])
        | {
            "p_holm": round(float(row["p_holm"]), 3),
            "regret1": round(float(row["regret"]) / 100, 4),
        }
        | _weak(methods[name], row["low"])
        for name, row in found.table().drop(index=labelled).iterrows()
    }


def _weak(methods: pd.Series, low: float) -> dict[str, dict[str, float]]:
    """The methods at which a score that ranks runs on the whole misses the goal."""
    weak = {str(m): round(float(rho), 2) for m, rho in methods.items() if rho < WEAK}
    return {"weak": weak} if weak and low > 0 else {}


def _entry(measure: str, value: float, low: float, high: float) -> dict[str, Any]:
    figures = {"value": value, "low": low, "high": high}
    return {"measure": measure} | {name: round(float(x), 3) for name, x in figures.items()}
