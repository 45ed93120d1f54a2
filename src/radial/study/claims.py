"""Who works on what: an atomic claim with a heartbeat, on any file system that has O_EXCL.

A claim of a run is a file ``claims/ID.N``. Its holder touches it every few seconds; one that is
not touched any more, or whose process is gone, is stale. To take over generation N is to create
N + 1, which only one can: nothing is deleted or renamed that another may have just made.

A holder who wakes up has lost the run where there is a higher generation, or where its own
generation carries the token of another: generations are counted anew once a run was given back.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from radial.documents import parse_json
from radial.processes import born, stopped

BEAT = 2.0  # seconds between heartbeats
STALE = 60.0  # seconds without one: the holder is gone, or as good as
MOST = 3  # times that a run may take its worker down, no further, before it counts as failed


@dataclass(eq=False)
class Claim:
    """A run that this process may work on, until it is released or lost."""

    path: Path
    generation: int
    token: str  # of this claim alone
    on_loss: Callable[[], None] | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def held(self) -> bool:
        """Whether the run is still this process's; to be asked before writing for it."""
        try:
            token = parse_json(self.path.read_bytes())["token"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # given back; or another's
            return False
        latest = newest(self.path.parent, self.path.stem) == self.generation
        return latest and bool(token == self.token)

    def release(self) -> None:
        """Give the run back; older generations first, so that none of them comes to light."""
        self._stop.set()
        if self.held():
            for number in range(1, self.generation + 1):
                self.path.with_suffix(f".{number}").unlink(missing_ok=True)

    def beat(self) -> bool:
        """Touch the claim if it is held; whether it is."""
        if held := self.held():
            os.utime(self.path)
        return held

    def keep_beating(self) -> None:
        """Until the claim is released, or lost."""
        while not self._stop.wait(BEAT):
            with suppress(OSError):  # a file system that is away for a moment
                if self.beat() or self._stop.is_set():
                    continue
                if self.on_loss is not None:
                    self.on_loss()
                return


def claim(folder: Path, run: str, progress: object = None) -> Claim | None:
    """A claim of a run, with its heart beating, unless another holds it.

    Args:
        folder: of all claims.
        run: what is claimed.
        progress: how far the run is; a holder that dies without changing it counts (see `deaths`).

    Raises:
        OSError: the claim cannot be written; then there is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generation = newest(folder, run)
    if generation and not stale(folder / f"{run}.{generation}"):
        return None
    generation += 1
    found = Claim(folder / f"{run}.{generation}", generation, token=uuid.uuid4().hex)
    content = json.dumps(holder() | {"token": found.token, "progress": progress})
    try:
        with found.path.open("x") as file:
            try:
                file.write(content)
                file.flush()
            except OSError:  # a full disk: nobody died of it
                found.path.unlink(missing_ok=True)
                raise
    except FileExistsError:  # another was quicker
        return None
    threading.Thread(target=found.keep_beating, daemon=True).start()
    return found


def deaths(held: Claim, progress: object) -> int:
    """How many holders before this one died, in a row, without getting the run any further."""
    count = 0
    for number in range(held.generation - 1, 0, -1):
        try:
            who = parse_json(held.path.with_suffix(f".{number}").read_bytes())
        except (OSError, ValueError):  # ended before it could write its claim, let alone work
            continue
        if not isinstance(who, dict) or who.get("progress") != progress:
            break
        count += 1
    return count


def newest(folder: Path, run: str) -> int:
    """The highest generation of a run's claims; 0 where there is none."""
    return _newest(folder.glob(f"{run}.*")).get(run, 0)


def live(folder: Path) -> set[str]:
    """The runs that somebody works on now."""
    found = _newest(folder.glob("[!.]*.*"))
    return {run for run, number in found.items() if not stale(folder / f"{run}.{number}")}


def _newest(paths: Iterable[Path]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in paths:
        if path.suffix[1:].isdecimal():
            found[path.stem] = max(found.get(path.stem, 0), int(path.suffix[1:]))
    return found


def holder() -> dict[str, object]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "born": born(pid), "place": place()}


def place() -> str | None:
    """Boot and pid namespace: what makes a pid mean the same process to two that read it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def stale(path: Path) -> bool:
    """Whether the holder is gone: at once on its own machine, elsewhere after a minute; so, too,
    where it is there but halted.

    Ages are compared with a file touched now, so that clocks of several machines do not matter.
    """
    try:
        who = parse_json(path.read_bytes())
        if who["place"] is not None and who["place"] == place() and who["born"] is not None:
            if born(int(who["pid"])) != str(who["born"]):
                return True
            if not stopped(int(who["pid"])):  # alive: as slow as it likes
                return False
    except FileNotFoundError:
        return False  # released this moment: to be claimed the next time round
    except (ValueError, KeyError, TypeError, OSError):
        pass  # not written yet, or not whole: its age decides
    try:
        return _now(path.parent) - path.stat().st_mtime > STALE
    except FileNotFoundError:
        return False


def _now(folder: Path) -> float:
    """By the clock of the file system; by one's own where nothing can be written."""
    probe = folder / f".now-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
