"""Executors only start workers, here, on Ray or by SLURM; the study's directory keeps them apart
(see worker.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from radial.checks import check_size, one_line
from radial.files import write_atomically
from radial.study.claims import MOST
from radial.study.nursery import Forked, Nursery
from radial.study.store import STUDY, State, Store, Watcher, count, headline, table

POLL = 0.5  # seconds
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task={cpus}
#SBATCH --output="{logs}/slurm-%A_%a.log"
#SBATCH --requeue
{more}
# Written by `radial study submit`. Tasks share the study's directory: each claims the next run
# until none is left; what a task was working on when it was stopped is taken up by another, or
# by the next submission, where its last checkpoint is.
export OMP_NUM_THREADS={cpus}
exec {python} -m radial.study.worker {directory} \\
  --session "slurm-$SLURM_ARRAY_JOB_ID" --threads {cpus}
"""


def new_session() -> str:
    return uuid.uuid4().hex[:12]


def shares(workers: int | None, threads: int | None, runs: int) -> tuple[int, int]:
    """Cores divided among workers: one a core, or one a GPU, but no more than there are runs.

    Args:
        workers: as asked for, or None.
        threads: of each, as asked for, or None: as OMP_NUM_THREADS and the like have it, else an
            equal share of the cores.
        runs: of the study.

    Returns:
        How many workers, and the threads of each.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    set_by_user = (os.environ.get(name, "").partition(",")[0].strip() for name in VARIABLES)
    threads = threads or next((int(text) for text in set_by_user if text.isdecimal()), None)
    workers = workers or max(1, min(runs, len(gpus()) or cores // (threads or 1)))
    return workers, threads or max(1, cores // workers)


def run_local(store: Store, *, workers: int, threads: int, console: Console) -> list[State]:
    """A pool of processes until every run is complete or has failed once.

    A worker that dies is replaced: its run is taken up where its last checkpoint is. Workers end
    with this process, so that a runner that is killed leaves none behind. They are forks of one
    process that has imported everything (:mod:`radial.study.nursery`). Where there are GPUs they
    are not, since CUDA does not survive a fork: each is a process of its own and sees one of them,
    or as many as its runs have devices.
    """
    session, devices = new_session(), gpus()
    each_needs = max(run.config.devices for run in store.study().runs())
    arguments = [str(store.path), "--session", session, "--threads", str(threads)]
    command = [sys.executable, "-m", "radial.study.worker", *arguments]
    command += ["--parent", str(os.getpid())]
    nurseries: list[Nursery] = []  # the last one works, or has died
    pool: dict[int, subprocess.Popen[bytes] | Forked] = {}  # by slot
    ended: list[tuple[int, int]] = []  # how many runs were finished when a worker left, and how
    store.path.joinpath("logs").mkdir(exist_ok=True)
    with store.path.joinpath("logs", "workers.log").open("ab") as log:

        def start(slot: int) -> subprocess.Popen[bytes] | Forked:
            environment = os.environ | {name: str(threads) for name in VARIABLES}
            if not devices and hasattr(os, "fork"):
                if not nurseries or nurseries[-1].process.poll() is not None:
                    nurseries.append(Nursery(arguments, environment, log))
                return nurseries[-1].start()
            if devices:
                chosen = [
                    devices[(slot * each_needs + i) % len(devices)] for i in range(each_needs)
                ]
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(dict.fromkeys(chosen))
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

        def top_up(left: int, running: int, finished: int) -> None:
            for slot in range(workers if left else 0):
                worker = pool.get(slot)
                if worker is not None:
                    if (code := worker.poll()) is None:
                        continue
                    ended.append((finished, code))
                idle = [code for when, code in ended if when == finished]
                if len(idle) > MOST * (MOST + workers):  # and no run came to an end
                    why = f"workers die at once: {_last_line(log.name)}"
                    if not any(idle):
                        why = f"workers find nothing to do: has {store.path / STUDY} changed?"
                    raise ChildProcessError(why)
                pool[slot] = start(slot)

        try:
            return watch(store, session, console, workers=workers, each=top_up)
        finally:
            _end(list(pool.values()))
            for nursery in nurseries:
                nursery.close()


def gpus() -> list[str]:
    """The GPUs that processes started here may use, as CUDA_VISIBLE_DEVICES names them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = [line for line in told.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))] if told.returncode == 0 else []


def _last_line(file: str | Path) -> str:
    lines = Path(file).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'no message'} (see {file})"


