"""Which process is which, processes that end with the one they work for, and their memory."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

END_WITH = "RADIAL_END_WITH"  # environment variable: the pid that a process ends with
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def born(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: a pid alone may be used again.

    None where the process is gone, or is a zombie, or where there is no /proc.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def stopped(pid: int) -> bool:
    """Whether a process is halted, by SIGSTOP, Ctrl-Z or a debugger: its heart does not beat."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def end_with(pid: int, first: Callable[[], None] | None = None) -> None:
    """End this process when process ``pid`` is gone, after calling ``first``."""
    known = born(pid)
    parent = os.getppid() == pid

    def gone() -> bool:
        return os.getppid() != pid if known is None and parent else born(pid) != known

    def watch() -> None:
        while not gone():
            time.sleep(0.5)
        if first is not None:
            first()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_as_asked() -> None:
    """As the process that started this one asked for, if it did."""
    pid = os.environ.get(END_WITH, "")
    if pid.isdecimal():
        end_with(int(pid))


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed, for the next step's tensors; whether it was told to.

    glibc gives large blocks back to the kernel at once, which hands them out again page by page,
    zeroed: a seventh of a training step on the CPU (ResNet-9, 32 px).
    Not where the environment sets malloc itself, or the C library is another.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ):
        return False
    try:
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version  # another library's mallopt means other things
        most, once = 2**31 - 1, 2**25  # what glibc takes, and what it took before 2.35
        grown = library.mallopt(M_MMAP_THRESHOLD, most) or library.mallopt(M_MMAP_THRESHOLD, once)
        return bool(grown and library.mallopt(M_TRIM_THRESHOLD, most))
    except (OSError, AttributeError, TypeError):
        return False
