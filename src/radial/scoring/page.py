"""Report cards as one HTML page that needs no network: table, spectra, kernels and their images.

What the page says stands in templates/page.html, which escapes all that it is given; here stands
what is compared, in plots.py what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.metrics.registry import ARROWS, SCORES
from radial.presentation import number, render
from radial.scoring.card import Card, cell
from radial.scoring.leaderboard import STANDINGS, Leaderboard, gap, standing
from radial.scoring.plots import (
    MAP_POINTS,
    card_colour,
    kernel_view,
    neighbour_views,
    plotly_packed,
    spectra_plot,
)
from radial.scoring.result import Result, grouped

if TYPE_CHECKING:
    from radial.metrics.scores import Score

PICTURES = 2_000_000  # bytes on a page, half for neighbours, half for kernels


def page(cards: Result | Sequence[Card]) -> str:
    """One self-contained HTML page, below 5 MB: the leaderboard, then all else.

    A value is bold where it is the best of its row, its target is ok, it carries no warning,
    and its interval overlaps no other's.
    """
    if not len(cards):
        raise ValueError("a page needs at least one card")
    result = cards if isinstance(cards, Result) else Result(cards)
    board, cards = result.board, result.board.cards
    rows = _table(cards)
    warnings = [score.warning for row in rows for score in row.given if score.warning]
    limit = min(MAP_POINTS, 3 * MAP_POINTS // len(cards))
    room = PICTURES // 2 // max(1, sum(bool(c.figures and c.figures.widths) for c in cards))
    drawn = any(card.figures for card in cards)
    return render(
        Path(__file__).with_name("templates") / "page.html",
        number=number,
        gap=gap,
        cards=cards,
        board=board,
        ranks=_ranks(board),
        names=[place.name for place in board.places],
        colours=[card_colour(card, i) for i, card in enumerate(cards)],
        groups={title: STANDINGS[title] for title in dict.fromkeys(row.standing for row in rows)},
        rows=rows,
        arrows=ARROWS,
        notes=list(dict.fromkeys(warnings)),
        registry=SCORES,
        plotly=plotly_packed() if drawn else None,
        spectra=spectra_plot(cards, [place.name for place in board.places]) if drawn else None,
        neighbours=neighbour_views(cards, PICTURES // 2),
        kernels=[kernel_view(card.figures, i, limit, room) for i, card in enumerate(cards)],
        facts={
            "Data": _facts([card.data for card in cards]),
            "Versions": _facts([card.versions for card in cards]),
        },
    )


def fragment(result: Result) -> str:
    """The leaderboard alone, for notebooks: no style of its own but widths."""
    board = result.board
    return render(
        Path(__file__).with_name("templates") / "fragment.html",
        board=board,
        cell=cell,
        gap=gap,
        arrow=next((ARROWS[p.score.better][0] for p in board.places if p.score), ""),
    )


def _ranks(board: Leaderboard) -> Row | None:
    """The row of the score that targets are ranked by, for the lines of the leaderboard."""
    if board.key is None:
        return None
    return next((row for row in _table(board.cards) if row.key == board.key), None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One score of one layer: a cell a target, None where the target has no such score."""

    layer: str
    name: str
    scores: tuple[Score | None, ...]
    best: Score | None
    low: float  # of all intervals
    high: float

    @property
    def key(self) -> str:
        return f"{self.name}@{self.layer}"

    @property
    def standing(self) -> str:
        """What the findings say of it."""
        return standing(self.key)

    @property
    def given(self) -> list[Score]:
        return [score for score in self.scores if score is not None]

    @property
    def alike(self) -> bool:
        """Whether all targets have the same N and settings."""
        return len({(score.samples, score.settings) for score in self.given}) == 1

    def percent(self, value: float) -> float:
        """Where a value lies between the lowest and highest end of the row's intervals."""
        return round(100.0 * (value - self.low) / ((self.high - self.low) or 1.0), 1)


def _table(cards: Sequence[Card]) -> list[Row]:
    rows = []
    for key in (key for keys in grouped(cards).values() for key in keys):
        name, _, layer = key.rpartition("@")
        scores = tuple(card.score(key) for card in cards)
        pairs = [(s, card) for s, card in zip(scores, cards) if s and math.isfinite(s.value)]
        ends = [x for s, _ in pairs for x in (s.low, s.value, s.high) if x is not None]
        ends = [x for x in ends if math.isfinite(x)] or [0.0]
        best = _best(pairs)
        low, high = min(ends), max(ends)
        rows.append(Row(layer=layer, name=name, scores=scores, best=best, low=low, high=high))
    return rows


def _best(pairs: list[tuple[Score, Card]]) -> Score | None:
    """The score that is better than all others beyond their intervals, if there is one."""
    if len(pairs) < 2 or pairs[0][0].better not in ("higher", "lower", "near 1"):
        return None
    if len({score.gallery for score, _ in pairs}) > 1:
        return None  # of other views, or of kernels fitted now beside trained ones
    (best, card), *rest = sorted(pairs, key=lambda pair: _cost(pair[0])[1])
    if card.status != "ok" or best.warning:
        return None
    others = [_cost(score)[0] for score, _ in rest]
    return best if _cost(best)[2] < min(others) else None


def _cost(score: Score) -> tuple[float, float, float]:
    """(least, middle, most) of what should be small; without an interval, least is −∞, most ∞."""
    low = -math.inf if score.low is None else score.low
    high = math.inf if score.high is None else score.high
    if score.better == "higher":
        return -high, -score.value, -low
    if score.better == "lower":
        return low, score.value, high
    return max(low - 1, 1 - high, 0.0), abs(score.value - 1), max(1 - low, high - 1)


def _facts(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """(name, a value a target) or, where all targets agree, (name, one value)."""
    if all(column == columns[0] for column in columns):
        columns = columns[:1]
    keys = dict.fromkeys(key for column in columns for key in column)
    return [(key.replace("_", " "), [_plain(c.get(key)) for c in columns]) for key in keys]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
