"""How far a fetch is, how fast it goes, and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from radial.open_images.plan import Plan

_WINDOW = 15.0  # seconds over which the rate is taken


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
