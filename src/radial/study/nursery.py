"""A process that has imported everything forks the workers of this machine: imports are paid once.

Lightning and what it brings take seconds to import, in each worker and in each that replaces a
dead one. A fork has it all at once, and shares the memory. Workers end with their nursery, the
nursery with its runner.

Over one socket, the nursery's standard input, the runner asks by a line and is answered by one:

    start   →   4711    the process id of a new worker
    4711    →   none    it works; else its exit code, as of Popen.poll
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from typing import IO

from radial.study.worker import LOST, main

PRELOADED = (
    "radial.training.run", "radial.training.build", "radial.scoring.evaluate",
    "radial.scoring.score", "radial.metrics.compute", "radial.evaluation.probe", "scipy.stats",
)  # fmt: skip


class Nursery:
    """The runner's side of it.

    Args:
        arguments: of the workers, as :func:`radial.study.worker.main` takes them.
        environment: of the nursery and its workers.
        log: where all of them print.
    """

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        command = [sys.executable, "-m", "radial.study.nursery", *arguments]
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                command, env=environment, stdin=theirs.fileno(), stdout=log, stderr=log
            )
        self._socket = ours
        self._answers = ours.makefile("r")

    def ask(self, question: object) -> str:
        """The answer; an empty one from a nursery that is gone."""
        try:
            self._socket.sendall(f"{question}\n".encode())
            return self._answers.readline().strip()
        except OSError:
            return ""

    def start(self) -> Forked:
        return Forked(self, self.ask("start"))

    def close(self) -> None:
        """End it; workers that are left end with it."""
        self._answers.close()
        self._socket.close()
        self.process.wait()


class Forked:
    """A worker that a nursery forked; as much of Popen as a runner needs."""

    def __init__(self, nursery: Nursery, pid: str) -> None:
        self.nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            answer = self.nursery.ask(self.pid) if self.pid else ""
            if not answer:  # a nursery that is gone takes its workers along
                self.returncode = self.nursery.process.wait()
            elif answer != "none":
                self.returncode = int(answer)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # not waited for: the process id is still its own
            os.kill(int(self.pid), number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
            time.sleep(0.02)
        return code


def serve(arguments: list[str]) -> int:
    """Import, then fork a worker whenever the runner asks, until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the runner ends its workers
    runner = socket.socket(fileno=0)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is there stays shared
    nursery = os.getpid()
    for line in runner.makefile("r"):
        question = line.strip()
        answer: int | None
        if question == "start":
            answer = os.fork()
            if answer == 0:
                _work([*arguments, "--parent", str(nursery)])
        else:
            answer = _code(int(question))
        runner.sendall(f"{'none' if answer is None else answer}\n".encode())
    return 0


def _code(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # told before
        return LOST
    return os.waitstatus_to_exitcode(status) if found else None


def _work(arguments: list[str]) -> None:
    """In the fork: a worker as if its command had started it, and nothing after that."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the runner's questions are not for it
        code = main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
