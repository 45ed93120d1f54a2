"""Workers and runners are killed with -9 at random: every run is complete once, and the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from study_cases import facts

from radial.study.claims import MOST, claim
from radial.study.plan import Study, from_values
from radial.study.store import Store
from radial.study.worker import Worker
from radial.training.rundir import export

Make = Callable[..., Study]
Runner = subprocess.Popen[bytes]
Start = Callable[..., Runner]
HANGS = 900.0  # seconds: so long that only a hang takes it, on any machine


def undisturbed(path: Path, study: Study) -> Store:
    store = Store(path)
    store.create(study)
    assert Worker(store, session="quiet", threads=1).work() == len(study.runs())
    return store


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `radial study run`, or another command; whatever comes of the test, nothing that it
    started goes on.
    """
    runners: list[Runner] = []

    def start(store: Store, *options: str, verb: tuple[str, ...] = ("study", "run")) -> Runner:
        command = [sys.executable, "-m", "radial", *verb, str(store.path), *options]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        runners.append(subprocess.Popen(command, env=environment, start_new_session=True, **quiet))
        return runners[-1]

    yield start
    for runner in runners:
        with suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)  # workers and ranks are of its group
        runner.wait()
    for pid in pids():
        if str(tmp_path).encode() in command(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def workers_of(store: Store) -> list[int]:
    """Processes that work on this study, whoever started them, and the one they are forks of."""
    place = str(store.path).encode()
    return [p for p in pids() if b"radial.study." in command(p) and place in command(p)]


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + HANGS
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def checkpoints(store: Store) -> list[Path]:
    return list(store.path.glob("runs/*/last.ckpt"))


def complete_once(store: Store, study: Study) -> None:
    """All steps of all runs, nothing beside, and no run reported complete by two workers."""
    assert sorted(store.runs()) == sorted(run.id for run in study.runs())
    assert not any(store.missing(run, store.steps(study)) for run in store.runs())
    assert not list(store.path.glob("failures/*"))
    lines = (store.path / "logs" / "workers.log").read_text().splitlines()
    told = [line for line in lines if line.endswith(" complete")]
    assert len(told) == len(set(told))


def test_a_killed_worker_and_a_killed_runner_lose_nothing(
    tmp_path: Path, tiny: Make, start: Start
) -> None:
    study = tiny(methods=["simclr", "byol"], seeds=[0])
    quiet = undisturbed(tmp_path / "quiet", study)
    store = Store(tmp_path / "killed")
    store.create(study)
    last = claim(store.path / "claims", study.runs()[-1].id)  # so that it cannot be through before
    assert last is not None
    runner = start(store, "--workers", "1", "--threads", "1")
    wait_for(lambda: checkpoints(store))
    for worker in workers_of(store):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: len(checkpoints(store)) > 1)
    runner.kill()  # its worker ends with it
    runner.wait()
    wait_for(lambda: not workers_of(store))
    assert store.missing(study.runs()[-1].id, store.steps(study))
    last.release()
    assert start(store, "--workers", "1", "--threads", "1").wait(timeout=HANGS) == 0
    complete_once(store, study)
    assert facts(store) == facts(quiet)


@pytest.mark.slow
def test_ranks_end_with_their_worker(tmp_path: Path, tiny: Make, start: Start) -> None:
    study = tiny(seeds=[0], heads=["default"], evaluate=False, score=False)
    two = {**study.constants, "devices": 2, "accelerator": "cpu", "epochs": 2000}
    store = Store(tmp_path / "ddp")
    store.create(replace(study, constants=two))
    runner = start(store, "--workers", "1", "--threads", "1")

    def ranks() -> list[int]:
        return [pid for pid in pids() if b"\0train\0" in command(pid) and mine(pid)]

    def mine(pid: int) -> bool:
        return str(store.path).encode() in command(pid)

    wait_for(lambda: checkpoints(store))
    assert len(ranks()) == 2
    runner.kill()
    runner.wait()
    wait_for(lambda: not ranks() and not workers_of(store))


@pytest.mark.slow
def test_twelve_runs_and_many_kills(tmp_path: Path, tiny: Make, start: Start) -> None:
    """Workers are killed as soon as they have a run, and when it has some file or other."""
    study = tiny(methods=["simclr", "byol", "moco"], seeds=[0, 1], evaluate={"k": 5})
    assert len(study.runs()) == 12
    quiet = undisturbed(tmp_path / "quiet", study)
    store, end = Store(tmp_path / "killed"), time.monotonic() + HANGS
    store.create(study)
    files = random.Random(0).choices(("", "config.yaml", "last.ckpt", "result.json"), k=8)
    options = ("--workers", "2", "--threads", "1")
    runner, killed, runners = start(store, *options), Counter[str](), 0
    while not (done(store, study) and runner.poll() is not None):
        assert time.monotonic() < end, f"after {killed}"
        if runner.poll() is not None:
            runner = start(store, *options)
        time.sleep(0.02)
        for run, worker in holders(store).items():
            enough = killed.total() == len(files) or killed[run] == MOST - 1  # else it is given up
            if enough or not (store.run(run) / files[killed.total()]).exists():
                continue
            os.kill(worker, signal.SIGKILL)
            killed[run] += 1
            if killed.total() in (2, 5, 7):
                runner.kill()
                runner.wait()
                runners += 1
            break
    assert (killed.total(), runners) == (8, 3)
    complete_once(store, study)
    assert facts(store) == facts(quiet)


