"""One run of a fetch: the plan says what is needed, workers get it, the journal keeps it.

The rule of a balanced subset: of each class, the first images in hash order that are not gone, as
many as were chosen; where a class has fewer, all classes have that many. It depends on what is
gone, not on the order in which that is found out.
"""

from __future__ import annotations

import heapq
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from radial.checks import DataError
from radial.open_images.journal import Journal
from radial.open_images.manifest import Manifest, Row
from radial.open_images.workers import FetchSettings, Outcome, Workers, disk_reason, working

UNKNOWN, GOOD, GONE = range(3)

_TYPICAL = 300_000  # bytes of an image of Open Images, for the hint about the disk
_AHEAD = 32  # rows asked for beyond those that are being fetched
_DOUBT = 30  # answers in a row that were no images: somebody else is answering
_NOWHERE = 200  # images that are not there, while none was: the address is wrong
_WINDOW = 15.0  # seconds over which the rate is taken


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


@dataclass(frozen=True)
class Reading:
    """How far a fetch is; ``total`` falls when images turn out to be gone."""

    done: int
    total: int
    rate: float  # bytes a second, lately
    left: float | None  # seconds, None while it cannot be said


class Meter:
    """Bytes a second and seconds left, from the last few seconds."""

    def __init__(self, plan: Plan, progress: Callable[[Reading], None] | None) -> None:
        self.plan, self.progress = plan, progress
        self.bytes, self.shown = 0, 0.0
        self.marks: deque[tuple[float, int, int]] = deque()

    def add(self, received: int) -> None:
        self.bytes += received

    def show(self, always: bool = False) -> None:
        now = time.monotonic()
        if self.progress is None or (now < self.shown + 0.2 and not always):
            return
        self.shown, done, total = now, self.plan.done, self.plan.total
        while len(self.marks) > 1 and self.marks[0][0] < now - _WINDOW:
            self.marks.popleft()
        self.marks.append((now, done, self.bytes))
        start, done_then, bytes_then = self.marks[0]
        seconds = max(now - start, 1e-9)
        rate = (self.bytes - bytes_then) / seconds if len(self.marks) > 1 else 0.0
        left = seconds * (total - done) / (done - done_then) if done > done_then else None
        self.progress(Reading(done, total, rate, 0.0 if done == total else left))


