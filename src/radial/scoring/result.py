"""What `radial.score` returns: the answer first, all else after it. No torch."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from rich.console import Console
from rich.table import Table

from radial.metrics.registry import ARROWS
from radial.presentation import terminal_table
from radial.scoring.card import COLOURS, Card, cell, footnotes, short_names, widened
from radial.scoring.leaderboard import STANDINGS, Leaderboard, gap, leaderboard, standing

if TYPE_CHECKING:
    import pandas as pd


class Result(Sequence[Card]):
    """The cards of one call, in the order in which their targets were given.

    Args:
        cards: one a target, measured on the same images.
        by: the score to rank by; by default the first of those the findings declare.

    Example:
        >>> from radial.scoring.card import Card
        >>> facts = {"kind": "run", "method": None, "head": None, "status": "ok", "reason": ""}
        >>> result = Result([Card(target="a", backbone="resnet9", scores=(), **facts)])
        >>> len(result), result.best
        (1, None)
    """

    def __init__(self, cards: Sequence[Card], by: str | None = None) -> None:
        self.cards = tuple(cards)
        self.board: Leaderboard = leaderboard(self.cards, by)

    @property
    def best(self) -> Card | None:
        """The card that ranks first; None where none is ranked. Its ``target`` is the name."""
        return self.board.best

    def __len__(self) -> int:
        return len(self.cards)

    def __iter__(self) -> Iterator[Card]:
        return iter(self.cards)

    @overload
    def __getitem__(self, index: int | str) -> Card: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Card]: ...
    def __getitem__(self, index: int | str | slice) -> Card | Sequence[Card]:
        """By place in the order given, or by the name of the target."""
        if isinstance(index, str):
            found = next((card for card in self.cards if card.target == index), None)
            if found is None:
                known = ", ".join(repr(card.target) for card in self.cards)
                raise KeyError(f"no target {index!r}; there are {known}")
            return found
        return self.cards[index]

    def to_pandas(self) -> pd.DataFrame:
        """A row a target, best first: rank, name, verdict, and each score with its interval."""
        import pandas as pd

        rows = []
        for place in self.board.places:
            card = place.card
            row: dict[str, Any] = {"rank": place.rank, "target": card.target}
            row |= {name: getattr(card, name) for name in ("status", "reason", "backbone")}
            row |= {"method": card.method, "head": card.head, "floor": card.is_floor}
            for score in card.scores:
                row |= {
                    score.key: score.value,
                    f"{score.key}_low": score.low,
                    f"{score.key}_high": score.high,
                }
            rows.append(row)
        return pd.DataFrame(rows).astype({"rank": "Int64"})

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the leaderboard, what it says in sentences, and the cards, best first."""
        return {
            "leaderboard": self.board.to_dict(),
            "ranking": self.board.sentences,
            "cards": [card.to_dict() for card in self.board.cards],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text; written to ``path`` as well, where one is given."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
        return written(text, path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page; written to ``path`` as well, where one is given.

        Spectra, neighbours and kernels are on it where ``figures`` were asked for.
        """
        from radial.scoring.page import page

        return written(page(self), path)

    def show(self, console: Console | None = None, *, every: bool = False) -> None:
        """Print the leaderboard; with ``every`` all scores below it."""
        show(self, console or Console(), every=every)

    def __str__(self) -> str:
        file = io.StringIO()
        self.show(Console(file=file, width=100))
        return file.getvalue().rstrip()

    def __repr__(self) -> str:
        return f"<Result of {len(self)}: {self.board.answer or self.cards[0].status}>"

    def _repr_html_(self) -> str:
        """The leaderboard, for notebooks."""
        from radial.scoring.page import fragment

        return fragment(self)


def written(text: str, path: str | Path | None) -> str:
    """The text, also in a file where one is named."""
    if path is not None:
        from radial.files import write_atomically

        write_atomically(path, text)
    return text


def show(result: Result, console: Console, *, every: bool = False) -> None:
    """The leaderboard and its answer; what speaks against it; then the other scores, if asked."""
    board = result.board
    table = _leaderboard_table(board)
    scores = _score_table(board.cards) if every else None
    console = widened(widened(console, table), scores) if scores else widened(console, table)

    def say(line: str, **options: Any) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False, **options)

    console.print(table)
    if board.answer:
        say(board.answer, style="bold")
    if board.comparison:
        say(board.comparison, style=None if board.confirmed else "yellow")
    if board.basis:
        say(board.basis, style="bright_black")
    for place in board.places:
        if place.why:
            say(f"{place.name}: not ranked: {place.why}")
        elif place.card.reason and not place.card.is_floor:
            say(f"{place.name}: {place.card.status}: {place.card.reason}")
    if scores is not None:
        console.print(scores, markup=False)
    shown = board.cards if every else [_only(card, board.key) for card in board.cards]
    for line in footnotes(shown):
        say(line)
    if not every and len(board.places) > 1:
        say("all scores: --all", style="bright_black")


def _only(card: Card, key: str | None) -> Card:
    from dataclasses import replace

    return replace(card, scores=tuple(score for score in card.scores if score.key == key))


def _leaderboard_table(board: Leaderboard) -> Table:
    from rich.text import Text

    title = board.key or "score"
    better = next((ARROWS[p.score.better][0] for p in board.places if p.score), "")
    several = len(board.places) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    if several:
        table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    table.add_column(f"{title} {better}".strip(), justify="right", no_wrap=True)
    if several:
        table.add_column("behind the best", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("network", no_wrap=True)
    for place in board.places:
        card = place.card
        made = filter(None, [card.backbone, card.method, card.head and f"{card.head} head"])
        status = Text(card.status, style=COLOURS.get(card.status, "red"))
        middle = [gap(place.behind)] if several else []
        first = [place.mark] if several else []
        cells = [*first, place.name, cell(place.score), *middle]
        table.add_row(*map(Text, cells), status, Text(", ".join(made)))
    return table


def _score_table(cards: Sequence[Card]) -> Table:
    """One column a target, below what the findings say of the scores, the unsupported last."""
    names = short_names([card.target for card in cards])
    marked = [f"{name} (floor)" if card.is_floor else name for name, card in zip(names, cards)]
    table = terminal_table(("score", ""), (*marked, "n"))
    for title, keys in grouped(cards).items():
        table.add_row(STANDINGS[title], style="bold")
        for key in keys:
            found = [card.score(key) for card in cards]
            given = [score for score in found if score is not None]
            counts = "/".join(dict.fromkeys(str(score.samples) for score in given))
            table.add_row(f"  {key}", ARROWS[given[0].better][0], *map(cell, found), counts)
    return table


def grouped(cards: Sequence[Card]) -> dict[str, list[str]]:
    """The keys of all scores by their standing in the findings, within it by layer."""
    keys = dict.fromkeys(score.key for card in cards for score in card.scores)
    order = ("backbone", "projector", "kernels")
    ordered = sorted(keys, key=lambda key: order.index(_layer(key)) if _layer(key) in order else 9)
    found = {title: [key for key in ordered if standing(key) == title] for title in STANDINGS}
    return {title: keys for title, keys in found.items() if keys}


def _layer(key: str) -> str:
    return key.rpartition("@")[2]
