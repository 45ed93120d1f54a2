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
