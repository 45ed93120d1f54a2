"""The report as Markdown: the same sentences and tables, for an appendix or an issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from radial.study.report.blocks import Section
from radial.study.report.sections import sections
from radial.study.report.sheets import Cell, Sheet
from radial.study.report.summary import summary

if TYPE_CHECKING:
    from radial.study.report.write import Report

MOST_ROWS = 60  # of a table; the CSV has all


def markdown_of(report: Report) -> str:
    material = report.material
    lines = [f"# {escape(report.basis.name)}", ""]
    said = summary(material.runs, material.analysis, material.audit, report.basis.unfinished)
    lines += [f"- {escape(sentence)}" for sentence in said]
    lines += ["", "Intervals are of 95 %. “Not decided”: the interval contains 0.", ""]
    for section in sections(material):
        lines += _section(section, len(material.datasets) > 1)
    lines += ["## What it rests on", ""]
    for title, facts in report.basis.facts.items():
        if facts:
            lines += [f"**{escape(title)}**", ""]
            lines += [f"- {escape(key)}: {escape(value)}" for key, value in facts] + [""]
    if material.analysis.notes:
        lines += ["**What could not be computed**", ""]
        lines += [f"- {escape(note)}" for note in material.analysis.notes] + [""]
    if report.basis.study:
        lines += ["```yaml", report.basis.study.rstrip().replace("```", "'''"), "```", ""]
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
            yield from (f"- {escape(sentence)}" for sentence in block.sentences)
            yield ""
        for sheet in block.sheets:
            if sheet.fold:
                yield from (f"**{escape(sheet.fold)}**", "")
            yield from table(sheet)
            if sheet.note:
                yield from (escape(sheet.note), "")
    for why in section.missing:
        yield from (f"*{escape(why)}*", "")


def table(sheet: Sheet) -> Iterator[str]:
    """A pipe table; a column for the groups where they have headings."""
    named = any(group.heading for group in sheet.groups)
    over = [words for words, span in sheet.over for _ in range(span)] or [""] * len(sheet.columns)
    heads = [f"{above} {column.text}".strip() for above, column in zip(over, sheet.columns)]
    marks = ["---:" if column.numeric else ":---" for column in sheet.columns]
    yield _line([*([""] if named else []), *map(escape, heads)])
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


def escape(text: str) -> str:
    """Text that Markdown shows as it is written, on one line.

    >>> escape("a|b_c*d <e>")
    'a\\\\|b\\\\_c\\\\*d &lt;e>'
    """
    text = " ".join(text.split()).replace("\\", "\\\\")
    for mark in "|_*`[":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("<", "&lt;")
