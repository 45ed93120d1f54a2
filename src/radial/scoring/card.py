"""A report card: everything that is known about one target, as data. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.metrics.registry import HEADLINES, SCORES, layers_of, parse, quality
from radial.verdicts import DEAD_KERNELS, NOT_MEASURED, OK, UNTRAINED

if TYPE_CHECKING:
    from radial.metrics.scores import Score
    from radial.scoring.plots import Figures

PACKAGES = ("radial-ssl", "torch", "torchvision", "scikit-learn")
RANKED = (OK, DEAD_KERNELS, UNTRAINED, NOT_MEASURED)


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

    Targets that are dead, collapsed or broken come last, whatever their score.
    """
    key = headline(cards, by)
    if len(cards) < 2:
        return list(cards), []
    if key is None:
        return list(cards), ["not ranked: no score that all targets have; --by chooses one"]

    def place(card: Card) -> tuple[bool, float]:
        score = card.score(key)
        assert score is not None
        sound = card.status in RANKED and math.isfinite(score.value)
        return (not sound, -quality(score.better, score.value) if sound else 0.0)

    order = sorted(cards, key=place)
    over = "kernels" if SCORES[parse(key)[0]].needs == "kernels" else "images"
    sentences = [f"ranked by {key}; intervals are over {over}, not over training seeds"]
    sound = [card for card in order if not place(card)[0]]
    for first, second in pairwise(sound):
        sentences.append(_sentence(first, second, key))
    sentences += [f"{card.target} is not ranked: {card.status}" for card in order if place(card)[0]]
    return order, sentences


def _sentence(first: Card, second: Card, key: str) -> str:
    from radial.metrics.scores import compare

    a, b = first.score(key), second.score(key)
    assert a is not None
    assert b is not None
    found = compare(a, b)
    names = f"{first.target} and {second.target}"
    if found.low is None or found.high is None:
        return f"{names}: no interval, so their order is not settled"
    span = f"{found.difference:.3g} ({found.low:.3g} to {found.high:.3g})"
    if not found.decided:
        return f"{names} are within noise: {span}"
    return f"{first.target} is ahead of {second.target} by {span}"
