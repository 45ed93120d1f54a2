"""Files that are either whole or not there: written beside, synced, then renamed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that takes its name only when all of it is on disk.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.txt"
    >>> with atomic(path) as file:
    ...     _ = file.write("whole")
    >>> path.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")  # on shared disks, too
    encoding = None if "b" in mode else "utf-8"
    try:
        with part.open(mode, encoding=encoding, newline=None if "b" in mode else "") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomically(path: Path | str, content: str | bytes) -> None:
    with atomic(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


def check_writable(*paths: Path | str | None) -> None:
    """An error now, in one line, for what could not be written after minutes of computing.

    >>> check_writable(None, "/dev/null/card.json")
    Traceback (most recent call last):
    ValueError: cannot write /dev/null/card.json: /dev/null is not a directory
    """
    for path in paths:
        if path is None:
            continue
        path = Path(path)
        if path.is_dir():
            raise ValueError(f"cannot write {path}: it is a directory")
        above = next(parent for parent in path.absolute().parents if parent.exists())
        if not above.is_dir():
            raise ValueError(f"cannot write {path}: {above} is not a directory")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(f"cannot write {path}: {above} cannot be written to")
