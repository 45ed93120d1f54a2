"""The sections on scores: against accuracy, within methods and pooled, regret, seed floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from radial.metrics.registry import ARROWS
from radial.presentation.formats import between, fixed, known, p_value, with_interval
from radial.study.analysis.columns import METRICS, method_order, numbers, score_columns
from radial.study.analysis.judging import RANDOM
from radial.study.report import drawing, figures
from radial.study.report.blocks import Block, Material, Section, method_cell
from radial.study.report.sheets import LONG, Cell, Column, Sheet, count, flat, rho, score, text

CHIPS = {"ranks runs": "good", "ranks them backwards": "bad", "no evidence": "mute"}


def scatter(material: Material) -> Section:
    ways = {name: material.better.get(name, "none") for name in score_columns(material.runs)}
    ways |= {"train_loss": "lower", "knn_1pct": "higher"}
    blocks = []
    symbol = drawing.symbols(material.runs["head"])
    for data in material.datasets:
        chosen = (material.runs["data"] == data).to_numpy()
        chosen = chosen & pd.notna(numbers(material.runs, "accuracy"))
        runs = material.runs[chosen].reset_index(drop=True)
        judged = material.of(material.analysis.judgement, data).set_index("score", drop=False)
        if runs.empty:
            continue
        said = {name: _of_score(name, way, judged) for name, way in ways.items()}
        first = figures.shown_first(runs, ways, judged)
        figure = figures.scatter_figure(
            runs, ways, said,
            [int(i) for i in np.flatnonzero(chosen)],
            [material.dead[i] for i in np.flatnonzero(chosen)], material.colour, symbol,
        )  # fmt: skip
        if not figure["choices"]:
            continue
        figure["first"] = first
        methods = [(material.colour[m], "dot", m) for m in method_order(runs["method"])]
        shapes = [(symbol[h], "shape", h) for h in dict.fromkeys(runs["head"])]
        hollow = [("circle-open", "shape", "hollow: no sign of learning")]
        blocks.append(
            Block(
                data=data,
                figure=figure,
                label=f"Accuracy of the runs on {data} over a score that can be chosen",
                legend=(*methods, *shapes, *(hollow if any(material.dead) else ())),
            )
        )
    return Section(
        key="scatter",
        title="Scores against accuracy",
        short="Scores",
        lead="A point a run. The direction of each score was declared before its accuracy was "
        "looked at.",
        blocks=tuple(blocks),
        missing=() if blocks else material.notes("scores"),
    )


def correlation(material: Material) -> Section:
    blocks = []
    for data in material.datasets:
        judged = material.of(material.analysis.judgement, data)
        within = material.of(material.analysis.within, data)
        if not (judged["kind"] == "score").any():
            continue
        judged = judged.sort_values("spearman", ascending=False, kind="stable", na_position="last")
        methods = method_order(within["method"])
        single = within.set_index(["score", "method"])["spearman"].to_dict()
        rows = []
        for row in judged.to_dict("records"):
            mark = {"chip": "warn", "note": "sign"} if row["simpson"] else {}
            rows.append(
                [_directed(row), rho(row["spearman"], shaded=True, bold=True),
                 *(rho(single.get((row["score"], m)), shaded=True) for m in methods),
                 rho(row["pooled_spearman"], shaded=True, **mark),
                 rho(row["partial"], shaded=True), count(row["n"])]
            )  # fmt: skip
        columns: list[Column | str] = [
            "score", Column(text="within methods", title="Fisher mean over the methods"),
            *methods, Column(text="pooled", title="all methods together"),
            Column(text="partial", title="given method, epoch and widths"), "runs",
        ]  # fmt: skip
        opposed = int(judged["simpson"].sum())
        note = ("Spearman's ρ with accuracy, scores turned by their declared direction: positive "
                "is good. " + (f"{opposed} marked “sign”: pooled and within methods disagree in "
                "sign (Simpson's paradox)." if opposed else "No score changes its sign between "
                "within and pooled."))  # fmt: skip
        sheets = (flat("judgement", columns, rows, note=note), _published(material, data))
        blocks.append(Block(data=data, sheets=sheets))
    return Section(
        key="correlation",
        title="Within methods and pooled",
        short="Correlation",
        lead="A score is of use where it ranks the runs of one method; pooled over methods it may "
        "only tell the methods apart.",
        blocks=tuple(blocks),
        missing=material.notes("scores"),
    )


def judgement(material: Material) -> Section:
    blocks = []
    for data in material.datasets:
        judged = material.of(material.analysis.judgement, data)
        regrets = material.of(material.analysis.regret, data)
        if regrets.empty:
            continue
        means = regrets.groupby("score", sort=False)[["regret1", "regret3", "random1"]].mean()
        bars = means.join(regrets.groupby("score", sort=False)["kind"].first()).reset_index()
        bars = bars.dropna(subset=["regret1"]).sort_values(["regret1", "regret3"], kind="stable")
        scores = bars[bars["kind"] == "score"]
        shown = bars[
            (bars["kind"] == "baseline") | bars["score"].isin(scores["score"][: figures.MOST_BARS])
        ]
        left = len(bars) - len(shown)
        caption = (
            "Accuracy of the best run of a method minus that of the run which the score picks "
            "(pale: @1) or of the best among its first three (full: @3); mean over methods. "
            "Orange: a random pick from the same runs. Grey: baselines."
            + (f" The {left} scores with the highest regret are in the table only." if left else "")
        )
        order = judged.sort_values("spearman", ascending=False, kind="stable", na_position="last")
        random = regrets[regrets["score"] == RANDOM]
        blocks.append(
            Block(
                data=data,
                figure=figures.regret_figure(shown) if len(shown) else None,
                label=f"Regret of choosing a run by each score on {data}",
                caption=caption,
                sheets=tuple(_judged(order, random)),
            )
        )
    return Section(
        key="regret",
        title="What choosing by a score costs",
        short="Regret",
        lead="Regret, and how sure each ranking is.",
        blocks=tuple(blocks),
        missing=material.notes("regret"),
    )


def seeds(material: Material) -> Section:
    blocks = []
    for data in material.datasets:
        table = material.of(material.analysis.seeds, data)
        shown = table.dropna(subset=["between_seeds"])
        if shown.empty:
            continue
        rows = [
            [method_cell(material, row["method"]),
             *(Cell(text=fixed(100 * row[name]), sort=row[name])
               for name in ("between_seeds", "between_configurations")),
             Cell(text=fixed(row["ratio"]), sort=row["ratio"]),
             text(f"{row['configurations']} × {row['seeds']}")]
            for row in table.to_dict("records")
        ]  # fmt: skip
        columns = [
            "method",
            "between seeds",
            "between configurations",
            "ratio",
            "configurations × seeds",
        ]
        said = [
            f"{row['method']}: seeds scatter by {fixed(100 * row['between_seeds'])} points, "
            f"configurations by {fixed(100 * row['between_configurations'])}; an order of its "
            "runs may be chance."
            for row in shown.to_dict("records")
            if row["ratio"] < 1
        ]
        blocks.append(
            Block(
                data=data,
                figure=figures.seeds_figure(shown, material.colour),
                label=f"Spread of accuracy between seeds and between configurations on {data}",
                caption="Standard deviation of accuracy between seeds of one configuration "
                "(hollow) and between configurations, without what the seeds add (full).",
                sentences=tuple(said),
                sheets=(flat("seeds", columns, rows, note="Percentage points."),),
                beside=True,
            )
        )
    return Section(
        key="seeds",
        title="Seed floor",
        short="Seeds",
        lead="No score can rank runs more finely than their seeds scatter.",
        blocks=tuple(blocks),
        missing=material.notes("seeds"),
    )


def _directed(row: Mapping[str, Any]) -> Cell:
    cell = score(row["score"])
    sign, said = ARROWS.get(row["better"], ARROWS["none"])
    note = f"{cell.note} {sign}" if row["kind"] == "score" else cell.note
    return Cell(text=cell.text, note=note, sort=cell.sort, bold=cell.bold, title=said)


def _of_score(name: str, way: str, judged: pd.DataFrame) -> str:
    said = ARROWS.get(way, ARROWS["none"])[1]
    if name not in judged.index:
        return f"{said[0].upper()}{said[1:]}."
    row = judged.loc[name]
    mean = with_interval(row["spearman"], row["low"], row["high"], 2)
    pooled = f", pooled {fixed(row['pooled_spearman'], 2, sign=True)}"
    return (
        f"{said[0].upper()}{said[1:]}. Turned so that more is better: mean ρ within methods "
        f"{mean}{pooled if known(row['pooled_spearman']) else ''}; {int(row['n'])} runs."
        + (" Losses of two methods do not compare." if name == "train_loss" else "")
    )


def _published(material: Material, data: str) -> Sheet:
    table = material.of(material.analysis.correlations, data)
    found = {(row["score"], row["metric"]): row for row in table.to_dict("records")}
    metrics = [metric for metric in METRICS if metric in set(table["metric"])]
    rows = []
    for name in dict.fromkeys(table["score"]):
        cells = [score(name)]
        for metric in metrics:
            row = found[name, metric]
            for kind in ("pearson", "spearman"):
                cells.append(rho(row[kind], note=f"p {_equals(row[f'{kind}_p'])}"
                                 if known(row[kind]) else ""))  # fmt: skip
        rows.append([*cells, count(found[name, metrics[0]]["n"])])
    columns: list[Column | str] = ["score"]
    columns += [Column(text=kind) for _ in metrics for kind in ("r", "ρ")] + ["runs"]
    over = (("", 1), *((LONG[metric], 2) for metric in metrics), ("", 1))
    return flat("correlations", columns, rows, over=over,
                fold="Pearson and Spearman with the four metrics, pooled, as published",
                note="Scores as they are, not turned by their direction; p two-sided, each by "
                "itself, as if runs were independent.")  # fmt: skip


def _equals(p: Any) -> str:
    shown = p_value(p)
    return shown if shown.startswith("<") else f"= {shown}"


def _judged(judged: pd.DataFrame, random: pd.DataFrame) -> Iterator[Sheet]:
    rows = []
    for row in judged.to_dict("records"):
        ends = (row["low"], row["spearman"], row["high"])
        regrets = [
            Cell(text=fixed(100 * row[name]), sort=row[name]) for name in ("regret1", "regret3")
        ]
        rows.append(
            [_directed(row),
             rho(row["spearman"], note=between(row["low"], row["high"], 2),
                 whisker=ends if all(map(known, ends)) else None),
             Cell(text=fixed(row["kendall"], 2, sign=True), sort=row["kendall"]),
             Cell(text=p_value(row["p"]), sort=row["p"]),
             Cell(text=p_value(row["p_holm"]), sort=row["p_holm"]), *regrets, count(row["n"]),
             text(row["verdict"], chip=CHIPS.get(row["verdict"], "mute"))]
        )  # fmt: skip
    if len(random):
        empty = [Cell(text="–", sort="") for _ in range(4)]
        means = [100 * numbers(random, name).mean() for name in ("regret1", "regret3")]
        cells = [Cell(text=fixed(value), sort=value / 100) for value in means]
        rows.append([score(RANDOM), *empty, *cells, count(random["n"].sum()), text("")])
    columns: list[Column | str] = ["score", "mean ρ within methods", "τ-b", "p", "Holm"]
    columns += ["regret@1", "regret@3", "runs", Column(text="verdict", numeric=False)]
    yield flat(
        "judgement", columns, rows,
        note="ρ with 95 % interval (cluster bootstrap over configurations); τ-b likewise a mean "
        "over methods; p one-sided, by permutation within methods; Holm over the scores of the "
        "dataset; regret in percentage points. The highest of many scores is high partly by "
        "chance: its interval does not allow for the choice.",
    )  # fmt: skip
