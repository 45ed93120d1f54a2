"""Which images a balanced subset needs, as it becomes known which ones there are.

The rule: of each class, the first images in hash order that are not gone, as many as were
chosen; where a class has fewer, all classes have that many. It depends on what is gone, not on
the order in which that is found out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from radial.checks import DataError
from radial.open_images.manifest import Manifest, Row

UNKNOWN, GOOD, GONE = range(3)


@dataclass
class _Class:
    rows: list[Row]
    state: bytearray
    left: int  # rows that are not gone
    end: int = 0  # rows before it make up the class, as far as is known
    inside: int = 0  # of those, the ones that are not gone
    asked: set[int] = field(default_factory=set)


class Plan:
    """States of all rows, and which row is needed next.

    >>> rows = [Row(f"{i:016x}", "train", "/m/a", "a", i, "chosen", 0) for i in range(2)]
    >>> plan = Plan(Manifest(rows=tuple(rows)))
    >>> plan.next() == rows[0], plan.target
    (True, 2)
    >>> plan.gone(rows[0])
    >>> plan.next() == rows[1], plan.next(), plan.target
    (True, None, 1)
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.target = manifest.per_class
        if not self.target:
            raise DataError("a manifest without chosen images: there is nothing to fetch")
        self._classes: dict[str, _Class] = {}
        for name, rows in manifest.by_class().items():
            state = bytearray(GONE if row.role == "gone" else UNKNOWN for row in rows)
            self._classes[name] = _Class(rows, state, len(rows) - state.count(GONE))
        self._due: list[tuple[int, str]] = []
        self._settle()

    @property
    def total(self) -> int:
        return self.target * len(self._classes)

    @property
    def done(self) -> int:
        """Images of the subset, as far as it is known, that are there."""
        return sum(kind.state.count(GOOD, 0, kind.end) for kind in self._classes.values())

    @property
    def lost(self) -> int:
        """Images known to be gone."""
        return sum(kind.state.count(GONE) for kind in self._classes.values())

    @property
    def poorest(self) -> str:
        """The class with the fewest images left."""
        return min(self._classes, key=lambda name: self._classes[name].left)

    @property
    def limiting(self) -> str | None:
        """The class that ran out, where one did; of several, the first by name."""
        if self.target == self.manifest.per_class:
            return None
        return next(name for name, kind in self._classes.items() if kind.left == self.target)

    def good(self, row: Row) -> None:
        self._classes[row.class_name].state[row.rank] = GOOD

    def gone(self, row: Row) -> None:
        kind = self._classes[row.class_name]
        if kind.state[row.rank] == GONE:
            return
        kind.state[row.rank] = GONE
        kind.left -= 1
        kind.inside -= row.rank < kind.end
        if kind.left < self.target:
            self.target = kind.left
            self._settle()
        else:
            self._extend(kind)

    def next(self) -> Row | None:
        """A row that is needed and was not handed out yet; low ranks first."""
        while self._due:
            rank, name = heapq.heappop(self._due)
            kind = self._classes[name]
            needed = rank < kind.end and kind.state[rank] == UNKNOWN
            if needed and rank not in kind.asked:
                kind.asked.add(rank)
                return kind.rows[rank]
        return None

    def tie(self) -> Row | None:
        """When all else is known: a row that decides whether a class before `limiting` ran out too.

        Without it, which one is named would depend on the order of arrival.
        """
        if self.limiting is None:
            return None
        for kind in self._classes.values():
            if kind.left == self.target:
                return None
            if kind.state.find(GOOD, kind.end) < 0:
                return kind.rows[kind.state.index(UNKNOWN, kind.end)]
        return None

    def final_rows(self) -> Iterator[Row]:
        """All rows with their roles in the end.

        Within the subset they are chosen or gone, and so are all rows of the class that ran
        out. What follows is not needed: chosen before, it is cut now, whether it was fetched or
        not; a reserve stays one.
        """
        limiting = self.limiting
        for name, kind in self._classes.items():
            there = 0
            for row, state in zip(kind.rows, kind.state):
                if row.role == "gone" or there < self.target or name == limiting:
                    role = "chosen" if state == GOOD else "gone"
                    there += state == GOOD
                else:
                    role = "reserve" if row.role == "reserve" else "cut"
                yield row._replace(role=role)

    def _settle(self) -> None:
        for kind in self._classes.values():
            self.target = min(self.target, kind.left)
        for kind in self._classes.values():
            while kind.inside > self.target:
                kind.end -= 1
                kind.inside -= kind.state[kind.end] != GONE
            self._extend(kind)

    def _extend(self, kind: _Class) -> None:
        while kind.inside < self.target:
            if kind.state[kind.end] != GONE:
                kind.inside += 1
                heapq.heappush(self._due, (kind.end, kind.rows[0].class_name))
            kind.end += 1
