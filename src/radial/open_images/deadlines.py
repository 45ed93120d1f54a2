"""Something to be called when time is over: one thread for all, as timers of their own cost more
than a request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_EVERY = 0.1  # seconds from look to look


class Deadline:
    """Calls ``end`` after so many seconds, in another thread, unless cancelled before."""

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        self.over = False
        self._time, self._end = time.monotonic() + seconds, end
        with _guard:
            _waiting.add(self)
            if not any(thread.is_alive() for thread in _threads):  # none after a fork, too
                thread = threading.Thread(target=_watch, daemon=True)
                _threads[:] = [thread]
                thread.start()

    def cancel(self) -> None:
        with _guard:
            _waiting.discard(self)


def _watch() -> None:
    while True:
        time.sleep(_EVERY)
        now = time.monotonic()
        with _guard:
            due = [deadline for deadline in _waiting if deadline._time <= now]
            _waiting.difference_update(due)
            for deadline in due:
                deadline.over = True
                deadline._end()
            if not _waiting:
                _threads.clear()
                return


_guard = threading.Lock()
_waiting: set[Deadline] = set()
_threads: list[threading.Thread] = []
