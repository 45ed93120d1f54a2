"""A process that works for another ends with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from radial.processes import END_WITH, born

CODE = "from radial.processes import end_as_asked; end_as_asked(); print(flush=True); input()"


@pytest.mark.skipif(born(os.getpid()) is None, reason="there is no /proc")
def test_a_process_ends_with_the_one_it_was_told_of() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=pipe) as other:
        environment = os.environ | {END_WITH: str(other.pid)}
        command = [sys.executable, "-c", CODE]
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it watches, and waits for input
            assert process.poll() is None
            other.kill()
            assert process.wait() == 1


def test_a_pid_that_is_used_again_is_another_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert born(process.pid) == born(process.pid) != born(os.getpid())
        process.kill()
    assert born(process.pid) is None
