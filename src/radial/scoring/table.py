"""Cards and evaluations as files and as tables on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from radial.files import write_atomically
from radial.metrics.registry import ARROWS, LAYERS, SCORES
from radial.presentation import short_number
from radial.scoring.card import Card

if TYPE_CHECKING:
    from radial.metrics.scores import Score

READ_FROM = {
    "kernels": "kernels alone",
    "nearest": "kernels and views",
    "activations": "kernels and views",
    "distances": "kernels and views",
    "features": "backbone, projector",
    "views": "views of both",
}
COLOURS = {
    "ok": "green",
    "untrained": "yellow",
    "dead kernels": "yellow",
    "not measured": "bright_black",
}


def write_json(path: Path | str, values: Any) -> None:
    write_atomically(path, json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def cell(score: Score | None) -> str:
    """42.1 ± 0.3 *, the star for a warning."""
    if score is None:
        return ""
    text = short_number(score.value)
    if score.low is not None and score.high is not None:
        text += f" ± {(score.high - score.low) / 2:.2g}"
    return text + (" *" if score.warning else "")


def print_cards(cards: Sequence[Card], sentences: Sequence[str], console: Console) -> None:
    """Verdicts, one table with a column a target, warnings, and what the order is worth."""
    console = widened(console, _table(cards))

    def say(line: str, **options: Any) -> None:
        console.print(line, highlight=False, soft_wrap=True, **options)

    for card in cards:
        colour = COLOURS.get(card.status, "red")
        made = ", ".join(
            filter(None, [card.backbone, card.method, card.head and f"{card.head} head"])
        )
        say(f"{card.target} ({made}): ", end="", markup=False)
        say(f"[{colour}]{card.status}[/{colour}]", end="")
        say(f": {card.reason}" if card.reason else "", markup=False)
    console.print(_table(cards), markup=False)
    for line in footnotes(cards):
        say(line, markup=False)
    for line in sentences:
        say(line, markup=False)


def _table(cards: Sequence[Card]) -> Table:
    """Scores below their layer, one column a target, and how many images or kernels it was."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score", no_wrap=True)
    table.add_column("")
    names = short_names([card.target for card in cards])
    marked = [f"{name} (floor)" if card.is_floor else name for name, card in zip(names, cards)]
    for name in (*marked, "n"):
        table.add_column(name, justify="right", no_wrap=True)
    keys = dict.fromkeys((s.layer, s.name) for card in cards for s in card.scores)
    for layer in (layer for layer in LAYERS if layer in {layer for layer, _ in keys}):
        table.add_row(layer, style="bold")
        for name in (name for at, name in keys if at == layer):
            found = [card.score(f"{name}@{layer}") for card in cards]
            given = [score for score in found if score is not None]
            counts = "/".join(dict.fromkeys(str(score.samples) for score in given))
            table.add_row(f"  {name}", ARROWS[given[0].better][0], *map(cell, found), counts)
    return table


def widened(console: Console, table: Table) -> Console:
    """As wide as the table needs: a narrower terminal wraps lines, no cell is cut."""
    roomy = console.options.update(max_width=10_000)
    needed = Measurement.get(console, roomy, table).maximum
    return Console(file=console.file, width=max(console.width, needed))


def short_names(names: Sequence[str]) -> list[str]:
    """The shortest parts that tell targets apart: one part of their paths, else all that differ.

    >>> short_names(["runs/a/last.ckpt", "runs/b/last.ckpt", "timm:vit"])
    ['a', 'b', 'timm:vit']
    >>> short_names(["x/v0/logs/1.ckpt", "x/v0/logs/2.ckpt", "x/v1/logs/1.ckpt"])
    ['v0/…/1.ckpt', 'v0/…/2.ckpt', 'v1/…/1.ckpt']
    """
    paths = [name.rstrip("/").split("/")[::-1] for name in names]
    deepest = max(map(len, paths))
    for at in range(deepest):
        ends = [path[at] if at < len(path) else name for path, name in zip(paths, names)]
        if len(set(ends)) == len(set(names)) and all(ends):
            return ends
    differ = [at for at, parts in enumerate(zip_longest(*paths)) if len(set(parts)) > 1]
    labels = []
    for path in paths:
        shown = [part if at in differ else "…" for at, part in enumerate(path)]
        span = shown[differ[0] : differ[-1] + 1][::-1] if differ else []
        labels.append("/".join(part for part, _ in groupby(span)))
    return labels if len(set(labels)) == len(set(names)) else list(names)


def footnotes(cards: Sequence[Card]) -> list[str]:
    """Each warning once, with the scores it is about; a layer, where it is about all of them."""
    about: dict[str, dict[str, None]] = {}
    for card in cards:
        for layer in LAYERS:
            scores = [score for score in card.scores if score.layer == layer]
            for score in scores:
                if score.warning:
                    shared = all(other.warning.endswith(score.warning) for other in scores)
                    subject = f"all of {card.target}'s {layer}" if shared else score.key
                    about.setdefault(score.warning, {})[subject] = None
    notes = [f"* {', '.join(keys)}: {warning}" for warning, keys in about.items()]
    return notes + [f"{card.target}: {note}" for card in cards for note in card.warnings]


def print_registry(console: Console | None = None) -> None:
    """What ``radial score --list`` shows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("score", "", "read from", "what it is"):
        table.add_column(name, overflow="fold")
    for info in SCORES.values():
        about = f"{info.description} ({info.settings}); {info.reference}"
        table.add_row(info.name, ARROWS[info.better][0], READ_FROM[info.needs], about)
    (console or Console()).print(table, markup=False)
