"""Files that are either whole or not there: written beside, synced, then renamed.

What is no regular file is written to, never replaced: pipes, devices, ``/dev/stdout``. Links are
followed, and stay links.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not on this system: then nobody sweeps
    fcntl = None  # type: ignore[assignment]

PART = re.compile(r".+\.[0-9a-f]{12}\.part")  # of one writer alone, on shared disks, too


def cache_folder() -> Path:
    """Where downloads, statistics, features and compiled code are kept, on all systems alike.

    Returns:
        RADIAL_DATA if it is set, else ``~/.cache/radial``.
    """
    return Path(os.environ.get("RADIAL_DATA") or "~/.cache/radial").expanduser()


class NotOurs(Exception):
    """A file was not written: what it belongs to is another process's by now."""


_allowed: ContextVar[Callable[[], bool] | None] = ContextVar("allowed", default=None)


@contextmanager
def only_while(allowed: Callable[[], bool]) -> Iterator[None]:
    """Within it no file takes its name, in this thread, but while ``allowed()``.

    A worker that was halted wakes up in the middle of anything: it must not write over what
    another, who took its run, has written since.
    """
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def check_ours(path: Path | str) -> None:
    """A NotOurs where `only_while` forbids to change ``path`` now."""
    allowed = _allowed.get()
    if allowed is not None and not allowed():
        raise NotOurs(str(path))


@contextmanager
def atomic(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that takes its name only when all of it is on disk.

    Args:
        path: of the file; its folder is made. What is there and no regular file, or an open file
            by its number, is written to as it is.
        mode: "w" for text, "wb" for bytes.

    Raises:
        OSError: it names ``path``; what was there before is whole, and nothing lies beside it.
        NotOurs: within `only_while`, which see.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.txt"
    >>> with atomic(path) as file:
    ...     _ = file.write("whole")
    >>> path.read_text()
    'whole'
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        if (stream := _stream(path)) is not None:
            opened = os.dup(stream) if isinstance(stream, int) else stream
            with open(opened, mode, **text) as file:
                yield file
            return
        target = Path(os.path.realpath(path))  # through links
        target.parent.mkdir(parents=True, exist_ok=True)
        part, descriptor = _begin(target)
        try:
            with open(descriptor, mode, **text) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                check_ours(path)
                part.replace(target)  # while it is locked: no sweeper takes it for a dead one's
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.filename is None:  # a full disk is told without one
            error.filename = str(path)
        raise


def write_atomically(path: Path | str, content: str | bytes) -> None:
    with atomic(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


def write_json(path: Path | str, values: Any) -> None:
    """Indented, as UTF-8; a ValueError for NaN, which JSON does not have."""
    write_atomically(path, json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def sweep(folder: Path, *, live: bool = False) -> None:
    """Remove the parts in ``folder`` that killed writers left; a live writer holds its part.

    Args:
        folder: not those within it.
        live: also those of live writers, which then cannot give them their names.
    """
    for part in [path for path in folder.glob("*.part") if PART.fullmatch(path.name)]:
        with suppress(OSError), part.open("rb") as file:
            if live:
                part.unlink()
            elif fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def check_writable(*paths: Path | str | None) -> None:
    """An error now, in one line, for what could not be written after minutes of computing.

    >>> check_writable(None, "/dev/null", "/dev/null/card.json")
    Traceback (most recent call last):
    ValueError: cannot write /dev/null/card.json: /dev/null is not a directory
    """
    for path in paths:
        if path is None:
            continue
        if Path(path).is_dir():
            raise ValueError(f"cannot write {path}: it is a directory")
        if (stream := _stream(path)) is not None:
            if not isinstance(stream, int) and not os.access(stream, os.W_OK):
                raise ValueError(f"cannot write {path}: it cannot be written to")
            continue
        above = next(p for p in Path(os.path.realpath(path)).parents if p.exists())
        if not above.is_dir():
            raise ValueError(f"cannot write {path}: {above} is not a directory")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(f"cannot write {path}: {above} cannot be written to")


def _begin(target: Path) -> tuple[Path, int]:
    """A new part, open and locked, so that a sweeper sees that its writer lives."""
    while True:
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if fcntl is not None:
            with suppress(OSError):  # a file system that has no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:  # else swept between the two lines
            return part, descriptor
        os.close(descriptor)


def _stream(path: Path | str) -> str | int | None:
    """What to open instead of a new file: a pipe or a device, or a descriptor that is open.

    ``/dev/stdout`` is a descriptor even where it leads to a file: opened again that file would be
    written to from its beginning, and replaced, the shell that opened it would not see it.
    """
    if (number := _descriptor(os.fspath(path))) is not None:
        return number
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else os.fspath(path)


def _descriptor(path: str) -> int | None:
    """3 of ``/dev/fd/3``, ``/proc/self/fd/3`` and links to them."""
    for _ in range(40):  # as many as the kernel follows
        folder, name = os.path.split(os.path.abspath(path))
        own = os.path.realpath(folder) in (f"/proc/{os.getpid()}/fd", "/dev/fd")
        if own and name.isdecimal():
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
