"""One run of a fetch: the plan says what is needed, workers get it, the journal keeps it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable

from radial.open_images.journal import Journal
from radial.open_images.manifest import Row
from radial.open_images.plan import Plan
from radial.open_images.progress import Meter, Reading
from radial.open_images.settings import FetchSettings
from radial.open_images.workers import Outcome, Workers, disk_reason, working

_TYPICAL = 300_000  # bytes of an image of Open Images, for the hint about the disk
_AHEAD = 32  # rows asked for beyond those that are being fetched
_DOUBT = 30  # answers in a row that were no images: somebody else is answering
_NOWHERE = 200  # images that are not there, while none was: the address is wrong


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