def _end(pool: list[subprocess.Popen[bytes] | Forked]) -> None:
    for worker in pool:
        worker.send_signal(signal.SIGTERM)
    for worker in pool:
        try:
            worker.wait(timeout=20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def run_ray(
    store: Store, *, address: str | None, cpus: int, gpus: float, console: Console
) -> list[State]:
    """One plain Ray task a run that is left; each claims the next run. Needs a shared path.

    Ray tries a task again when its process or machine died; a run that merely failed is recorded
    and left for the next session.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ValueError("the Ray executor needs Ray: pip install 'radial-ssl[ray]'") from error
    session = new_session()
    _check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
        _check_resources(ray.nodes(), cpus, gpus)  # type: ignore[no-untyped-call]
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=5)(work_once)
        pending: list[Any] = []

        def top_up(left: int, running: int, finished: int) -> None:
            if pending:
                ended, pending[:] = ray.wait(pending, num_returns=len(pending), timeout=0)
                ray.get(ended)  # raises where Ray has given up
            while left and len(pending) < left + running:
                pending.append(task.remote(str(store.path), session, cpus))

        cores = ray.cluster_resources().get("CPU", cpus)  # type: ignore[no-untyped-call]
        slots = max(1, int(cores // cpus))
        return watch(store, session, console, workers=slots, each=top_up)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
        raise ValueError(f"Ray: {one_line(error)}") from error
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Ray itself waits for minutes where nobody answers."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=5.0).close()
        except OSError as error:
            raise ValueError(f"no Ray cluster answers at {address}: {error}") from error


def _check_resources(nodes: list[dict[str, Any]], cpus: int, gpus: float) -> None:
    found = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in found):
        most = max((int(node.get("CPU", 0)) for node in found), default=0)
        raise ValueError(
            f"no node of the cluster has {cpus} CPUs and {gpus:g} GPUs; the largest has {most} CPUs"
        )


def work_once(directory: str, session: str, threads: int) -> int:
    """One run, in a process of Ray's."""
    import torch

    from radial.study.worker import LOST, worker_on

    torch.set_num_threads(threads)
    store = Store(Path(directory))
    worker = worker_on(store, session=session, threads=threads, on_loss=lambda: os._exit(LOST))
    return worker.work(limit=1)


@dataclass(frozen=True, kw_only=True)
class Array:
    """How many workers, and what each may use."""

    tasks: int
    cpus: int = 1
    gpus: int = 0  # of each task
    time: str | None = None  # limit, as for sbatch
    partition: str | None = None
    options: tuple[str, ...] = ()  # further lines for sbatch, such as --account=NAME

    def __post_init__(self) -> None:
        check_size("tasks", self.tasks)
        check_size("cpus", self.cpus)
        check_size("gpus", self.gpus, minimum=0)


def script(store: Store, array: Array) -> str:
    more = {"time": array.time, "partition": array.partition, "gpus": array.gpus or None}
    lines = [f"#SBATCH --{name}={value}" for name, value in more.items() if value is not None]
    lines += [f"#SBATCH {option}" for option in array.options]
    for line in lines:
        if "\n" in line:
            raise ValueError(f"an option for sbatch must be one line, not {line!r}")
    if not str(store.path).isprintable() or set(str(store.path)) & set('"\\'):
        raise ValueError(f"{str(store.path)!r} cannot stand in a script for sbatch: rename it")
    return SCRIPT.format(
        name=f"radial-{store.study().name}".replace(" ", "-"),  # else letters, digits, . _ -
        last=array.tasks - 1,
        cpus=array.cpus,
        logs=store.path / "logs",
        more="\n".join(lines),
        python=shlex.quote(sys.executable),
        directory=shlex.quote(str(store.path)),
    )


def submit(store: Store, array: Array, *, dry: bool = False) -> str:
    """Write DIR/slurm.sh and hand it to sbatch; what sbatch said."""
    path = store.path / "slurm.sh"
    write_atomically(path, script(store, array))
    (store.path / "logs").mkdir(exist_ok=True)
    if dry:
        return f"written, not submitted: {path}"
    if shutil.which("sbatch") is None:
        raise ValueError(f"there is no sbatch here; {path} is written: submit it where there is")
    done = subprocess.run(["sbatch", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"sbatch refused {path}: {one_line(done.stderr)}")
    return done.stdout.strip()


def watch(
    store: Store,
    session: str,
    console: Console,
    *,
    workers: int,
    each: Callable[[int, int, int], None],
) -> list[State]:
    """Show the study until nothing is open; ``each``, which starts workers, is told how many
    runs are left, running and finished.

    Open is what is neither complete nor failed in this session: runs that another runner works
    on are waited for.
    """
    watcher = Watcher(store, tell=lambda line: console.print(line, highlight=False, markup=False))
    told: set[str] = set()
    view = (
        Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    )
    if view is not None:
        view.start()
    try:
        while True:
            states = watcher.look()
            watcher.tell = None  # what cannot be read is said once
            ours = [_judged(store, state, session) for state in states]
            _report(ours, told, console)
            numbers = count(ours)
            if view is not None:
                shown = Group(
                    Text(headline(ours, workers), style="bold"), table(ours, ("running",))
                )
                view.update(shown, refresh=True)
            if not numbers["left"] and not numbers["running"]:
                return states
            each(numbers["left"], numbers["running"], numbers["done"] + numbers["failed"])
            time.sleep(POLL)
    finally:
        if view is not None:
            view.stop()


def _judged(store: Store, state: State, session: str) -> State:
    """A failure of an earlier session is work that is left."""
    if state.state != "failed" or store.failure(state.run.id).get("session") == session:
        return state
    return State(run=state.run, state="left")


def _report(states: list[State], told: set[str], console: Console) -> None:
    """A line when a run is done or has failed; those done before are counted only. Where there is
    no terminal also one at once, and when a run starts: a file or a pipe shows nothing else.
    """
    ends = ("done", "failed")
    shown = ends if console.is_terminal else ("running", *ends)
    if not told and not console.is_terminal:
        _say(console, headline(states))
    for state in states:
        key = f"{state.run.id} {state.state}"
        if state.state in shown and key not in told and (told or state.state not in ends):
            note = f": {state.note}" if state.note else f" in {state.seconds:.0f} s"
            _say(console, f"{state.run.id} {state.state}{note}")
    told |= {f"{state.run.id} {state.state}" for state in states}


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
