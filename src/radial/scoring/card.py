"""A report card: all that is known about one target, as data and in a terminal. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from radial.metrics.registry import ARROWS, LAYERS, SCORES
from radial.presentation import short_number
from radial.verdicts import DEAD_KERNELS, NOT_MEASURED, OK, UNTRAINED

if TYPE_CHECKING:
    from radial.metrics.scores import Score
    from radial.scoring.figures import Figures

PACKAGES = ("radial-ssl", "torch", "torchvision", "scikit-learn")
RANKED = (OK, DEAD_KERNELS, NOT_MEASURED)  # what may win
READ_FROM = {
    "kernels": "kernels alone",
    "nearest": "kernels and views",
    "activations": "kernels and views",
    "distances": "kernels and views",
    "features": "backbone, projector",
    "views": "views of both",
    "recipes": "three kinds of views of both",
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
    supervised: bool = False  # trained with labels, as far as is known
    figures: Figures | None = None  # not part of the JSON, nor is what follows
    directory: Path | None = None  # of the run
    run: str | None = None  # the same for the checkpoints of one run

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


def cell(score: Score | None) -> str:
    """42.1 ± 0.3 *, the star for a warning."""
    if score is None:
        return ""
    text = short_number(score.value)
    if score.low is not None and score.high is not None:
        text += f" ± {(score.high - score.low) / 2:.2g}"
    return text + (" *" if score.warning else "")


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
    for name, card in zip(short_names([card.target for card in cards]), cards):
        for layer in LAYERS:
            scores = [score for score in card.scores if score.layer == layer]
            for score in scores:
                if score.warning:
                    shared = all(other.warning.endswith(score.warning) for other in scores)
                    subject = f"all of {name}'s {layer}" if shared else score.key
                    about.setdefault(score.warning, {})[subject] = None
    notes = [f"* {', '.join(keys)}: {warning}" for warning, keys in about.items()]
    said: dict[str, list[str]] = {}
    for name, card in zip(short_names([card.target for card in cards]), cards):
        for note in card.warnings:
            said.setdefault(note, []).append(name)
    return notes + [f"{', '.join(names)}: {note}" for note, names in said.items()]


def print_registry(console: Console | None = None) -> None:
    """What ``radial score --list`` shows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("score", "", "read from", "what it is"):
        table.add_column(name, overflow="fold")
    for info in SCORES.values():
        about = f"{info.description} ({info.settings}); {info.reference}"
        table.add_row(info.name, ARROWS[info.better][0], READ_FROM[info.needs], about)
    (console or Console()).print(table, markup=False)
