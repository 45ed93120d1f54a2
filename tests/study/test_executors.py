"""Executors start workers, no more; what they start and when they give up."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from radial.cli import main
from radial.study import executors
from radial.study.claims import claim
from radial.study.executors import VARIABLES, shares
from radial.study.nursery import Nursery
from radial.study.plan import Study
from radial.study.store import Store

Make = Callable[..., Study]


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_workers_that_die_at_once_are_not_started_for_ever(
    tmp_path: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny())
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "py", "echo 'no torch'; exit 3")))
    monkeypatch.setattr(executors, "POLL", 0.01)
    assert main(["study", "run", str(store.path), "--workers", "2"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("radial: error: workers die at once: no torch (see ")


def test_workers_that_find_nothing_end_the_study(
    tmp_path: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny())
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "py", "exit 0")))
    monkeypatch.setattr(executors, "POLL", 0.01)
    with pytest.raises(ChildProcessError, match=r"find nothing to do: has .*study.yaml changed"):
        executors.run_local(store, workers=2, threads=1, console=Console(quiet=True))


def test_ray_is_asked_only_for_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"no Ray cluster answers at 127.0.0.1:1"):
        executors._check_address("127.0.0.1:1")
    executors._check_address("auto")
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": False, "Resources": {"GPU": 8}}]
    executors._check_resources(nodes, 4, 0.0)
    with pytest.raises(ValueError, match=r"no node .* has 8 CPUs and 0 GPUs; the largest has 4"):
        executors._check_resources(nodes, 8, 0.0)
    with pytest.raises(ValueError, match=r"has 1 CPUs and 0.5 GPUs"):
        executors._check_resources(nodes, 1, 0.5)


def test_each_worker_sees_one_gpu(
    tmp_path: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    told = f'echo "$CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS" >> {tmp_path}/told; exit 3'
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "py", told)))
    monkeypatch.setattr(executors, "POLL", 0.05)
    with pytest.raises(ChildProcessError):
        executors.run_local(store, workers=2, threads=3, console=Console(quiet=True))
    assert set((tmp_path / "told").read_text().splitlines()) == {"4 3", "7 3"}


def test_gpus_and_cores_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert shares(None, None, runs=100) == (8, 1)
    assert shares(None, None, runs=3) == (3, 2)
    assert shares(2, None, runs=100) == (2, 4)
    assert shares(None, 4, runs=100) == (2, 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert executors.gpus() == []
    program(tmp_path / "nvidia-smi", "echo 'GPU 0: A100'; echo 'GPU 1: A100'")
    assert executors.gpus() == ["0", "1"]
    assert shares(None, None, runs=100) == (2, 4)
    program(tmp_path / "nvidia-smi", "echo 'GPU driver broken'; exit 9")
    assert executors.gpus() == []


@pytest.mark.parametrize("name", VARIABLES)
def test_threads_set_by_the_user_win(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "2,1")  # a number for each level of nesting
    assert shares(1, None, runs=100) == (1, 2)
    assert shares(None, None, runs=100) == (4, 2)
    assert shares(1, 3, runs=100) == (1, 3)  # said on the command line: nearer still
    monkeypatch.setenv(name, "many")
    assert shares(1, None, runs=100) == (1, 8)


def test_a_pipe_is_told_at_once_and_when_runs_start_and_end(tmp_path: Path, tiny: Make) -> None:
    """Not only when the first run is complete, which may be hours."""
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0, 1], heads=["default"]))
    first, second = store.study().runs()
    told, held = io.StringIO(), []

    def each(left: int, running: int, finished: int) -> None:
        lines = told.getvalue().splitlines()
        if not held:
            assert lines == ["0 of 2 done · 2 left"]
            held.append(claim(store.path / "claims", first.id))
        elif not finished:
            assert lines[1:] == [f"{first.id} running: training, epoch 1 of 3"]
            held[0].release()
            for run in (first, second):
                store.fail(run.id, "result.json", "ValueError: no", session)

    session = executors.new_session()
    console = Console(file=told, force_terminal=False, width=20)
    executors.watch(store, session, console, workers=1, each=each)
    ends = [f"{run.id} failed: ValueError: no" for run in (first, second)]
    assert told.getvalue().splitlines()[2:] == ends


def test_workers_are_forks_of_one_process_that_has_imported_everything(
    tmp_path: Path, tiny: Make
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(heads={"default": {}}, seeds=[0, 1], score=False, evaluate=False))
    arguments = [str(store.path), "--session", "s", "--threads", "1", "--limit", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        nursery = Nursery(arguments, environment, log)
        try:
            workers = [nursery.start(), nursery.start()]
            tasks = Path(f"/proc/{nursery.process.pid}/task")
            if tasks.is_dir():  # a lock that another thread holds would stay locked in a fork
                assert len(list(tasks.iterdir())) == 1
            assert workers[0].poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                workers[0].wait(timeout=0.0)
            assert [worker.wait() for worker in workers] == [0, 0]
            assert [worker.poll() for worker in workers] == [0, 0]
            ended = nursery.start()
            ended.kill()
            assert ended.wait() == -signal.SIGKILL
            nursery.process.kill()  # who asks after that learns it from the nursery's end
            assert nursery.start().poll() == -signal.SIGKILL
        finally:
            nursery.close()
    assert (tmp_path / "log").read_text().count(" complete\n") == 2


@pytest.mark.parametrize("name", ["two\nlines", 'a"b', "a\\b"])
def test_a_path_does_not_become_a_line_of_the_script(tmp_path: Path, tiny: Make, name: str) -> None:
    store = Store(tmp_path / name)
    store.create(tiny())
    with pytest.raises(ValueError, match="cannot stand in a script"):
        executors.submit(store, executors.Array(tasks=1), dry=True)
    assert not (store.path / "slurm.sh").exists()
