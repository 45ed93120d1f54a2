"""What the attacks share: children forked after the imports, hooks at every change to the disk.

A child is forked from a process that has imported torch and never used it, so that a try costs a
fraction of a second instead of an import. What happens to a child is decided by its hook: killed,
halted or refused room at its n-th fsync, rename or unlink.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANGES = ("fsync", "replace", "rename", "unlink", "rmdir")
PATIENCE = 900  # seconds that only a hang takes, on any machine
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans of killed children become ours, to be counted


@dataclass
class Tally:
    """Tries of one promise, and what broke it."""

    promise: str
    tries: int = 0
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, faults: list[str]) -> None:
        self.tries += 1
        self.broken += [f"{what}: {fault}" for fault in faults]


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or minus its signal, and what it printed."""

    code: int
    out: str
    err: str


@dataclass
class Hook:
    """Counts changes to the disk in this process; ``act`` is called before the n-th."""

    act: Callable[[], None] | None = None
    at: int = 0
    count: int = 0
    guard: Any = field(default_factory=threading.Lock)

    def install(self) -> None:
        for name in CHANGES:
            setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            with self.guard:
                self.count += 1
                now = self.count == self.at
            if now and self.act is not None:
                self.act()
            return change(*arguments, **options)

        return run


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def halted() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def small_files(size: int) -> None:
    """From here on no file of this process grows beyond ``size`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def start(task: Callable[[], int], place: Path) -> int:
    """Fork a child that does ``task`` and prints to files in ``place``; its pid."""
    place.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush(), sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = task()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def ended(pid: int, place: Path) -> Ended:
    """Wait for a child; one that hangs is killed, and ended by that."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(PATIENCE)  # not a thread: nobody forks from a process that has some
    _, status = os.waitpid(pid, 0)
    signal.alarm(0)
    out, err = ((place / name).read_text(errors="replace") for name in ("out", "err"))
    return Ended(os.waitstatus_to_exitcode(status), out, err)


def run(task: Callable[[], int], place: Path) -> Ended:
    return ended(start(task, place), place)


def counted(task: Callable[[], int], place: Path) -> int:
    """How many changes to the disk an undisturbed ``task`` makes."""

    def count() -> int:
        hook = Hook()
        hook.install()
        code = task()
        (place / "count").write_text(str(hook.count))
        return code

    done = run(count, place)
    assert done.code == 0, f"undisturbed, and still: {done.err}"
    return int((place / "count").read_text())


def disturbed(task: Callable[[], int], act: Callable[[], None], at: int) -> Callable[[], int]:
    def go() -> int:
        Hook(act, at).install()
        return task()

    return go


def command(*words: object) -> Callable[[], int]:
    """The `radial` command, in whatever process calls it."""

    def go() -> int:
        from radial.cli import main

        return main([str(word) for word in words])

    return go


def refused(done: Ended, *, codes: tuple[int, ...] = (0, 2)) -> list[str]:
    """What is wrong with how a command ended: a traceback, a signal, more lines than one."""
    faults = []
    if done.code not in codes:
        faults.append(f"ended with {done.code}: {done.err[-300:]}")
    elif done.code == 2:
        lines = [line for line in done.err.splitlines() if line.startswith("radial: error:")]
        if len(lines) != 1 or "Traceback" in done.err:
            faults.append(f"not one line: {done.err[-300:]}")
        elif "unforeseen" in lines[0]:
            faults.append(lines[0])
    if any(mark in done.out + done.err for mark in ("\x1b]", "\x1b[2J", "\x9b")):
        faults.append("an escape sequence of a file reached the terminal")
    return faults


def parts(folder: Path) -> list[str]:
    return [f"{path.name} is left" for path in folder.rglob("*.part")]


@contextmanager
def no_process_left(tally: Tally) -> Iterator[None]:
    """Whatever children leave behind becomes ours: it must end by itself, soon."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    yield
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            tally.add("children", [])
            return
        if not pid:
            time.sleep(0.05)
    tally.add("children", ["a process is left"])


@contextmanager
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
