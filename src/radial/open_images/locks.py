"""One process at a time at a file; the system frees it when the process ends, however it ends."""

from __future__ import annotations

from typing import IO, Any

from radial.checks import DataError


def lock(file: IO[Any], what: object) -> None:
    """Hold an open file until it is closed; a DataError if another process holds it."""
    try:
        import fcntl
    except ImportError:  # not on this system: then users must see to it
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"another process is at work on {what}") from None
    except OSError:  # a file system that has no locks
        return
