"""The sections on runs: what the audit found, and all of them in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from radial.presentation.formats import between, known, plain, words
from radial.study.analysis.columns import method_order
from radial.study.audit.rules import DEAD, RULES, Audit
from radial.study.report.blocks import Block, Material, Section, method_cell
from radial.study.report.sheets import (
    Cell,
    Column,
    Sheet,
    count,
    flat,
    grouped,
    loss,
    percent,
    rho,
    score,
    text,
)

SHOWN = 1000  # rows of a table on the page; its CSV has all


def audit(material: Material) -> Section:
    found = material.audit
    rules = [rule for rule in RULES if found.counts[rule].any()]
    order = found.counts.to_dict("records")
    rows: dict[str, list[list[Cell]]] = {data: [] for data in material.datasets}
    for row in sorted(order, key=lambda r: _place(material, r["method"])):
        whole = row["flagged"] == row["runs"]
        chip = "bad" if whole else "warn" if row["flagged"] else ""
        flagged = Cell(text=count(row["flagged"]).text, sort=row["flagged"], chip=chip)
        rows[str(row["data"])].append(
            [method_cell(material, row["method"]), text(row["head"]), count(row["runs"]),
             *(count(row[rule]) for rule in rules), flagged]
        )  # fmt: skip
    columns: list[Column | str] = ["method", Column(text="head", numeric=False), "runs",
                                   *(words(rule) for rule in rules), "flagged"]  # fmt: skip
    counts = grouped("audit_counts", columns, rows, note=" ".join(_rule_words(rules)))
    scores = set(found.correlations["data"] + " " + found.correlations["score"])
    said = [s for s in found.sentences if s.partition(":")[0] not in scores]
    sheets = [counts, *_audit_correlations(found), *_flagged(material)]
    return Section(
        key="audit",
        title="Audit",
        short="Audit",
        lead="Which runs show no sign of having learned, and what correlations are without them.",
        blocks=(Block(sentences=tuple(said), sheets=tuple(sheets)),),
    )


def all_runs(material: Material) -> Section:
    frame, names = material.runs, material.settings
    several = len(material.datasets) > 1
    columns: list[Column | str] = [Column(text="run", numeric=False)]
    columns += [Column(text="data", numeric=False)] if several else []
    columns += [Column(text=name, numeric=False) for name in ("method", "head")]
    columns += ["seed", *(words(name) for name in names), "training loss", "accuracy",
                Column(text="audit", numeric=False)]  # fmt: skip
    rows = []
    for row, flag in zip(frame.head(SHOWN).to_dict("records"), material.flags):
        low, high = row.get("accuracy_low"), row.get("accuracy_high")
        span = between(100 * low, 100 * high) if known(low) and known(high) else ""
        cells = [text(row["run"]), *([text(row["data"])] if several else [])]
        cells += [method_cell(material, row["method"]), text(row["head"])]
        cells += [_setting(row.get("seed"))]
        cells += [_setting(row.get(name)) for name in names]
        cells += [loss(row.get("train_loss")), percent(row.get("accuracy"), note=span), text(flag)]
        rows.append(cells)
    note = f"The first {SHOWN:,} of {len(frame):,}; the CSV has all." if len(frame) > SHOWN else ""
    sheet = flat("runs", columns, rows, note=note, fold=f"All {len(frame):,} runs", find=True)
    return Section(
        key="runs",
        title="Runs",
        short="Runs",
        lead="Settings that differ between runs of one method; the CSV has every column.",
        blocks=(Block(sheets=(sheet,)),),
    )


def _place(material: Material, method: str) -> int:
    return method_order(material.runs["method"]).index(method)


def _setting(value: Any) -> Cell:
    shown = plain(value)
    return Cell(text=shown, sort=float(value) if known(value) else "" if shown == "–" else shown)


def _rule_words(rules: Sequence[str]) -> Iterator[str]:
    said = {
        "no_signal": "No signal: training said so (dead head, collapsed, diverged), or "
        "the loss is that of a constant output.",
        "no_learning": "No learning: less than 5 % of the gap between the loss of a constant "
        "output and the default head's is closed.",
        "identical": "Identical: one accuracy over different settings.",
        "unmoved": "Unmoved: the accuracy is that of the backbone before the first step.",
        "not_better": "Not better: the accuracy is not above that; a note, not a flag.",
    }
    yield from (said[rule] for rule in rules)


def _audit_correlations(found: Audit) -> Iterator[Sheet]:
    table = found.correlations.dropna(subset=["spearman_all"])
    if table.empty or (table["n_left"] == table["n_all"]).all():
        return
    change = (table["spearman_all"] - table["spearman_left"]).abs()
    table = table.loc[change.sort_values(ascending=False, kind="stable").index]
    several = table["data"].nunique() > 1
    rows = [
        [*([text(row["data"])] if several else []), score(row["score"]),
         rho(row["spearman_all"], shaded=True),
         rho(row["spearman_left"], shaded=True), rho(row["pearson_all"], shaded=True),
         rho(row["pearson_left"], shaded=True), count(row["n_all"]), count(row["n_left"])]
        for row in table.to_dict("records")
    ]  # fmt: skip
    columns: list[Column | str] = [*(["data"] if several else []), "score"]
    columns += [Column(text=name) for _ in range(3) for name in ("all", "without")]
    over = (("", 1 + several), ("Spearman", 2), ("Pearson", 2), ("runs", 2))
    turned = int(((table["spearman_all"] * table["spearman_left"]) < 0).sum())
    yield flat("audit_correlations", columns, rows, over=over,
               fold=f"Correlations of {len(table)} scores with and without the flagged runs; "
               f"{turned} change their sign",
               note="Pooled over all methods, scores turned by their direction; the largest change "
               "first.")  # fmt: skip


def _flagged(material: Material) -> Iterator[Sheet]:
    flags = material.audit.flags
    flags = flags[flags[list(DEAD)].any(axis=1)]
    if flags.empty:
        return
    several = len(material.datasets) > 1
    rows = []
    for row in flags.head(SHOWN).to_dict("records"):
        rows.append(
            [text(row["run"]), *([text(row["data"])] if several else []),
             method_cell(material, row["method"]), text(row["head"]), loss(row["train_loss"]),
             loss(row["constant_loss"]), percent(row["accuracy"]),
             text(row["flags"], note=row["reasons"])]
        )  # fmt: skip
    columns: list[Column | str] = [Column(text="run", numeric=False)]
    columns += [Column(text="data", numeric=False)] if several else []
    columns += [Column(text="method", numeric=False), Column(text="head", numeric=False), "loss",
                "constant output's", "accuracy", Column(text="why", numeric=False)]  # fmt: skip
    yield flat("audit_flags", columns, rows, fold=f"The {len(flags):,} flagged runs", find=True)
