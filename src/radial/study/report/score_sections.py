"""The sections on scores: against accuracy, within methods and pooled, and what choosing costs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from radial.metrics.registry import ARROWS
from radial.presentation import between, fixed, known, p_value, with_interval
from radial.study.analysis.columns import METRICS, method_order, numbers, score_columns
from radial.study.analysis.judging import RANDOM
from radial.study.report import charts
from radial.study.report.content import (
    Block,
    Cell,
    Column,
    Row,
    Sheet,
    count,
    p_cell,
    percent,
    ready,
    rho,
    score,
    shaded_rho,
    sheet,
    text,
)
from radial.study.report.headlines import CHIPS, declared
from radial.study.report.material import Report


def scatter(report: Report) -> Iterator[Block]:
    """Accuracy over the score declared in advance, or another that is chosen."""
    ways = {name: report.better.get(name, "none") for name in score_columns(report.runs)}
    ways |= {"train_loss": "lower", "knn_1pct": "higher"}
    symbols = charts.head_symbols(report.runs["head"])
    for data in report.datasets:
        runs = report.of(report.runs, data)
        runs = runs[np.isfinite(numbers(runs, "accuracy"))].reset_index(drop=True)
        judged = report.of(report.analysis.judgement, data)
        rows = judged.set_index("score", drop=False)
        said = {name: _said(name, way, rows) for name, way in ways.items()}
        if runs.empty:
            continue
        figure = charts.scatter_figure(runs, said, report.places, report.dead, report.colour)
        if not figure["choices"]:
            continue
        first = declared(judged) if len(judged) else None
        figure["first"] = figure["choices"][0]["name"] if first is None else first["score"]
        methods = [(report.colour[m], "dot", m) for m in method_order(runs["method"])]
        shapes = [(symbols[h], "shape", h) for h in dict.fromkeys(runs["head"])]
        hollow = [("circle-open", "shape", "hollow: no sign of learning")]
        yield Block(
            data=data,
            figures=(figure,),
            label=f"Accuracy of the runs on {data} over a score that can be chosen",
            legend=(*methods, *shapes, *(hollow if any(report.dead.values()) else ())),
        )


def correlation(report: Report) -> Iterator[Block]:
    """Within each method and pooled, and the published way."""
    for data, judged in _judged(report):
        within = report.of(report.analysis.within, data)
        wide = within.pivot(index="score", columns="method", values="spearman")
        methods = method_order(within["method"])
        rows = judged.join(wide[methods].add_prefix("within "), on="score").to_dict("records")
        opposed = int(judged["simpson"].sum())
        paradox = (
            f"{opposed} marked “sign”: pooled and within methods disagree in sign (Simpson's "
            "paradox)." if opposed else "No score changes its sign between within and pooled."
        )  # fmt: skip
        columns = [
            _named(judged),
            Column("within methods", partial(shaded_rho, bold=True), "spearman",
                   title="Fisher mean over the methods"),
            *(Column(method, shaded_rho, f"within {method}") for method in methods),
            Column("pooled", _pooled, title="all methods together"),
            Column("partial", shaded_rho, "partial", title="given method, epoch and widths"),
            Column("runs", count, "n"),
        ]  # fmt: skip
        made = sheet(
            "judgement", rows, columns,
            note="Spearman's ρ with accuracy, scores turned by their declared direction: positive "
            f"is good. {paradox}",
        )  # fmt: skip
        yield Block(data=data, sheets=(made, _published(report, data)))


def regret(report: Report) -> Iterator[Block]:
    """What it costs to choose a run by each score, and how sure each ranking is."""
    for data, judged in _judged(report, baselines_alone=True):
        table = report.of(report.analysis.regret, data)
        means = table.groupby("score", sort=False)[["regret1", "regret3", "random1"]].mean()
        bars = means.join(table.groupby("score", sort=False)["kind"].first()).reset_index()
        bars = bars.dropna(subset=["regret1"]).sort_values(["regret1", "regret3"], kind="stable")
        scores = bars.loc[bars["kind"] == "score", "score"]
        shown = bars[(bars["kind"] == "baseline") | bars["score"].isin(scores[: charts.MOST_BARS])]
        left = len(bars) - len(shown)
        yield Block(
            data=data,
            figures=(charts.regret_figure(shown),) if len(shown) else (),
            label=f"Regret of choosing a run by each score on {data}",
            caption="Accuracy of the best run of a method minus that of the run which the score "
            "picks (pale: @1) or of the best among its first three (full: @3); mean over methods. "
            "Orange: a random pick from the same runs. Grey: baselines."
            + (
                f" The {left} scores with the highest regret are in the table only." if left else ""
            ),
            sheets=(_ranked(judged, table[table["score"] == RANDOM]),),
        )


def _judged(report: Report, *, baselines_alone: bool = False) -> Iterator[tuple[str, pd.DataFrame]]:
    """Dataset and its scores, the highest ρ first; left out where there are only baselines."""
    for data in report.datasets:
        judged = report.of(report.analysis.judgement, data)
        if len(judged) and (baselines_alone or (judged["kind"] == "score").any()):
            order = judged.sort_values(
                "spearman", ascending=False, kind="stable", na_position="last"
            )
            yield data, order


def _ranked(judged: pd.DataFrame, random: pd.DataFrame) -> Sheet:
    rows = [dict(row) for row in judged.to_dict("records")]
    if len(random):
        means = {name: float(numbers(random, name).mean()) for name in ("regret1", "regret3")}
        rows.append({"score": RANDOM, "kind": "baseline", "n": random["n"].sum(), **means})
    columns = [
        _named(judged),
        Column("mean ρ within methods", _with_whisker),
        Column("τ-b", rho, "kendall"),
        Column("p", p_cell, "p"),
        Column("Holm", p_cell, "p_holm"),
        Column("regret@1", percent, "regret1"),
        Column("regret@3", percent, "regret3"),
        Column("runs", count, "n"),
        Column("verdict", _verdict, "verdict", numeric=False),
    ]
    return sheet(
        "judgement", rows, columns,
        note="ρ with 95 % interval (cluster bootstrap over configurations); τ-b likewise a mean "
        "over methods; p one-sided, by permutation within methods; Holm over the scores of the "
        "dataset; regret in percentage points. The highest of many scores is high partly by "
        "chance: its interval does not allow for the choice.",
    )  # fmt: skip


def _published(report: Report, data: str) -> Sheet:
    """Pearson and Spearman with each metric, a row a score."""
    table = report.of(report.analysis.correlations, data)
    names = {"f1": "F1"} | {name: name.capitalize() for name in METRICS[1:]}
    rows: dict[str, dict[str, Any]] = {}
    for found in table.to_dict("records"):
        row = rows.setdefault(found["score"], {"score": found["score"], "n": found["n"]})
        for kind in ("pearson", "spearman"):
            p = p_value(found[f"{kind}_p"])
            note = f"p {p if p.startswith('<') else f'= {p}'}" if known(found[kind]) else ""
            row[f"{found['metric']} {kind}"] = rho(found[kind], note=note)
    columns = [
        Column("score", score, "score", numeric=False),
        *(Column(sign, ready, f"{metric} {kind}", over=names[metric])
          for metric in METRICS if metric in set(table["metric"])
          for sign, kind in (("r", "pearson"), ("ρ", "spearman"))),
        Column("runs", count, "n"),
    ]  # fmt: skip
    return sheet("correlations", rows.values(), columns,
                 fold="Pearson and Spearman with the four metrics, pooled, as published",
                 note="Scores as they are, not turned by their direction; p two-sided, each by "
                 "itself, as if runs were independent.")  # fmt: skip


def _named(judged: pd.DataFrame) -> Column:
    """The score, its direction, and whether it is the one declared in advance."""
    headline = declared(judged)
    first = None if headline is None else headline["score"]

    def cell(row: Row) -> Cell:
        if row["kind"] == "baseline":
            return score(row["score"])
        sign, said = ARROWS.get(row["better"], ARROWS["none"])
        mark = " · declared" if row["score"] == first else ""
        return score(row["score"], note=f"{sign}{mark}", title=said)

    return Column("score", cell, numeric=False)


def _pooled(row: Row) -> Cell:
    mark = {"chip": "warn", "note": "sign"} if row["simpson"] else {}
    return shaded_rho(row["pooled_spearman"], **mark)


def _verdict(words: str | None) -> Cell:
    return text(words, chip=CHIPS.get(words, "mute")) if words else text("")


def _with_whisker(row: Row) -> Cell:
    ends = (row.get("low"), row.get("spearman"), row.get("high"))
    whisker = ends if all(map(known, ends)) else None
    return rho(ends[1], note=between(ends[0], ends[2], 2), whisker=whisker)


def _said(name: str, way: str, judged: pd.DataFrame) -> str:
    """What is said of a score beside its figure."""
    said = ARROWS.get(way, ARROWS["none"])[1].capitalize()
    if name not in judged.index:
        return f"{said}."
    row = judged.loc[name]
    mean = with_interval(row["spearman"], row["low"], row["high"], 2)
    pooled = f", pooled {fixed(row['pooled_spearman'], 2, sign=True)}"
    return (
        f"{said}. Turned so that more is better: mean ρ within methods {mean}"
        f"{pooled if known(row['pooled_spearman']) else ''}; {int(row['n'])} runs."
        + (" Losses of two methods do not compare." if name == "train_loss" else "")
    )
