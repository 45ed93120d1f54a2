"""What a report is made of: sections of blocks, each with a figure, sentences and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import pandas as pd

from radial.study.analysis.analyse import Analysis
from radial.study.analysis.columns import SETTINGS
from radial.study.analysis.peaks import AVERAGE, POOLED
from radial.study.audit.rules import DEAD, Audit
from radial.study.report import drawing, figures
from radial.study.report.sheets import Cell, Sheet, text

T = TypeVar("T")
# Words of the notes that say why a section is empty, or not whole.
NOTES = {
    "heads": ("heads are not compared", "no pairs"),
    "importance": ("SHAP",),
    "scores": ("no scores", "no correlation", "not judged"),
    "regret": ("baseline",),
    "seeds": ("seed floor",),
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Part of a section, of one dataset or of all; figure and sheets may stand side by side."""

    data: str = ""
    figure: drawing.Figure | None = None
    label: str = ""  # of the figure, for those who do not see it
    legend: tuple[tuple[str, str, str], ...] = ()  # symbol or colour, what, words
    caption: str = ""
    sentences: tuple[str, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    beside: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    key: str
    title: str
    short: str  # in the navigation
    lead: str = ""
    blocks: tuple[Block, ...] = ()
    missing: tuple[str, ...] = ()  # why there is nothing, or not all


@dataclass(frozen=True, kw_only=True)
class Material:
    """All that a report is made of."""

    runs: pd.DataFrame
    better: Mapping[str, str]
    analysis: Analysis
    audit: Audit

    @cached_property
    def datasets(self) -> list[str]:
        return [str(name) for name in dict.fromkeys(self.runs["data"])]

    @cached_property
    def colour(self) -> dict[str, str]:
        return drawing.colours(self.runs["method"])

    @cached_property
    def settings(self) -> list[str]:
        """What differs between runs of one method, beside head and seed."""
        found = []
        for name in SETTINGS:
            if name in ("data", "method", "head", "seed") or name not in self.runs:
                continue
            used = self.runs[self.runs[name].notna()]
            values = used[name].map(str)
            pairs = set(zip(used["data"], used["method"], used["head"], values))
            if values.nunique() > 1 and len(pairs) > len({pair[:3] for pair in pairs}):
                found.append(name)
        return found

    @cached_property
    def hover(self) -> list[str]:
        return figures.hover_lines(self.runs, self.settings)

    @cached_property
    def dead(self) -> list[bool]:
        """For each row of the runs."""
        return self._of_audit(self.audit.flags[list(DEAD)].any(axis=1).tolist())

    @cached_property
    def flags(self) -> list[str]:
        return self._of_audit(self.audit.flags["flags"].tolist())

    def _of_audit(self, found: list[T]) -> list[T]:
        """The audit looks at final checkpoints: those on the way, RUN@EPOCH, have their run's."""
        by_run = dict(zip(self.audit.flags["run"].astype(str), found))
        return [by_run[str(run).partition("@")[0]] for run in self.runs["run"]]

    def of(self, frame: pd.DataFrame, data: str) -> pd.DataFrame:
        return frame[frame["data"] == data].reset_index(drop=True) if len(frame) else frame

    def notes(self, key: str) -> tuple[str, ...]:
        """The notes that belong to a section."""
        general = [
            note for note in self.analysis.notes if "no table" in note or "nothing to" in note
        ]
        found = [n for n in self.analysis.notes if any(word in n for word in NOTES.get(key, ()))]
        return tuple(dict.fromkeys([*general, *found]))


def method_cell(material: Material, name: str) -> Cell:
    if name in (AVERAGE, POOLED):
        return text({AVERAGE: "average", POOLED: "all methods"}[name], bold=True)
    return text(name, colour=material.colour[name], sort=name)