class Arrivals:
    """``resume``, then ``run`` until nothing is left to ask for, or it is of no use to go on.

    That an image is gone (404, 410) is noted once this run has brought another one: a server
    that has none at all is the wrong one. That an answer was no image is noted when an image
    has come that was asked for later, because a page in place of every image is a proxy, or a
    server in trouble. If none was, an image that is there already is asked for once more in
    the end: where it does not come either, nobody can say what is gone, and the run is
    incomplete.
    """

    def __init__(
        self,
        journal: Journal,
        plan: Plan,
        settings: FetchSettings,
        tell: Callable[[str], None] | None = None,
        progress: Callable[[Reading], None] | None = None,
    ) -> None:
        self.journal, self.plan, self.settings = journal, plan, settings
        self.tell = tell or (lambda _: None)
        self.meter = Meter(plan, progress)
        self.errors = 0
        self.example: str | None = None
        self._end: str | None = None  # why to stop before all is done
        self._known: Row | None = None  # an image that came, now or earlier
        self._arrived = False
        self._gone: list[Row] = []  # not noted yet
        self._doubtful: list[Outcome] = []  # answers in a row that were no images
        self._nowhere = self._unreachable = 0

    @property
    def complete(self) -> bool:
        return not self.errors

    @property
    def ended(self) -> bool:
        """Whether it stopped before all was asked for; ``example`` says why."""
        return self._end is not None

    def run(self) -> None:
        self._hint()
        with working(self.settings, self.journal.arriving) as workers:
            while self._end is None:
                self._ask(workers)
                if not workers.waiting:
                    break
                self._receive(workers.take())
                self.meter.show()
            if self.complete and not self.ended and (self._doubtful or self._gone):
                self._make_sure(workers)
        self.meter.show(always=True)
        if self._end is not None:
            self.errors, self.example = max(1, self.errors), self._end

    def resume(self) -> None:
        """Take up what the journal has; a DataError where somebody else's files are in the way."""
        journal, rows = self.journal, self.plan.manifest.rows
        journal.load(self.settings.base)
        for row in journal.restore(rows):
            self.plan.good(row)
            self._known = row
        missing = [row for row in rows if row.id in journal.missing or row.role == "gone"]
        left = Counter(row.class_name for row in rows)
        left.subtract(row.class_name for row in missing)
        if min(left.values()):  # else a class has nothing left, and asking again is better
            for row in missing:
                self.plan.gone(row)
        if self.plan.done:
            self.tell(f"{self.plan.done:,} of {self.plan.total:,} images are there already")

    def _hint(self) -> None:
        side = self.settings.size
        each = _TYPICAL if side is None else min(_TYPICAL, side * side)
        needed = each * (self.plan.total - self.plan.done)
        free = shutil.disk_usage(self.journal.out).free
        if needed > free:
            self.tell(
                f"the disk may be too small: about {needed / 1e9:.1f} GB to come, "
                f"{free / 1e9:.1f} GB free in {self.journal.out}"
            )

    def _ask(self, workers: Workers) -> None:
        while workers.waiting < self.settings.connections + _AHEAD:
            row = self.plan.next()
            if row is None and not workers.waiting and self.complete:
                row = self.plan.tie()
            if row is None:
                return
            workers.ask(row)

    def _receive(self, outcomes: list[Outcome]) -> None:
        got = [each for each in outcomes if each.kind == "got"]
        self._gone += [each.row for each in outcomes if each.kind == "gone"]
        try:
            self._note(got)
        except OSError as error:
            self._end = disk_reason(error, self.journal.out)
            return
        for each in got:
            self.plan.good(each.row)
        for each in outcomes:
            self.meter.add(each.received)
            if each.error is not None:
                raise each.error
            if each.kind == "disk":
                self._end = each.reason
            elif each.kind == "unreachable":
                self._not_reached(each)
            elif each.kind != "got":
                self._not_there(each)

    def _note(self, got: list[Outcome]) -> None:
        self.journal.got((each.row, each.size) for each in got)
        if got:
            self._arrived, self._known, self._unreachable = True, got[-1].row, 0
            since = max(each.begun for each in got)
            self._gone += [each.row for each in self._doubtful if each.ended <= since]
            self._doubtful = [each for each in self._doubtful if each.ended > since]
        if self._arrived:
            self.journal.gone(self._gone, self.settings.base)
            self._gone = []

    def _make_sure(self, workers: Workers) -> None:
        """Ask once more for an image that did come, and believe the rest if it does."""
        count, last = len(self._doubtful) + len(self._gone), "there is none"
        if self._known is not None:
            workers.ask(self._known)
            while workers.waiting:
                for each in workers.take():
                    if each.error is not None:
                        raise each.error
                    if each.kind == "got":
                        self._note([each])
                        return
                    last = each.reason
        self.errors = count
        self.example = f"an image that came before does not come any more: {last}"

    def _not_reached(self, outcome: Outcome) -> None:
        self.errors += 1
        self.example = self.example or outcome.reason
        self._unreachable += 1
        if self._unreachable >= 20 + 2 * self.settings.connections:
            self._end = f"{self._unreachable} images in a row did not come: {outcome.reason}"

    def _not_there(self, outcome: Outcome) -> None:
        if outcome.kind == "gone":
            self._nowhere += 1
        else:
            self._doubtful.append(outcome)
        self.plan.gone(outcome.row)
        count = len(self._doubtful)
        if count >= _DOUBT:
            self._end = f"{count} answers in a row were no images, the last: {outcome.reason}"
        elif self._nowhere >= _NOWHERE and not self.plan.done:
            self._end = f"none of {self._nowhere} images is at {self.settings.base}: is it right?"
        elif not self.plan.target:
            self._end = f"class {self.plan.poorest!r} has no image left, the last: {outcome.reason}"
