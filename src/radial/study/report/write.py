"""`radial study report`: one HTML page that needs no network, Markdown, and every table.

What is said stands in headlines.py and sections.py, how it looks in templates/; the tables are
written in full, as CSV and Parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from radial.files import atomic, write_atomically
from radial.presentation import CDN, check_plotly, json_in_page, plotly_script, render
from radial.study.report.charts import SHAPES
from radial.study.report.content import Cell, Section, Sheet
from radial.study.report.headlines import key_figures, summary
from radial.study.report.material import Report, read_report
from radial.study.report.sections import sections
from radial.study.results import guarded
from radial.study.store import Tell

ROOM = 1_800_000  # bytes of CSV inside the page
MOST_ROWS = 60  # of a table in Markdown; the CSV has all


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

    Args:
        directory: of the study.
        html: where the page goes.
        markdown: where the Markdown goes.
        tables: the folder of the tables, each as CSV and Parquet.
        small: leave plotly.js, 4.6 MB, to its CDN: such a page needs the network for its figures.
        all_runs: also those of earlier plans.
        tell: hears of what was left out or could not be read.

    Returns:
        Lines that say what was written.
    """
    check_plotly()
    report = read_report(directory, all_runs=all_runs, tell=tell)
    write_atomically(html, page(report, small=small))
    lines = [f"report: {html}"]
    if markdown is not None:
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
    write_atomically(path.with_name(f"{path.name}.csv"), _csv(frame))
    plain = frame.copy()
    for name in plain.columns:
        if plain[name].dtype == object and len({type(v) for v in plain[name].dropna()}) > 1:
            plain[name] = plain[name].map(str, na_action="ignore")
    with atomic(path.with_name(f"{path.name}.parquet"), "wb") as file:
        plain.to_parquet(file, index=False)


def _csv(frame: pd.DataFrame, numbers: str | None = None) -> str:
    """Lists are written with spaces between."""
    listed = [name for name in frame if any(isinstance(v, tuple | list) for v in frame[name])]
    for name in listed:
        frame = frame.assign(**{name: frame[name].map(lambda values: " ".join(map(str, values)))})
    frame = guarded(frame)
    return str(frame.to_csv(index=False, lineterminator="\n", float_format=numbers))


def page(report: Report, *, small: bool = False) -> str:
    """One HTML page; self-contained, unless it shall be small."""
    from radial.study.report.charts import hover_lines

    return draw(
        brand="radial study",
        name=report.name,
        datasets=report.datasets,
        sentences=summary(report),
        key_figures=key_figures(report),
        sections=sections(report),
        tables=report.tables(),
        hover=hover_lines(report.runs, report.settings),
        facts=report.facts,
        notes=report.analysis.notes,
        study=report.study,
        small=small,
    )


def draw(
    *,
    sections: Sequence[Section],
    tables: Mapping[str, pd.DataFrame],
    hover: Sequence[str],
    small: bool,
    **said: Any,
) -> str:
    """A page of sections, in the one frame.

    Args:
        sections: of the page.
        tables: to be had as CSV.
        hover: what is said of each run on hovering.
        small: leave plotly.js to its CDN.
        said: what else templates/report.html names.
    """
    texts = _embedded(tables)
    figures = {
        f"{section.key}-{i}-{j}": figure
        for section in sections
        for i, block in enumerate(section.blocks)
        for j, figure in enumerate(block.figures)
    }
    return render(
        Path(__file__).with_name("templates") / "report.html",
        sections=sections,
        inside=list(texts),
        material=json_in_page({"figures": figures, "tables": texts, "hover": hover}),
        plotly=plotly_script(small=small),
        elsewhere=f" {CDN}" if small else "",
        shade=_shade,
        share=_share,
        shapes=SHAPES,
        **said,
    )


def _embedded(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Tables as CSV that fit into the page: the smallest first, as many as there is room for."""
    texts = {name: _csv(frame, "%.8g") for name, frame in tables.items()}
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


def markdown_of(report: Report) -> str:
    """The same sentences and tables, for an appendix or an issue."""
    lines = [f"# {escape(report.name)}", "", *_bullets(summary(report))]
    lines += ["Intervals are of 95 %. “Not decided”: the interval contains 0.", ""]
    for section in sections(report):
        lines += _section(section, len(report.datasets) > 1)
    lines += ["## What it rests on", ""]
    for title, facts in report.facts.items():
        if facts:
            lines += [f"**{escape(title)}**", "", *_bullets(f"{k}: {v}" for k, v in facts)]
    if report.analysis.notes:
        lines += ["**What could not be computed**", "", *_bullets(report.analysis.notes)]
    if report.study:
        lines += ["```yaml", report.study.rstrip().replace("```", "'''"), "```", ""]
    return "\n".join(lines)


def _section(section: Section, several: bool) -> Iterator[str]:
    told = any(block.sheets or block.sentences for block in section.blocks)
    if not told and not section.missing:
        return  # only a figure
    yield from (f"## {escape(section.title)}", "")
    if section.lead:
        yield from (escape(section.lead), "")
    for block in section.blocks:
        if block.data and several:
            yield from (f"### {escape(block.data)}", "")
        if block.sentences:
            yield from _bullets(block.sentences)
        for sheet in block.sheets:
            if sheet.fold:
                yield from (f"**{escape(sheet.fold)}**", "")
            yield from _table(sheet)
            if sheet.note:
                yield from (escape(sheet.note), "")
    for why in section.missing:
        yield from (f"*{escape(why)}*", "")


def _table(sheet: Sheet) -> Iterator[str]:
    """A pipe table; a column for the groups where they have headings."""
    named = any(group.heading for group in sheet.groups)
    heads = [escape(f"{column.over} {column.text}".strip()) for column in sheet.columns]
    marks = ["---:" if column.numeric else ":---" for column in sheet.columns]
    yield _line([*([""] if named else []), *heads])
    yield _line([*([":---"] if named else []), *marks])
    rows = [(group.heading, row) for group in sheet.groups for row in group.rows]
    for heading, row in rows[:MOST_ROWS]:
        yield _line([*([escape(heading)] if named else []), *map(_cell, row)])
    if len(rows) > MOST_ROWS:
        yield from ("", f"{len(rows) - MOST_ROWS} more rows are in {sheet.name}.csv.")
    yield ""


def _cell(cell: Cell) -> str:
    shown = escape(cell.text)
    shown = f"**{shown}**" if cell.bold and shown else shown
    return f"{shown} {escape(cell.note)}".strip()


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _bullets(sentences: Iterable[str]) -> list[str]:
    return [*(f"- {escape(sentence)}" for sentence in sentences), ""]


def escape(text: str) -> str:
    """Text that Markdown shows as it is written, on one line.

    >>> escape("a|b_c*d <e>")
    'a\\\\|b\\\\_c\\\\*d &lt;e>'
    """
    text = " ".join(text.split()).replace("\\", "\\\\")
    for mark in "|_*`[":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("<", "&lt;")
