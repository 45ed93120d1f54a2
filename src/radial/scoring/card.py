"""A report card: all that is known about one target, as data and in a terminal. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from radial.metrics.registry import ARROWS, HEADLINES, LAYERS, SCORES, layers_of, parse, quality
from radial.presentation import short_number, terminal_table
from radial.verdicts import DEAD_KERNELS, NOT_MEASURED, OK, UNTRAINED

if TYPE_CHECKING:
    from radial.metrics.scores import Score
    from radial.scoring.plots import Figures

PACKAGES = ("radial-ssl", "torch", "torchvision", "scikit-learn")
RANKED = (OK, DEAD_KERNELS, NOT_MEASURED)  # what may win
READ_FROM = {
    "kernels": "kernels alone",
    "nearest": "kernels and views",
    "activations": "kernels and views",
    "distances": "kernels and views",
    "features": "backbone, projector",
    "views": "views of both",
    "rotations": "turned images of both",
    "start_views": "views, now and at the start",
}
COLOURS = {
    "ok": "green",
    "untrained": "yellow",
    "dead kernels": "yellow",
    "not measured": "bright_black",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Card:
    target: str  # as the user named it
    kind: str  # run, checkpoint or model
    backbone: str
    method: str | None
    head: str | None
    status: str  # ok, dead head, dead kernels, collapsed, untrained, broken or "not measured"
    reason: str  # one line; empty where status is ok
    scores: tuple[Score, ...]
    warnings: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)  # what it was computed on
    versions: dict[str, str] = field(default_factory=dict)
    figures: Figures | None = None  # not part of the JSON, nor is the directory
    directory: Path | None = None  # of the run

    def score(self, key: str) -> Score | None:
        return next((score for score in self.scores if score.key == key), None)

    @property
    def is_floor(self) -> bool:
        """Whether it was never trained: what others must be above, no contestant."""
        return self.status == UNTRAINED

    def to_dict(self) -> dict[str, Any]:
        """For JSON: primitives only, null for what is not finite."""
        facts = {
            name: getattr(self, name)
            for name in ("target", "kind", "backbone", "method", "head", "status", "reason")
        }
        scores = [{k: _plain(v) for k, v in asdict(score).items()} for score in self.scores]
        rest = {"warnings": list(self.warnings), "data": self.data, "versions": self.versions}
        return facts | {"scores": scores} | rest


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def headline(cards: Sequence[Card], by: str | None = None) -> str | None:
    """The key of the score that targets are ranked by: ``by``, or the first that all have.

    A name without a layer means the first of its layers that all have.
    """
    if by is not None:
        keys = [f"{parse(by)[0]}@{layer}" for layer in layers_of(by)]
    else:
        keys = list(HEADLINES)
    shared = (key for key in keys if all(card.score(key) is not None for card in cards))
    found = next(shared, None)
    if by is not None and found is None:
        raise ValueError(f"not every target has {' or '.join(keys)}: choose another --by")
    return found


def ranking(cards: Sequence[Card], by: str | None = None) -> tuple[list[Card], list[str]]:
    """The cards, best first, and what may be said of their order, one sentence each.

    Targets that are dead, collapsed or broken come last, whatever their score. A network without
    training is the floor: it stands behind those that were trained, and wins against none.
    """
    key = headline(cards, by)
    if len(cards) < 2:
        return list(cards), []
    if key is None:
        return list(cards), ["not ranked: no score that all targets have; --by chooses one"]
    galleries = dict.fromkeys(_score(card, key).gallery for card in cards)
    if len(galleries) > 1:
        found = "; ".join(gallery or "unknown" for gallery in galleries)
        return list(cards), [f"not ranked: {key} of different views does not compare: {found}"]

    def group(card: Card) -> int:  # contestants, the floor, what is not ranked
        if not math.isfinite(_score(card, key).value):
            return 2
        return 0 if card.status in RANKED else 1 if card.is_floor else 2

    def place(card: Card) -> tuple[int, float]:
        score = _score(card, key)
        return group(card), -quality(score.better, score.value) if group(card) < 2 else 0.0

    order = sorted(cards, key=place)
    contestants, floors, rest = ([card for card in order if group(card) == i] for i in range(3))
    over = "kernels" if SCORES[parse(key)[0]].needs == "kernels" else "images"
    sentences = [f"ranked by {key}; intervals are over {over}, not over training seeds"]
    sentences += [_sentence(first, second, key) for first, second in pairwise(contestants)]
    sentences += [_floor_sentence(floor, contestants, key) for floor in floors]
    sentences += [f"{card.target} is not ranked: {card.status}" for card in rest]
    return order, sentences


def _score(card: Card, key: str) -> Score:
    score = card.score(key)
    assert score is not None
    return score


def _sentence(first: Card, second: Card, key: str) -> str:
    from radial.metrics.scores import compare

    found = compare(_score(first, key), _score(second, key))
    names = f"{first.target} and {second.target}"
    if found.low is None or found.high is None:
        return f"{names}: no interval, so their order is not settled"
    span = f"{found.difference:.3g} ({found.low:.3g} to {found.high:.3g})"
    if not found.decided:
        return f"{names} are within noise: {span}"
    return f"{first.target} is ahead of {second.target} by {span}"


def _floor_sentence(floor: Card, contestants: Sequence[Card], key: str) -> str:
    from radial.metrics.scores import compare

    low = _score(floor, key)
    found = [(card, compare(_score(card, key), low)) for card in contestants]
    beside = [card.target for card, one in found if not (one.decided and one.difference > 0)]
    told = f"; not told apart from it, or below: {', '.join(beside)}" if beside else ""
    return f"{floor.target} is the floor, random weights: {short_number(low.value)}{told}"


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
    names = short_names([card.target for card in cards])
    marked = [f"{name} (floor)" if card.is_floor else name for name, card in zip(names, cards)]
    table = terminal_table(("score", ""), (*marked, "n"))
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
