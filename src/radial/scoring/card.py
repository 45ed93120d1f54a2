"""A report card: everything that is known about one target, as data. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.metrics.registry import HEADLINES, SCORES, layers_of, parse, quality
from radial.presentation import short_number
from radial.verdicts import DEAD_KERNELS, NOT_MEASURED, OK, UNTRAINED

if TYPE_CHECKING:
    from radial.metrics.scores import Score
    from radial.scoring.plots import Figures

PACKAGES = ("radial-ssl", "torch", "torchvision", "scikit-learn")
RANKED = (OK, DEAD_KERNELS, NOT_MEASURED)  # what may win


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
