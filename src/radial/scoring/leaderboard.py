"""Which target is best, what kind of comparison that is, and what the findings say of it. No torch.

What was confirmed stands in confirmed.json, which studies/findings.py writes from the findings'
results; nothing is repeated here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.metrics.registry import ARROWS, HEADLINES, SCORES, layers_of, parse, quality
from radial.presentation import listed, several, short_number
from radial.scoring.card import RANKED, Card, short_names

if TYPE_CHECKING:
    from radial.metrics.scores import Comparison, Score

ONE_RUN, ONE_METHOD = "checkpoints of one run", "runs of one method"
METHODS, ARCHITECTURES = "across methods", "across architectures"
SUPERVISED = "with supervised networks"
KINDS = (ONE_RUN, ONE_METHOD, METHODS, ARCHITECTURES, SUPERVISED)
SIGNIFICANT = 0.05  # Holm's p over all scores
STANDINGS = {  # of a score, by the findings; in the order in which they are shown
    "supported": "ranks runs of one method, by the findings",
    "untested": "not tested by the findings",
    "unsupported": "does not rank runs of one method, by the findings",
}


@cache
def confirmed() -> Mapping[str, Any]:
    """For each kind of comparison what was found, or None where nothing tested it."""
    text = Path(__file__).with_name("confirmed.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def standing(key: str, kind: str = ONE_METHOD) -> str:
    """What the findings say of a score in one kind of comparison: a key of STANDINGS.

    >>> standing("view_retrieval@backbone"), standing("rankme@projector")
    ('supported', 'unsupported')
    """
    found = _found(key, kind)
    if found is None:
        return "untested"
    significant = found.get("p_holm") is None or found["p_holm"] < SIGNIFICANT
    return "supported" if found["low"] > 0 and significant else "unsupported"


def weak(key: str, method: str | None) -> float | None:
    """ρ of a score with accuracy for a method whose runs it ranks poorly, by the findings.

    >>> weak("view_retrieval@backbone", "moco") is None
    True
    """
    found = _found(key, ONE_METHOD)
    rho: float | None = (found or {}).get("weak", {}).get(method)
    return rho


def hints(key: str, methods: Sequence[str]) -> list[str]:
    """Why a choice among runs of these methods by a score is only a hint; a sentence each.

    >>> hints("view_retrieval@backbone", ["moco"])
    []
    """
    found, said = _found(key, ONE_METHOD), []
    if found is not None and standing(key) == "unsupported":
        said.append(f"does not rank runs of one method ({_figures(found)})")
    said += [f"orders their runs of {method} poorly (ρ {rho:.2f})"
             for method in methods if (rho := weak(key, method)) is not None]  # fmt: skip
    return [f"By the findings {key} {what}: take the choice as a hint." for what in said]


def _found(key: str, kind: str) -> Mapping[str, Any] | None:
    tested = confirmed().get(kind)
    return None if tested is None else tested["scores"].get(key)


def kinds(cards: Sequence[Card]) -> tuple[str, ...]:
    """Of what kinds a comparison of these is: one of the first two, or all of the rest that hold.

    What is not known of a target, its method above all, may differ: it counts as another.
    """
    methods = {card.method for card in cards}
    mixed = []
    if len(methods) > 1 or None in methods:
        mixed.append(METHODS)
    if len({card.backbone for card in cards}) > 1 or any(c.kind == "embeddings" for c in cards):
        mixed.append(ARCHITECTURES)
    if any(card.supervised for card in cards):
        mixed.append(SUPERVISED)
    if mixed:
        return tuple(mixed)
    one = len({card.run for card in cards}) == 1 and cards[0].run is not None
    return (ONE_RUN,) if one else (ONE_METHOD,)


def judgement(cards: Sequence[Card], key: str) -> tuple[bool, str]:
    """Whether the findings confirm a comparison of these by a score, and one line that says so."""
    found = kinds(cards)
    unknown = None in {card.method for card in cards}  # it may have seen labels
    words = listed([*found]) + " (how some were trained is not known)" * unknown
    told = {kind: standing(key, kind) for kind in found}
    against = [kind for kind, word in told.items() if word == "unsupported"]
    if against and (tested := _found(key, against[0])) is not None:
        return False, f"{words}: by the findings {key} does not rank these: {_figures(tested)}"
    tested = _found(key, found[0])
    if not unknown and set(told.values()) == {"supported"} and tested is not None:
        of = _of(tested, found[0])
        alone = weak(key, cards[0].method) if found == (ONE_METHOD,) else None
        if alone is not None:
            return False, (
                f"{words}: by the findings {_figures(tested)} over {of}, but {alone:.2f} "
                f"for those of {cards[0].method}; take the order as a hint"
            )
        return True, f"{words}: supported by the findings, {_figures(tested)} over {of}"
    known = [kind for kind in KINDS if standing(key, kind) == "supported"]
    only = f"of {key} supported: {listed(known)}" if known else f"of {key} nothing is"
    return False, f"{words}: not supported by the findings ({only}); take the order as a hint"


def _of(found: Mapping[str, Any], kind: str) -> str:
    """What a score was tested on in one kind of comparison: 164 runs of 9 methods."""
    one, group = {ONE_RUN: ("checkpoint", "run"), ARCHITECTURES: ("run", "architecture")}.get(
        kind, ("run", "method")
    )
    source = confirmed()[kind]
    runs, groups = found.get("runs", source["runs"]), found.get("groups", len(source["groups"]))
    return f"{several(runs, one)} of {several(groups, group)}"


def _figures(found: Mapping[str, Any]) -> str:
    return f"{found['measure']} {found['value']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One row: a target, and where it stands."""

    card: Card
    name: str  # the shortest that tells targets apart
    rank: int | None  # None for the floor and for what is not ranked
    score: Score | None
    behind: Comparison | None = None  # by how much the best is better
    why: str = ""  # it has no rank

    @property
    def mark(self) -> str:
        return str(self.rank) if self.rank else "floor" if self.card.is_floor else "–"


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Targets, best first, then the floor, then those that are not ranked."""

    key: str | None  # of the score they are ranked by
    places: tuple[Place, ...]
    answer: str  # best: X; not told apart from Y
    confirmed: bool = False  # this kind of comparison, by this score
    comparison: str = ""  # in one line
    basis: str = ""  # what the score was read from

    @property
    def best(self) -> Card | None:
        """None where no target is ranked."""
        return next((place.card for place in self.places if place.rank == 1), None)

    @property
    def cards(self) -> list[Card]:
        return [place.card for place in self.places]

    @property
    def tied(self) -> list[str]:
        """What is not told apart from the best."""
        return [p.name for p in self.places if p.rank and p.rank > 1 and not _decided(p.behind)]

    @property
    def sentences(self) -> list[str]:
        """All that may be said of the order, one line each."""
        unranked = [f"{p.name}: not ranked: {p.why}" for p in self.places if p.why]
        return [*filter(None, [self.answer, self.comparison, self.basis]), *unranked]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""

        def place(one: Place) -> dict[str, Any]:
            told = one.behind
            gap = None if told is None else [told.difference, told.low, told.high]
            facts = {"rank": one.rank, "target": one.card.target, "name": one.name}
            return facts | {"behind": gap, "floor": one.card.is_floor, "why": one.why}

        return {
            "by": self.key,
            "best": None if self.best is None else self.best.target,
            "not_told_apart": self.tied,
            "confirmed": self.confirmed,
            "comparison": self.comparison,
            "places": [place(one) for one in self.places],
        }


def headline(cards: Sequence[Card], by: str | None = None) -> str | None:
    """The key of the score that targets are ranked by: ``by``, or the first that any has.

    A name without a layer means the first of its layers that all have, else that any has.
    """
    if by is None:
        known = (key for key in HEADLINES if any(_value(card, key) is not None for card in cards))
        return next(known, None)
    keys = [f"{parse(by)[0]}@{layer}" for layer in layers_of(by)]
    for enough in (all, any):
        for key in keys:
            if enough(card.score(key) is not None for card in cards):
                return key
    raise ValueError(f"no target has {' or '.join(keys)}: choose another --by")


def leaderboard(cards: Sequence[Card], by: str | None = None) -> Leaderboard:
    """The cards in their order, and what may be said of it.

    Targets that are dead, collapsed, broken or without the score come last, whatever else they
    have. A network without training is the floor: it stands behind those that were trained, and
    wins against none.
    """
    key, names = headline(cards, by), short_names([card.target for card in cards])
    pairs = list(zip(names, cards))

    def unranked(why: str, key: str | None = key) -> Leaderboard:
        places = tuple(
            Place(card=c, name=n, rank=None, score=c.score(key) if key else None) for n, c in pairs
        )
        return Leaderboard(key=key, places=places, answer=f"not ranked: {why}" if why else "")

    if key is None:
        return unranked("no score to rank by; --by chooses one" if len(cards) > 1 else "")
    galleries = list(dict.fromkeys(s.gallery for card in cards if (s := card.score(key))))
    if len(galleries) > 1:
        found = "; ".join(gallery or "unknown" for gallery in galleries)
        return unranked(f"{key} of different views or kernels does not compare: {found}")
    if any(s.better == "none" for card in cards if (s := card.score(key))):
        return unranked(f"{key} describes, it does not rank")
    basis = f"{key}, {ARROWS[SCORES[parse(key)[0]].better][1]}; {_intervals(key, galleries)}"
    contestants = sorted(
        ((n, c) for n, c in pairs if c.status in RANKED and _value(c, key) is not None),
        key=lambda pair: -quality(_score(pair[1], key).better, _score(pair[1], key).value),
    )
    floors = [(n, c) for n, c in pairs if c.is_floor and _value(c, key) is not None]
    rest = [pair for pair in pairs if pair not in contestants and pair not in floors]
    best = contestants[0][1] if contestants else None
    places = [
        Place(card=c, name=n, rank=rank, score=c.score(key), behind=_behind(best, c, key))
        for rank, (n, c) in enumerate(contestants, 1)
    ]
    places += [
        Place(card=c, name=n, rank=None, score=c.score(key), behind=_behind(best, c, key))
        for n, c in floors
    ]
    places += [
        Place(card=c, name=n, rank=None, score=c.score(key), why=_why(c, key)) for n, c in rest
    ]
    shown = Leaderboard(key=key, places=tuple(places), answer="", basis=basis)
    if len(cards) < 2:
        return shown
    shown = replace(shown, answer=_answer(shown))
    if len(contestants) < 2:
        return shown
    sure, line = judgement([card for _, card in contestants], key)
    return replace(shown, confirmed=sure, comparison=line)


def _answer(board: Leaderboard) -> str:
    ranked = [place for place in board.places if place.rank]
    if not ranked:
        return "best: none of them is ranked"
    first, others = ranked[0], ranked[1:]
    text = f"best: {first.name}"
    if any(place.behind is None or place.behind.low is None for place in others):
        text += "; without intervals the order is not settled"
    elif board.tied:
        text += f"; not told apart from {listed(board.tied)}"
    elif others and others[0].behind is not None:
        text += f", ahead of {others[0].name} by {gap(others[0].behind)}"
    floors = [p.name for p in board.places if p.card.is_floor and not p.why]
    low = [p.name for p in board.places if p.name in floors and not _above(p.behind)]
    if low:
        text += f"; not above the floor, {listed(low)}"
    elif floors and not others:
        text += f", above the floor, {listed(floors)}"
    return text


def gap(told: Comparison | None) -> str:
    """0.0989 (0.0856 to 0.112)"""
    if told is None:
        return ""
    ends = "" if told.low is None or told.high is None else f" ({told.low:.3g} to {told.high:.3g})"
    return f"{told.difference:.3g}{ends}"


def _decided(told: Comparison | None) -> bool:
    return told is not None and told.decided


def _above(told: Comparison | None) -> bool:
    """Whether the best is better than this beyond doubt."""
    return told is not None and told.decided and told.difference > 0


def _behind(best: Card | None, card: Card, key: str) -> Comparison | None:
    from radial.metrics.scores import compare

    if best is None or card is best:
        return None
    return compare(_score(best, key), _score(card, key))


def _why(card: Card, key: str) -> str:
    if card.status not in RANKED and not card.is_floor:
        return f"{card.status}{': ' if card.reason else ''}{card.reason}"
    if card.score(key) is None:
        return f"it has no {key}"
    return f"its {key} is {short_number(_score(card, key).value)}"


def _intervals(key: str, galleries: Sequence[str]) -> str:
    over = "kernels" if SCORES[parse(key)[0]].needs == "kernels" else "images"
    of = f" ({galleries[0].partition(':')[0]})" if galleries and galleries[0] else ""
    return f"intervals are over {over}{of}, not over training seeds"


def _score(card: Card, key: str) -> Score:
    score = card.score(key)
    assert score is not None
    return score


def _value(card: Card, key: str) -> float | None:
    score = card.score(key)
    return score.value if score is not None and math.isfinite(score.value) else None
