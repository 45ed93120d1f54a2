"""The sections of a report, in their order; here: those on runs, heads and settings.

Each is a function from the report to its blocks. Both the page and the Markdown are made of these.
A section without blocks says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from radial.presentation import between, fixed, known, several, words
from radial.study.analysis.columns import METRICS, final, method_order, numbers
from radial.study.analysis.peaks import AVERAGE, POOLED
from radial.study.audit import DEAD, RULES
from radial.study.report import charts, score_sections
from radial.study.report.content import (
    Block,
    Cell,
    Column,
    Row,
    Section,
    Sheet,
    any_number,
    change,
    count,
    percent,
    ready,
    score,
    score_label,
    setting,
    shaded_rho,
    sheet,
    text,
)
from radial.study.report.material import Report

SHORT = {"f1": "F1", "accuracy": "A", "precision": "P", "recall": "R"}
RUN, HEAD = (Column(name, text, name, numeric=False) for name in ("run", "head"))
SHOWN = 1000  # rows of a table on the page; its CSV has all
WHOLE = ("curves", "peaks", "scatter", "audit", "runs")  # nothing is missing where there are blocks
ABOUT = {"scatter": "scores", "correlation": "scores"}
RULE_WORDS = {
    "no_signal": "No signal: training said so (dead head, collapsed, diverged), or the loss is "
    "that of a constant output.",
    "no_learning": "No learning: less than 5 % of the gap between the loss of a constant output "
    "and the default head's is closed.",
    "identical": "Identical: one accuracy over different settings.",
    "unmoved": "Unmoved: the accuracy is that of the backbone before the first step.",
    "not_better": "Not better: the accuracy is not above that; a note, not a flag.",
}


def sections(report: Report) -> list[Section]:
    """All sections, whether or not there is something in them."""
    made = [
        (curves, "curves", "Learning curves", "Curves", "A thin line a run, over its epochs."),
        (peaks, "peaks", "Peaks", "Peaks", "The best run of each method and head, by accuracy."),
        (heads, "heads", "The default head against others", "Heads",
         "Paired by method and seed, all settings but the head's alike. Runs that did not learn "
         "are among them: see the audit."),
        (importance, "importance", "Which settings matter", "Settings",
         "SHAP values of the settings of RBFN heads on accuracy."),
        (score_sections.scatter, "scatter", "Scores against accuracy", "Scores",
         "A point a run. The direction of each score was declared before its accuracy was looked "
         "at."),
        (score_sections.correlation, "correlation", "Within methods and pooled", "Correlation",
         "A score is of use where it ranks the runs of one method; pooled over methods it may only "
         "tell the methods apart."),
        (score_sections.regret, "regret", "What choosing by a score costs", "Regret",
         "Regret, and how sure each ranking is."),
        (seeds, "seeds", "Seed floor", "Seeds",
         "No score can rank runs more finely than their seeds scatter."),
        (audit, "audit", "Audit", "Audit",
         "Which runs show no sign of having learned, and what correlations are without them."),
        (all_runs, "runs", "Runs", "Runs",
         "Settings that differ between runs of one method; the CSV has every column."),
    ]  # fmt: skip
    found = []
    for make, key, title, short, lead in made:
        blocks = tuple(make(report))
        missing = () if blocks and key in WHOLE else report.missing(ABOUT.get(key, key))
        facts = {"key": key, "title": title, "short": short, "lead": lead}
        found.append(Section(**facts, blocks=blocks, missing=missing))
    return found


def curves(report: Report) -> Iterator[Block]:
    """Loss, kNN and monitored scores over epochs: a panel a method."""
    levels = final(report.runs)
    for data in report.datasets:
        table = report.of(report.curves, data)
        if table.empty:
            continue
        panels = []
        for method in method_order(table["method"]):
            here = levels[(levels["data"] == data) & (levels["method"] == method)]
            constant = {value for value in numbers(here, "constant_loss") if known(value)}
            level = {"train_loss": constant.pop()} if len(constant) == 1 else {}
            part = table[table["method"] == method]
            panels.append(charts.curve_panel(method, part, report.places, level))
        ink = charts.head_colours(table["head"])
        many = max(table.groupby("method")["run"].nunique()) > charts.MOST_LINES
        some = f" {charts.MOST_LINES} runs of a method are drawn." if many else ""
        yield Block(
            data=data,
            figures=tuple(panels),
            label=f"Learning curves of the runs on {data}, a panel a method",
            legend=tuple((ink[head], "dot", head) for head in dict.fromkeys(table["head"])),
            caption="Dotted: the loss of a constant output. Losses of two methods do not compare."
            f"{some}",
            sheets=(_curve_sheet(report, table),),
        )


def _curve_sheet(report: Report, table: pd.DataFrame) -> Sheet:
    """First, best and last value of each run; their medians by method, head and series."""
    up = {"knn"} | {name for name, way in report.better.items() if way == "higher"}
    lines = table.dropna(subset=["value"]).groupby(["method", "head", "series", "run"], sort=False)[
        "value"
    ]
    ends = lines.agg(["first", "min", "max", "last"]).reset_index()
    ends["best"] = np.where(ends["series"].isin(up), ends["max"], ends["min"])
    keys = ["method", "head", "series"]
    rows = ends.groupby(keys, sort=False).agg(
        runs=("run", "size"), first=("first", "median"), best=("best", "median"),
        last=("last", "median"),
    ).reset_index()  # fmt: skip
    order = {name: i for i, name in enumerate(dict.fromkeys(table["series"]))}
    rows = rows.sort_values("series", key=lambda names: names.map(order), kind="stable")
    columns = [
        _method(report), HEAD, Column("curve", _series, "series", numeric=False),
        Column("runs", count, "runs"),
        *(Column(name, any_number, name) for name in ("first", "best", "last")),
    ]  # fmt: skip
    return sheet("curves", rows.to_dict("records"), columns,
                 fold="First, best and last value of the curves",
                 note="Medians over the runs of the first epoch, of the best of each run (lowest "
                 "loss, highest kNN) and of the last.")  # fmt: skip


def _series(name: str) -> Cell:
    label, layer = score_label(name)
    return text(charts.CHOSEN.get(name, label), note=layer if "@" in name else "")


def peaks(report: Report) -> Iterator[Block]:
    """The best run of each method and head, by accuracy."""
    table = report.analysis.peaks
    if table.empty:
        return
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for found in table.to_dict("records"):
        key = found["data"], found["method"]
        row = rows.setdefault(key, {"data": key[0], "method": key[1]})
        title = f"the best of {found['runs']}: run {found['run']}" if found["run"] else ""
        for metric in METRICS:
            best = bool(found[f"{metric}_best"])
            row[f"{found['head']} {metric}"] = percent(found[metric], bold=best, title=title)
        row[f"{found['head']} runs"] = count(found["runs"])
    columns = [_method(report)] + [
        Column(SHORT.get(name, name), ready, f"{head} {name}", over=head,
               title=name if name in SHORT else "")
        for head in dict.fromkeys(table["head"]) for name in (*METRICS, "runs")
    ]  # fmt: skip
    made = sheet(
        "peaks", rows.values(), columns, by="data", last=bool((table["method"] == AVERAGE).any()),
        note="F1, accuracy, precision, recall in percent, of the run of highest accuracy. "
        "Bold: the highest of its row at the digits shown. A peak is the best of so many runs: "
        "with more runs it is higher by chance alone.",
    )  # fmt: skip
    yield Block(sheets=(made,))


def heads(report: Report) -> Iterator[Block]:
    """Each head against the default one, paired."""
    for data in report.datasets:
        part = report.of(report.analysis.heads, data)
        if part.empty:
            continue
        part = part.assign(pair=part["b"] + " − " + part["a"])
        columns = [
            _method(report),
            Column("difference", _difference),
            Column(str(part["a"].iloc[0]), percent, "a_mean"),
            Column("other", percent, "b_mean"),
            Column("pairs", count, "pairs"),
        ]
        tuned = dict.fromkeys(
            f"{row['method']} {row['tuned']} ({row['a']}, {row['b']})"
            for row in part[part["tuned"] != ""].to_dict("records")
        )
        made = sheet(
            "heads", part.to_dict("records"), columns, by="pair", last=True,
            note="Mean accuracy in percent; difference in percentage points, bold where its "
            "interval does not contain 0."
            + (f" Tuned for each head: {'; '.join(tuned)}." if tuned else ""),
        )  # fmt: skip
        yield Block(
            data=data,
            figures=(charts.heads_figure(part, report.colour),),
            label=f"Differences in accuracy between heads on {data}, with intervals",
            caption="Accuracy of the one head minus that of the other, in percentage points, "
            "with 95 % intervals (Student's t over pairs). Diamond: all methods together. "
            "Hollow: a single pair, no interval.",
            sheets=(made,),
            beside=True,
        )


def _difference(row: Row) -> Cell:
    apart = known(row["low"]) and not row["low"] <= 0 <= row["high"]
    note = between(100 * row["low"], 100 * row["high"])
    runs = f"{several(row['b_runs'], 'run')} and {several(row['a_runs'], 'run')}"
    title = ", ".join(filter(None, [runs, row["tuned"]]))
    return change(row["difference"], bold=apart, title=title, note=note)


def importance(report: Report) -> Iterator[Block]:
    """SHAP values of the settings of RBFN heads."""
    columns = [
        Column("setting", _feature, "feature", numeric=False),
        Column("mean |φ|", percent, "mean_abs"),
        Column("φ⁺", change, "mean_positive", title="mean of the positive φ"),
        Column("φ⁻", change, "mean_negative", title="mean of the negative φ"),
    ]
    note = (
        "Percentage points of accuracy. φ describes the fitted tree, over all methods, and has no "
    )
    for data in report.datasets:
        means = report.of(report.analysis.importance, data)
        values = report.of(report.analysis.importance_values, data)
        if means.empty:
            continue
        means = means.sort_values("mean_abs", ascending=False, kind="stable")
        yield Block(
            data=data,
            figures=(charts.swarm_figure(values, means, report.places),),
            label=f"SHAP values of the settings of RBFN heads on {data}",
            legend=(("gradient", "", "value of the setting, low to high"),),
            caption=f"A point a run ({values['run'].nunique()} with an RBFN head). φ is how far "
            "the setting moves the accuracy that a boosted tree predicts for that run.",
            sheets=(
                sheet("importance", means.to_dict("records"), columns, note=f"{note}interval."),
            ),
            beside=True,
        )


def _feature(name: str) -> Cell:
    key, _, value = name.partition("=")
    return text(value.replace("_", " ") or words(key), note=words(key) if value else "")


def seeds(report: Report) -> Iterator[Block]:
    """How far accuracies scatter between seeds, beside between configurations."""
    columns = [
        _method(report),
        Column("between seeds", percent, "between_seeds"),
        Column("between configurations", percent, "between_configurations"),
        Column("ratio", _ratio, "ratio"),
        Column("configurations × seeds", _sizes),
    ]
    for data in report.datasets:
        table = report.of(report.analysis.seeds, data)
        shown = table.dropna(subset=["between_seeds"])
        if shown.empty:
            continue
        said = [
            f"{row['method']}: seeds scatter by {fixed(100 * row['between_seeds'])} points, "
            f"configurations by {fixed(100 * row['between_configurations'])}; an order of its "
            "runs may be chance."
            for row in shown.to_dict("records")
            if row["ratio"] < 1
        ]
        yield Block(
            data=data,
            figures=(charts.seeds_figure(shown, report.colour),),
            label=f"Spread of accuracy between seeds and between configurations on {data}",
            caption="Standard deviation of accuracy between seeds of one configuration (hollow) "
            "and between configurations, without what the seeds add (full).",
            sentences=tuple(said),
            sheets=(sheet("seeds", table.to_dict("records"), columns, note="Percentage points."),),
            beside=True,
        )


def _ratio(value: float) -> Cell:
    return Cell(text=fixed(value), sort=value)


def _sizes(row: Row) -> Cell:
    return text(f"{row['configurations']} × {row['seeds']}")


def audit(report: Report) -> Iterator[Block]:
    """Counts by rule, correlations without the flagged runs, and the flagged runs."""
    found = report.audit
    rules = [rule for rule in RULES if found.counts[rule].any()]
    order = method_order(report.runs["method"])
    rows = sorted(
        found.counts.to_dict("records"),
        key=lambda row: (report.datasets.index(str(row["data"])), order.index(row["method"])),
    )
    columns = [
        _method(report), HEAD, Column("runs", count, "runs"),
        *(Column(words(rule), count, rule) for rule in rules), Column("flagged", _flagged),
    ]  # fmt: skip
    note = " ".join(RULE_WORDS[rule] for rule in rules)
    counts = sheet("audit_counts", rows, columns, by="data", note=note)
    sheets = (counts, *_without_flagged(report), *_flagged_runs(report))
    yield Block(sentences=found.sentences, sheets=sheets)


def _flagged(row: Row) -> Cell:
    kind = "bad" if row["flagged"] == row["runs"] else "warn" if row["flagged"] else ""
    return count(row["flagged"], chip=kind)


def _without_flagged(report: Report) -> Iterator[Sheet]:
    table = report.audit.correlations.dropna(subset=["spearman_all"])
    if table.empty or (table["n_left"] == table["n_all"]).all():
        return
    moved = (table["spearman_all"] - table["spearman_left"]).abs()
    table = table.loc[moved.sort_values(ascending=False, kind="stable").index]
    turned = int(((table["spearman_all"] * table["spearman_left"]) < 0).sum())
    columns = [
        *_data(report), Column("score", score, "score", numeric=False),
        *(Column(name, make, f"{kind}_{which}", over=over)
          for kind, make, over in (("spearman", shaded_rho, "Spearman"),
                                   ("pearson", shaded_rho, "Pearson"), ("n", count, "runs"))
          for name, which in (("all", "all"), ("without", "left"))),
    ]  # fmt: skip
    yield sheet("audit_correlations", table.to_dict("records"), columns,
                fold=f"Correlations of {len(table)} scores with and without the flagged runs; "
                f"{turned} change their sign",
                note="Pooled over all methods, scores turned by their direction; the largest "
                "change first.")  # fmt: skip


def _flagged_runs(report: Report) -> Iterator[Sheet]:
    flags = report.audit.flags
    flags = flags[flags[list(DEAD)].any(axis=1)]
    if flags.empty:
        return
    columns = [
        RUN, *_data(report), _method(report), HEAD,
        Column("loss", any_number, "train_loss"),
        Column("constant output's", any_number, "constant_loss"),
        Column("accuracy", percent, "accuracy"),
        Column("why", _why, numeric=False),
    ]  # fmt: skip
    yield sheet("audit_flags", flags.head(SHOWN).to_dict("records"), columns,
                fold=f"The {len(flags):,} flagged runs", find=True)  # fmt: skip


def _why(row: Row) -> Cell:
    return text(row["flags"], note=row["reasons"])


def all_runs(report: Report) -> Iterator[Block]:
    """One table of all runs, with what varies."""
    columns = [
        RUN, *_data(report), _method(report), HEAD,
        *(Column(words(name), setting, name) for name in ("seed", *report.settings)),
        Column("training loss", any_number, "train_loss"),
        Column("accuracy", _accuracy),
        Column("audit", text, "flags", numeric=False),
    ]  # fmt: skip
    runs = report.runs.assign(flags=report.runs["run"].map(report.flags))
    note = f"The first {SHOWN:,} of {len(runs):,}; the CSV has all." if len(runs) > SHOWN else ""
    shown = sheet("runs", runs.head(SHOWN).to_dict("records"), columns, note=note,
                  fold=f"All {len(runs):,} runs", find=True)  # fmt: skip
    yield Block(sheets=(shown,))


def _accuracy(row: Row) -> Cell:
    low, high = row.get("accuracy_low", math.nan), row.get("accuracy_high", math.nan)
    note = between(100 * low, 100 * high) if known(low) and known(high) else ""
    return percent(row["accuracy"], note=note)


def _method(report: Report) -> Column:
    def cell(name: str) -> Cell:
        if name in (AVERAGE, POOLED):
            return text({AVERAGE: "average", POOLED: "all methods"}[name], bold=True)
        return text(name, colour=report.colour[name], sort=name)

    return Column("method", cell, "method", numeric=False)


def _data(report: Report) -> list[Column]:
    """A column for the dataset, where there are several."""
    return [Column("data", text, "data", numeric=False)] if len(report.datasets) > 1 else []
