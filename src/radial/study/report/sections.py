"""The sections of a report, in their order; here: peaks, heads and settings.

Both the page and the Markdown are made of these. A section whose frame is empty says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from radial.presentation.formats import between, fixed, known, several, words
from radial.study.analysis.columns import METRICS
from radial.study.analysis.peaks import AVERAGE
from radial.study.report import figures
from radial.study.report.blocks import Block, Material, Section, method_cell
from radial.study.report.run_sections import all_runs, audit
from radial.study.report.score_sections import correlation, judgement, scatter, seeds
from radial.study.report.sheets import (
    LONG,
    Cell,
    Column,
    count,
    flat,
    grouped,
    percent,
    points,
    text,
)

SHORT = {"f1": "F1", "accuracy": "A", "precision": "P", "recall": "R"}


def sections(material: Material) -> list[Section]:
    made = (peaks, heads, importance, scatter, correlation, judgement, seeds, audit, all_runs)
    return [make(material) for make in made]


def peaks(material: Material) -> Section:
    table = material.analysis.peaks
    heads = list(dict.fromkeys(table["head"]))
    rows: dict[str, list[list[Cell]]] = {}
    for (data, method), group in table.groupby(["data", "method"], sort=False):
        row = [method_cell(material, method)]
        by_head = {entry["head"]: entry for entry in group.to_dict("records")}
        for head in heads:
            found = by_head.get(head)
            for metric in METRICS:
                if found is None:
                    row.append(Cell(text="–"))
                    continue
                title = f"the best of {found['runs']}: run {found['run']}" if found["run"] else ""
                row.append(percent(found[metric], bold=bool(found[f"{metric}_best"]), title=title))
            row.append(count(found["runs"]) if found else Cell(text="–"))
        rows.setdefault(str(data), []).append(row)
    columns: list[Column | str] = ["method"]
    for _ in heads:
        columns += [Column(text=SHORT[m], title=LONG[m]) for m in METRICS] + ["runs"]
    sheet = grouped(
        "peaks", columns, rows, last=bool((table["method"] == AVERAGE).any()),
        over=(("", 1), *((head, len(METRICS) + 1) for head in heads)),
        note="F1, accuracy, precision, recall in percent, of the run of highest accuracy. "
        "Bold: the highest of its row at the digits shown. A peak is the best of so many runs: "
        "with more runs it is higher by chance alone.",
    )  # fmt: skip
    return Section(
        key="peaks",
        title="Peaks",
        short="Peaks",
        lead="The best run of each method and head, by accuracy.",
        blocks=(Block(sheets=(sheet,)),) if len(table) else (),
        missing=() if len(table) else material.notes("peaks") or ("no accuracy in this study",),
    )


def heads(material: Material) -> Section:
    table = material.analysis.heads
    blocks = []
    for data in material.datasets:
        part = material.of(table, data)
        if part.empty:
            continue
        rows = {}
        for (a, b), group in part.groupby(["a", "b"], sort=False):
            rows[f"{b} − {a}"] = [
                [method_cell(material, row["method"]),
                 points(row["difference"], bold=_apart(row), title=row["tuned"],
                        note=between(100 * row["low"], 100 * row["high"])),
                 percent(row["a_mean"], title=several(row["a_runs"], "run")),
                 percent(row["b_mean"], title=several(row["b_runs"], "run")), count(row["pairs"])]
                for row in group.to_dict("records")
            ]  # fmt: skip
        sheet = grouped(
            "heads", ["method", "difference", str(part["a"].iloc[0]), "other", "pairs"], rows,
            last=True, note="Mean accuracy in percent; difference in percentage points, bold where "
            "its interval does not contain 0." + _tuned(part),
        )  # fmt: skip
        blocks.append(
            Block(
                data=data,
                figure=figures.heads_figure(part, material.colour),
                label=f"Differences in accuracy between heads on {data}, with intervals",
                caption="Accuracy of the one head minus that of the other, in percentage points, "
                "with 95 % intervals (Student's t over pairs). Diamond: all methods together. "
                "Hollow: a single pair, no interval.",
                sheets=(sheet,),
                beside=True,
            )
        )
    return Section(
        key="heads",
        title="The default head against others",
        short="Heads",
        lead="Paired by method and seed, all settings but the head's alike. Runs that did not "
        "learn are among them: see the audit.",
        blocks=tuple(blocks),
        missing=material.notes("heads"),
    )


def _tuned(table: pd.DataFrame) -> str:
    lines = dict.fromkeys(
        f"{row['method']} {row['tuned']} ({row['a']}, {row['b']})"
        for row in table[table["tuned"] != ""].to_dict("records")
    )
    return f" Tuned for each head: {'; '.join(lines)}." if lines else ""


def importance(material: Material) -> Section:
    blocks = []
    places = {str(run): i for i, run in enumerate(material.runs["run"])}
    for data in material.datasets:
        means = material.of(material.analysis.importance, data)
        values = material.of(material.analysis.importance_values, data)
        if means.empty:
            continue
        means = means.sort_values("mean_abs", ascending=False, kind="stable")
        rows = []
        for row in means.to_dict("records"):
            setting, _, value = row["feature"].partition("=")
            name = text(
                value.replace("_", " ") or words(setting), note=words(setting) if value else ""
            )
            mean = Cell(text=fixed(100 * row["mean_abs"]), sort=row["mean_abs"])
            rows.append([name, mean, points(row["mean_positive"]), points(row["mean_negative"])])
        heads = [Column(text="setting", numeric=False), Column(text="mean |φ|"),
                 Column(text="φ⁺", title="mean of the positive φ"),
                 Column(text="φ⁻", title="mean of the negative φ")]  # fmt: skip
        blocks.append(
            Block(
                data=data,
                figure=figures.swarm_figure(values, means, places),
                label=f"SHAP values of the settings of RBFN heads on {data}",
                legend=(("gradient", "", "value of the setting, low to high"),),
                caption=f"A point a run ({values['run'].nunique()} with an RBFN head). φ is how "
                "far the setting moves the accuracy that a boosted tree predicts for that run.",
                sheets=(
                    flat("importance", heads, rows, note="Percentage points of accuracy. φ "
                         "describes the fitted tree, over all methods, and has no interval."),
                ),
                beside=True,
            )
        )  # fmt: skip
    return Section(
        key="importance",
        title="Which settings matter",
        short="Settings",
        lead="SHAP values of the settings of RBFN heads on accuracy.",
        blocks=tuple(blocks),
        missing=material.notes("importance"),
    )


def _apart(row: Mapping[str, Any]) -> bool:
    return known(row["low"]) and not row["low"] <= 0 <= row["high"]
