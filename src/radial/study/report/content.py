"""What a report is made of: sections of blocks, each with figures, sentences and sheets of cells.

The page (templates/report.html) and the Markdown (write.py) are drawn from these alone. A sheet is
a table as it is read; the full figures stand in the CSV of its frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from radial import presentation
from radial.presentation import NOTHING, fixed, known, number, plain

BASELINES = {
    "train_loss": "lowest training loss",
    "knn_1pct": "kNN with 1 % of the labels",
    "logistic_1pct": "logistic regression with 1 % of the labels",
    "logistic_10pct": "logistic regression with 10 % of the labels",
    "steps": "most steps",
    "random": "random pick",
}
Row = Mapping[str, Any]
Figure = dict[str, Any]  # a Plotly description: {"data": …, "layout": …}, plain lists of numbers


@dataclass(frozen=True, kw_only=True)
class Cell:
    text: str
    note: str = ""  # small, beside or below
    sort: float | str | None = None  # by default the text
    bold: bool = False
    chip: str = ""  # good, bad, warn or mute
    colour: str = ""  # of a dot before the text
    shade: float | None = None  # −1 to 1
    whisker: tuple[float, float, float] | None = None  # low, value, high, each of −1 to 1
    title: str = ""

    @property
    def key(self) -> str:
        """What it is sorted by; empty where there is nothing."""
        if self.sort is None:
            return self.text
        if isinstance(self.sort, str):
            return self.sort
        return f"{self.sort:.10g}" if math.isfinite(self.sort) else ""


@dataclass(frozen=True)
class Column:
    """A column of a sheet: its heading, and what makes a cell of the value under ``key``."""

    text: str
    make: Callable[[Any], Cell]
    key: str = ""  # empty: the whole row
    numeric: bool = True
    title: str = ""
    over: str = ""  # a heading above this column and its neighbours

    def cell(self, row: Row) -> Cell:
        return self.make(row.get(self.key) if self.key else row)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows under one heading; an empty heading is not drawn."""

    heading: str
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table; ``name`` is its file's, without .csv."""

    name: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    last: bool = False  # the last row of a group is a sum or mean of the others
    note: str = ""
    fold: str = ""  # what to click on to see it; empty: it is open
    find: bool = False  # with a field to search in

    @property
    def rows(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    @property
    def over(self) -> list[tuple[str, int]]:
        """Headings above the columns, and how many each spans; empty where there are none."""
        spans = [(text, len(list(part))) for text, part in groupby(c.over for c in self.columns)]
        return spans if any(text for text, _ in spans) else []

    @property
    def heat(self) -> bool:
        return any(c.shade is not None for group in self.groups for row in group.rows for c in row)

    @property
    def sortable(self) -> bool:
        return len(self.groups) == 1 and self.rows > 3 and not self.last


def sheet(
    name: str, rows: Iterable[Row], columns: Sequence[Column], by: str = "", **facts: Any
) -> Sheet:
    """Rows as cells; grouped ``by`` a key, headed by its values where there are several."""
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for row in rows:
        cells = tuple(column.cell(row) for column in columns)
        groups.setdefault(str(row[by]) if by else "", []).append(cells)
    several = len(groups) > 1
    made = tuple(Group(heading=k if several else "", rows=tuple(v)) for k, v in groups.items())
    return Sheet(name=name, columns=tuple(columns), groups=made, **facts)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Part of a section, of one dataset or of all; figures and sheets may stand side by side."""

    data: str = ""
    figures: tuple[Figure, ...] = ()  # several are panels of one, each with its "title"
    label: str = ""  # of the figures, for those who do not see them
    legend: tuple[tuple[str, str, str], ...] = ()  # symbol or colour, what, words
    caption: str = ""
    sentences: tuple[str, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    beside: bool = False

    @property
    def choices(self) -> list[Mapping[str, Any]]:
        """What can be chosen to be drawn, in any of the figures; each has name, label, group."""
        found = [choice for figure in self.figures for choice in figure.get("choices", ())]
        return list({choice["name"]: choice for choice in found}.values())


@dataclass(frozen=True, kw_only=True)
class Section:
    key: str
    title: str
    short: str  # in the navigation
    lead: str = ""
    blocks: tuple[Block, ...] = ()
    missing: tuple[str, ...] = ()  # why there is nothing, or not all


def text(value: Any, **facts: Any) -> Cell:
    return Cell(text=str(value), **facts)


def ready(cell: Cell | None) -> Cell:
    """A cell that a row already holds."""
    return cell or Cell(text=NOTHING)


def count(value: Any, **facts: Any) -> Cell:
    return Cell(text=f"{int(value):,}" if value else NOTHING, sort=float(value), **facts)


def percent(value: Any, **facts: Any) -> Cell:
    """A fraction in percent."""
    return Cell(text=presentation.percent(value), sort=value, **facts)


def change(value: Any, **facts: Any) -> Cell:
    """A difference of fractions in percentage points, with its sign."""
    shown = fixed(100 * value, sign=True) if known(value) else NOTHING
    return Cell(text=shown, sort=value, **facts)


def rho(value: Any, **facts: Any) -> Cell:
    return Cell(text=fixed(value, 2, sign=True), sort=_order(value), **facts)


def shaded_rho(value: Any, **facts: Any) -> Cell:
    return rho(value, shade=float(value) if known(value) else None, **facts)


def p_cell(p: Any) -> Cell:
    return Cell(text=presentation.p_value(p), sort=_order(p))


def any_number(value: Any) -> Cell:
    """A number of any size, such as a loss."""
    return Cell(text=number(value), sort=_order(value))


def setting(value: Any) -> Cell:
    shown = plain(value)
    return Cell(text=shown, sort=float(value) if known(value) else shown.strip(NOTHING))


def _order(value: Any) -> float | str:
    return float(value) if known(value) else ""


def score_label(name: str) -> tuple[str, str]:
    """Name and layer of a score; a baseline's is written out."""
    if name in BASELINES:
        return BASELINES[name], "baseline"
    score, _, layer = name.partition("@")
    return score, layer


def score(name: str, *, note: str = "", title: str = "") -> Cell:
    shown, layer = score_label(name)
    return Cell(text=shown, note=f"{layer} {note}".strip(), sort=name, title=title,
                bold=layer == "baseline")  # fmt: skip
