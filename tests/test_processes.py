"""A process that works for another ends with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from radial.processes import END_WITH, born, keep_freed_memory

CODE = "from radial.processes import end_as_asked; end_as_asked(); print(flush=True); input()"

FAULTS = """
import resource, sys
import torch
from radial.processes import keep_freed_memory
told = keep_freed_memory() if "keep" in sys.argv else None
def faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        torch.ones(10 << 20)  # 40 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(10)
print(told, faults(10))
"""


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


def test_freed_memory_is_used_again_without_asking_the_kernel() -> None:
    if not keep_freed_memory():
        pytest.skip("malloc is not glibc's own")

    def faults(*words: str) -> int:
        command = [sys.executable, "-c", FAULTS, *words]
        told, count = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
        assert told == ("True" if words else "None")
        return int(count)

    assert faults("keep") < faults() / 10


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_malloc_stays_as_the_environment_sets_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory()
