"""Tables as they are read: cells with text, weight, shade and a value to sort by; numbers in print.

A sheet is drawn by the page (templates/report.html) and by markdown.py; the full figures stand in
the CSV of its frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from radial.presentation.formats import NOTHING, fixed, known, number

BASELINES = {
    "train_loss": "lowest training loss",
    "knn_1pct": "kNN with 1 % of the labels",
    "steps": "most steps",
    "random": "random pick",
}

LONG = {"f1": "F1", "accuracy": "Accuracy", "precision": "Precision", "recall": "Recall"}


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


@dataclass(frozen=True, kw_only=True)
class Column:
    text: str
    numeric: bool = True
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows under one heading; an empty heading is not drawn."""

    heading: str
    rows: tuple[tuple[Cell, ...], ...]
    last: bool = False  # the last row is a sum or mean of the others


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table; ``name`` is its file's, without .csv."""

    name: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    over: tuple[tuple[str, int], ...] = ()  # headings above the columns and how many they span
    note: str = ""
    fold: str = ""  # what to click on to see it; empty: it is open
    find: bool = False  # with a field to search in

    @property
    def rows(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    @property
    def heat(self) -> bool:
        return any(c.shade is not None for group in self.groups for row in group.rows for c in row)

    @property
    def sortable(self) -> bool:
        return len(self.groups) == 1 and self.rows > 3 and not self.groups[0].last


def flat(
    name: str, columns: Sequence[Column | str], rows: Sequence[Sequence[Cell]], **facts: Any
) -> Sheet:
    """A sheet of one group; columns given by name only are of text where they come first."""
    heads = tuple(
        Column(text=c, numeric=i > 0) if isinstance(c, str) else c for i, c in enumerate(columns)
    )
    return Sheet(
        name=name,
        columns=heads,
        groups=(Group(heading="", rows=tuple(map(tuple, rows))),),
        **facts,
    )


def grouped(
    name: str,
    columns: Sequence[Column | str],
    rows: dict[str, list[list[Cell]]],
    *,
    last: bool = False,
    **facts: Any,
) -> Sheet:
    """A group a dataset, headed by its name where there are several."""
    groups = tuple(
        Group(heading=key if len(rows) > 1 else "", rows=tuple(map(tuple, part)), last=last)
        for key, part in rows.items()
    )
    return Sheet(name=name, columns=flat(name, columns, ()).columns, groups=groups, **facts)


def score_label(name: str) -> tuple[str, str]:
    """Name and layer of a score; a baseline's is written out."""
    if name in BASELINES:
        return BASELINES[name], "baseline"
    score, _, layer = name.partition("@")
    return score, layer


def text(value: Any, **facts: Any) -> Cell:
    return Cell(text=str(value), **facts)


def count(value: Any) -> Cell:
    return Cell(text=f"{int(value):,}" if value else NOTHING, sort=float(value))


def percent(value: Any, **facts: Any) -> Cell:
    """A fraction in percent."""
    return Cell(text=fixed(100 * value) if known(value) else NOTHING, sort=value, **facts)


def points(value: Any, **facts: Any) -> Cell:
    """A difference of fractions in percentage points, with its sign."""
    shown = fixed(100 * value, sign=True) if known(value) else NOTHING
    return Cell(text=shown, sort=value, **facts)


def rho(value: Any, *, shaded: bool = False, **facts: Any) -> Cell:
    shade = float(value) if shaded and known(value) else None
    return Cell(text=fixed(value, 2, sign=True), sort=value, shade=shade, **facts)


def loss(value: Any) -> Cell:
    return Cell(text=number(value) if known(value) else NOTHING, sort=value)


def score(name: str) -> Cell:
    shown, layer = score_label(name)
    return Cell(text=shown, note=layer, sort=name, bold=layer == "baseline")