def holders(store: Store) -> dict[str, int]:
    """Runs, and the worker that holds each now."""
    found = {}
    for worker in workers_of(store):
        found |= dict.fromkeys(claimed_by(store, worker), worker)
    return found


def done(store: Store, study: Study) -> bool:
    steps = store.steps(study)
    return not any(store.missing(run.id, steps) for run in study.runs())


@pytest.mark.slow
def test_a_killed_process_of_ray_loses_nothing(tmp_path: Path, tiny: Make, start: Start) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'radial-ssl[ray]'")
    study = tiny(methods=["simclr", "byol"], seeds=[0, 1])
    quiet = undisturbed(tmp_path / "quiet", study)
    store = Store(tmp_path / "ray")
    store.create(study)
    runner = start(store, "--executor", "ray", "--cpus", "1")
    killed = 0
    while runner.poll() is None:
        time.sleep(0.2)
        busy = [pid for pid in ray_workers() if claimed_by(store, pid)]
        if killed < 2 and busy and len(checkpoints(store)) > killed:
            os.kill(busy[0], signal.SIGKILL)
            killed += 1
    assert runner.wait() == 0
    assert killed == 2
    assert done(store, study)
    assert not list(store.path.glob("failures/*"))
    assert facts(store) == facts(quiet)


def ray_workers() -> list[int]:
    return [pid for pid in pids() if command(pid).startswith(b"ray::")]


def claimed_by(store: Store, pid: int) -> list[str]:
    """The runs that a process holds a claim of: files come and go."""
    found = []
    for path in store.path.glob("claims/[!.]*"):
        with suppress(OSError):
            if f'"pid": {pid},' in path.read_text():
                found.append(path.stem)
    return found


def told(store: Store) -> dict[str, dict[str, Any]]:
    """Of every trial its settings, scores and end; not the time it took."""
    found = {p.stem: json.loads(p.read_text()) for p in store.path.glob("trials/*.json")}
    return {name: {k: v for k, v in one.items() if k != "seconds"} for name, one in found.items()}


def of_digits(**changes: Any) -> Study:
    """A search on the embedded digits: eight trials of nine epochs, two seeds that confirm."""
    constants = {"data": "digits", "image_size": 16, "batch_size": 128, "epochs": 9}
    values = {"name": "digits", "constants": {**constants, "backbone": "resnet9-w0.125"}}
    values |= {"methods": ["simclr"], "heads": ["default"], "score": False}
    values |= {"grid": {"base_lr": {"low": 0.005, "high": 2.0, "log": True},
                        "temperature": [0.1, 0.2, 0.5]}}  # fmt: skip
    return from_values(values | {"tune": {"trials": 8, "confirm": 2, "images": 128} | changes})


@pytest.mark.slow
def test_a_killed_search_ends_at_the_same_best(tmp_path: Path, start: Start) -> None:
    """`radial tune` as a whole: one worker, left alone, and killed with -9 with its runner at some
    file or other.
    """
    one = ("--workers", "1", "--threads", "1")
    quiet, store = Store(tmp_path / "quiet"), Store(tmp_path / "killed")
    quiet.create(of_digits())
    store.create(of_digits())
    assert start(quiet, *one, verb=("tune",)).wait(timeout=HANGS) == 0
    marks = ("trials/trial-000.json", "runs/trial-001/last.ckpt", "trials/trial-003.json",
             "runs/trial-004/config.yaml", "runs/best-1/last.ckpt")  # fmt: skip
    last = claim(store.path / "claims", "best-2")  # so that it cannot be through before
    assert last is not None
    for mark in marks:
        runner = start(store, *one, verb=("tune",))
        wait_for((store.path / mark).exists)
        for pid in (*workers_of(store), runner.pid):
            os.kill(pid, signal.SIGKILL)
        runner.wait()
        assert not (store.path / "best").exists()
    last.release()
    assert start(store, *one, verb=("tune",)).wait(timeout=HANGS) == 0
    assert told(store) == told(quiet)
    for place in (store, quiet):
        assert {trial["state"] for trial in told(place).values()} == {"complete", "pruned"}
        assert (place.path / "report.html").is_file()
        assert (place.path / "optuna.log").is_file()
        export(place.path / "best", backbone=place.path / "best.safetensors")
    ours, theirs = (load_file(place.path / "best.safetensors") for place in (store, quiet))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.slow
def test_a_search_on_ray_ends_at_the_same_best(tmp_path: Path, start: Start) -> None:
    """One task at a time, so that trials know what those of a single worker do; one is killed."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'radial-ssl[ray]'")
    quiet, store = Store(tmp_path / "quiet"), Store(tmp_path / "ray")
    quiet.create(of_digits(confirm=1))
    store.create(of_digits(confirm=1))
    cores = str(len(os.sched_getaffinity(0)))  # all for one task, and as many threads elsewhere
    one = ("--workers", "1", "--threads", cores)
    assert start(quiet, *one, verb=("tune",)).wait(timeout=HANGS) == 0
    runner = start(store, "--executor", "ray", "--cpus", cores, verb=("tune",))
    killed = 0
    while runner.poll() is None:
        time.sleep(0.2)
        busy = [pid for pid in ray_workers() if claimed_by(store, pid)]
        if not killed and busy and (store.run("trial-002") / "config.yaml").exists():
            os.kill(busy[0], signal.SIGKILL)
            killed += 1
    assert (runner.wait(), killed) == (0, 1)
    assert told(store) == told(quiet)
    assert (store.path / "best" / "last.ckpt").is_file()
