"""`radial study report`: one HTML page that needs no network, Markdown, and every table.

What is shown stands in sections.py, how it looks in templates/ (with the style sheet of the report
cards); the tables are written in full, as CSV and Parquet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from radial.files import atomic, write_atomically
from radial.presentation.pages import CDN, check_plotly, json_in_page, plotly_script, render
from radial.study.analysis.analyse import analyse
from radial.study.analysis.columns import final
from radial.study.analysis.peaks import peak_table
from radial.study.audit.rules import audit
from radial.study.report.basis import Basis, read_basis
from radial.study.report.blocks import Material
from radial.study.report.sections import sections
from radial.study.report.summary import cards, summary
from radial.study.store import Tell
from radial.study.table import directions, read_runs

SHOWN_DIGITS = 3  # of a fraction: percent with one decimal
ROOM = 1_800_000  # bytes of CSV inside the page
SHAPES = {  # symbols of a legend, as paths in a box of 16
    "circle": "M6 0A6 6 0 1 1-6 0A6 6 0 1 1 6 0Z",
    "diamond": "M0-7L7 0L0 7L-7 0Z",
    "square": "M-5.5-5.5H5.5V5.5H-5.5Z",
    "triangle-up": "M0-6.5L6.5 5H-6.5Z",
    "triangle-down": "M0 6.5L6.5-5H-6.5Z",
    "cross": "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "star": "M0-7L1.6-2.2H6.7L2.6.8L4.1 5.7L0 2.7L-4.1 5.7L-2.6.8L-6.7-2.2H-1.6Z",
    "hexagon": "M0-6.5L5.6-3.2V3.2L0 6.5L-5.6 3.2V-3.2Z",
    "pentagon": "M0-6.5L6.2-2L3.8 5.3H-3.8L-6.2-2Z",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a report is made of, read and computed."""

    basis: Basis
    material: Material

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by its file's name."""
        found = self.material.audit
        return self.material.analysis.frames() | {
            "audit_counts": found.counts,
            "audit_identical": found.identical,
            "audit_correlations": found.correlations,
            "audit_flags": found.flags,
            "runs": self.material.runs,
        }


def read_report(
    directory: Path | str, *, all_runs: bool = False, tell: Tell | None = None
) -> Report:
    """Read a study and compute all that there is to say of it."""
    directory = Path(directory)
    runs = read_runs(directory, all_runs=all_runs, tell=tell)
    better = directions(runs)
    if "accuracy" not in runs:
        runs["accuracy"] = math.nan
    analysis = analyse(runs, better)
    analysis = replace(analysis, peaks=peak_table(runs, SHOWN_DIGITS))
    return Report(
        basis=read_basis(directory, runs),
        material=Material(
            runs=runs, better=better, analysis=analysis, audit=audit(final(runs), better)
        ),
    )


def write_report(
    directory: Path | str,
    *,
    html: Path | str,
    markdown: Path | str | None = None,
    tables: Path | str | None = None,
    small: bool = False,
    all_runs: bool = False,
    tell: Tell | None = None,
) -> list[str]:
    """Write the page and, where asked for, Markdown and a folder of tables.

    Returns lines that say what was written. ``small`` leaves plotly.js, 4.6 MB, to its CDN: such a
    page needs the network for its figures. ``all_runs``: also those of earlier plans. ``tell``
    hears of what was left out or could not be read.
    """
    check_plotly()
    report = read_report(directory, all_runs=all_runs, tell=tell)
    write_atomically(html, page(report, small=small))
    lines = [f"report: {html}"]
    if markdown is not None:
        from radial.study.report.markdown import markdown_of

        write_atomically(markdown, markdown_of(report))
        lines.append(f"markdown: {markdown}")
    if tables is not None:
        frames = report.tables()
        for name, frame in frames.items():
            write_table(frame, Path(tables) / name)
        lines.append(f"tables: {tables} ({len(frames)} as CSV and Parquet)")
    return lines


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """As path.csv and path.parquet, atomically; values of mixed kinds are written as text."""
    write_atomically(path.with_name(f"{path.name}.csv"), csv_of(frame))
    plain = frame.copy()
    for name in plain.columns:
        if plain[name].dtype == object:
            kinds = {type(value) for value in plain[name].dropna()}
            if len(kinds) > 1:
                plain[name] = plain[name].map(str, na_action="ignore")
    with atomic(path.with_name(f"{path.name}.parquet"), "wb") as file:
        plain.to_parquet(file, index=False)


def csv_of(frame: pd.DataFrame, numbers: str | None = None) -> str:
    """Lists are written with spaces between."""
    listed = [name for name in frame.columns if frame[name].map(type).isin([tuple, list]).any()]
    for name in listed:
        frame = frame.assign(**{name: frame[name].map(lambda values: " ".join(map(str, values)))})
    return str(frame.to_csv(index=False, lineterminator="\n", float_format=numbers))


def page(report: Report, *, small: bool = False) -> str:
    """One HTML page; self-contained, unless it shall be small."""
    texts = _embedded(report.tables())
    parts = sections(report.material)
    drawn = {
        f"{section.key}-{i}": block.figure
        for section in parts
        for i, block in enumerate(section.blocks)
        if block.figure is not None
    }
    material = report.material
    inside = {"figures": drawn, "tables": texts, "hover": material.hover}
    return render(
        Path(__file__).with_name("templates") / "report.html",
        shade=_shade,
        share=_share,
        shapes=SHAPES,
        inside=list(texts),
        name=report.basis.name,
        sentences=summary(
            material.runs, material.analysis, material.audit, report.basis.unfinished
        ),
        cards=cards(material.runs, material.analysis, material.audit),
        sections=parts,
        datasets=material.datasets,
        facts=report.basis.facts,
        notes=material.analysis.notes,
        study=report.basis.study,
        material=json_in_page(inside),
        plotly=plotly_script(small=small),
        elsewhere=f" {CDN}" if small else "",
    )


def _embedded(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Tables as CSV that fit into the page: the smallest first, as many as there is room for."""
    texts = {name: csv_of(frame, "%.8g") for name, frame in tables.items()}
    size, kept = 0, set()
    for name in sorted(texts, key=lambda name: len(texts[name])):
        size += len(texts[name])
        if size <= ROOM:
            kept.add(name)
    return {name: text for name, text in texts.items() if name in kept}


def _shade(value: float) -> str:
    """Blue for what is positive, orange for what is negative; readable in light and dark."""
    red, green, blue = (47, 127, 208) if value > 0 else (217, 116, 43)
    return f"rgba({red},{green},{blue},{0.72 * min(abs(value), 1.0):.2f})"


def _share(value: float) -> float:
    """Where a correlation lies between −1 and 1, in percent."""
    return round(50 * (min(max(value, -1.0), 1.0) + 1), 1)
