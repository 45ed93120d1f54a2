"""The one primitive of every executor: claim the next run, execute it, write.

    python -m radial.study.worker DIR --session NAME --threads 1

works until nothing is left that it may take. Executors only start such workers. The steps of a run
are train, evaluate, score; each ends by writing its file, whole.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from radial.checks import one_line
from radial.files import NotOurs, check_ours, only_while, sweep, write_atomically
from radial.processes import END_WITH, end_with, keep_freed_memory
from radial.study.claims import MOST, Claim, claim, deaths
from radial.study.plan import Planned, Study
from radial.study.store import CHECKPOINTS, Store, Tell
from radial.training.config import RunConfig
from radial.training.rundir import CONFIG, EVALUATION, KEPT, LAST, METRICS, RESULT, SCORES, STOPPED
from radial.verdicts import DIVERGED

if TYPE_CHECKING:
    from rich.console import Console

    from radial.data import Data
    from radial.scoring.settings import EvalSettings
    from radial.training.rundir import RunResult

LOST = 75  # exit code of a worker whose run was taken over


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is being worked on."""

    store: Store
    study: Study
    run: Planned
    data: Data
    threads: int | None
    console: Console  # of the run's log
    tell: Tell

    @property
    def directory(self) -> Path:
        return self.store.run(self.run.id)

    @property
    def config(self) -> RunConfig:
        return self.run.config

    def evaluation(self) -> EvalSettings | None:
        return self.study.evaluation(self.config.data, device=self.config.accelerator)

    def asked(self, step: str) -> str:
        return self.store.steps(self.study)[step]


def has_checkpoint(job: Job) -> bool:
    """Whether there is one that is whole, to evaluate and score."""
    from radial.checkpoints import read_checkpoint

    path = next((p for n in (LAST, STOPPED) if (p := job.directory / n).is_file()), None)
    try:
        return path is not None and bool(read_checkpoint(path))
    except ValueError as error:
        job.tell(str(error))
        return False


def train(job: Job) -> None:
    """From the last checkpoint that is whole, or from the start where there is none."""
    train_until(job, None)


def train_until(job: Job, epoch: int | None) -> RunResult | None:
    """The same up to an epoch; what result.json would say, where this process knows it."""
    from radial.training.run import latest, resume, train

    directory, threads = job.directory, job.threads
    config = replace(job.config, out=str(directory), threads=threads)
    begun = False
    try:
        begun = latest(directory, job.tell)[0] is not None
    except ValueError as error:
        job.tell(f"{error}; starting {job.run.id} afresh")
        if (directory / LAST).is_file():
            os.replace(directory / LAST, directory / f"{LAST}.unreadable")
    if not begun and not (directory / CONFIG).is_file():  # else nobody's directory, not to be used
        write_atomically(directory / CONFIG, json.dumps(config.to_dict()))
    if config.devices * config.num_nodes > 1:
        train_apart(config, begun, job.console)
        return None
    how: dict[str, Any] = {"console": job.console, "data": job.data, "until": epoch}
    if begun:
        return resume(directory, threads=threads, **how)
    return train(config, overwrite=True, **how)


def train_apart(config: RunConfig, begun: bool, console: Console) -> None:
    """A run on several devices, by a process of its own: Lightning starts the ranks from it."""
    directory = config.directory
    if begun:
        arguments = ["--resume", str(directory)]
    else:
        settings = directory.with_name(f"{directory.name}.json")
        write_atomically(settings, json.dumps(config.to_dict()))
        arguments = ["--config", str(settings), "--overwrite"]
    command = [sys.executable, "-m", "radial", "train", *arguments]
    # A worker's job on SLURM is one task: Lightning must not count it as a rank of the run.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    environment[END_WITH] = str(os.getpid())  # its ranks end with this worker
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    console.print(done.stderr, markup=False, highlight=False)
    stopped = done.returncode == 1 and (directory / RESULT).is_file()  # by on_collapse
    if done.returncode and not stopped:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"radial train ended with code {done.returncode}: {lines[-1]}")


def evaluate(job: Job) -> None:
    from radial.files import write_json

    settings, began = job.evaluation(), time.perf_counter()
    assert settings is not None
    found = _evaluated(job, job.directory, settings)
    file = job.store.start_file(job.config, job.asked(EVALUATION))
    if not file.is_file():
        write_json(file, start(job.config, job.data, settings))
    found |= {"start": file.name, "seconds": _since(began), "asked": job.asked(EVALUATION)}
    write_json(job.directory / EVALUATION, found)


def score(job: Job) -> None:
    from radial.files import write_json

    began = time.perf_counter()
    card = _scored(job, job.directory)
    card |= {"seconds": _since(began), "asked": job.asked(SCORES)}
    write_json(job.directory / SCORES, card)


def checkpoints(job: Job) -> None:
    """Evaluation and scores of the checkpoints on the way; the last epoch's are the run's own."""
    from radial.files import write_json

    settings, began = job.evaluation(), time.perf_counter()
    which = job.study.checkpoints
    with (job.directory / METRICS).open(encoding="utf-8", newline="") as file:
        epochs = {int(row["epoch"]): row for row in csv.DictReader(file)}
    rows: list[dict[str, Any]] = []
    for path in sorted(job.directory.glob("checkpoints/epoch-*.ckpt")):
        epoch = int(path.stem.removeprefix("epoch-"))
        if epoch >= job.config.epochs or not (isinstance(which, bool) or epoch in which):
            continue
        loss = float(epochs[epoch]["train_loss"])
        row: dict[str, Any] = {"epoch": epoch, "train_loss": loss if math.isfinite(loss) else None}
        if settings is not None:
            told = _evaluated(job, path, settings)
            for probe in told["probes"].values():
                del probe["confusion"], probe["per_class"]
            kept = ("probes", "knn", "knn_few", "logistic_few", "verdict", "reason")
            row["evaluation"] = {name: told[name] for name in kept if name in told}
        if job.study.score is not None:
            row["card"] = _scored(job, path)
        rows.append(row)
    wanted = set() if isinstance(which, bool) else {n for n in which if n < job.config.epochs}
    if gone := sorted(wanted - {row["epoch"] for row in rows}):
        raise ValueError(f"checkpoints: epoch {gone[0]} was not kept: see save_every")
    found = {"rows": rows, "seconds": _since(began), "asked": job.asked(CHECKPOINTS)}
    write_json(job.directory / CHECKPOINTS, found)


def _evaluated(job: Job, target: Path, settings: EvalSettings) -> dict[str, Any]:
    from radial.evaluation.features import NotFinite
    from radial.scoring.evaluate import evaluate_target
    from radial.scoring.targets import find

    try:
        found = evaluate_target(find(str(target)), job.data, settings)
    except NotFinite as error:  # no accuracy, and nothing that another attempt would change
        found = {"verdict": DIVERGED, "reason": str(error), "probes": {}, "knn": {}, "knn_few": {}}
    return found | {"target": job.run.id, "directory": None}


def _scored(job: Job, target: Path) -> dict[str, Any]:
    from radial.scoring.score import score

    settings = job.study.scoring(job.config.data, device=job.config.accelerator)
    return score(target, job.data, settings=settings)[0].to_dict() | {"target": job.run.id}


def start(config: RunConfig, data: Data, settings: EvalSettings) -> dict[str, Any]:
    """What labels say of the backbone before the first step."""
    from radial.data.preprocessing import Preprocess
    from radial.scoring.evaluate import evaluate_network
    from radial.scoring.targets import Network
    from radial.training.build import starting_backbone

    backbone, info = starting_backbone(config, data)
    network = Network(
        name=info.name, backbone=backbone.eval(), preprocess=Preprocess(size=data.image_size)
    )
    return evaluate_network(network, data, settings, name="start")


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 3)


STEPS: Mapping[str, Callable[[Job], None]] = MappingProxyType(
    {RESULT: train, EVALUATION: evaluate, SCORES: score, CHECKPOINTS: checkpoints}
)


@dataclass(eq=False)
class Worker:
    """Works on the runs of a study, one after another, in this process."""

    store: Store
    session: str  # a failure of this session is not tried again in it
    threads: int | None = None
    tell: Callable[[str], None] = print
    on_loss: Callable[[], None] | None = None  # called when another has taken the run over
    todo: Mapping[str, Callable[[Job], None]] = field(default_factory=lambda: STEPS)
    study: Study = field(init=False)
    plan: tuple[Planned, ...] = field(init=False)
    steps: dict[str, str] = field(init=False)
    _held: Claim | None = None
    _done: set[str] = field(default_factory=set)
    _data: dict[tuple[Any, ...], Data] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.study = self.store.study()
        self.plan, self.steps = self.study.runs(), self.store.steps(self.study)

    def work(self, limit: int | None = None) -> int:
        """Execute runs until none is to be had, or ``limit`` of them; how many were complete."""
        complete = taken = 0
        while (limit is None or taken < limit) and (found := self.claim() or self.wait()):
            taken += 1
            complete += self.execute(*found)
        return complete

    def claim(self) -> tuple[Planned, Claim] | None:
        """The first run of the plan that is not complete, not failed here and not another's."""
        for run in self.plan:
            if run.id in self._done or self.store.failure(run.id).get("session") == self.session:
                continue
            if not self.ready(run):
                continue
            if not self.store.missing(run.id, self.steps):
                self._done.add(run.id)
                continue
            found = claim(self.store.path / "claims", run.id, self.store.progress(run.id))
            if found is None:
                continue
            found.on_loss = self.on_loss
            failed = self.store.failure(run.id).get("session") == self.session
            if failed or not self.store.missing(run.id, self.steps):  # while we looked
                found.release()
                continue
            self._held = found
            return run, found
        return None

    def ready(self, run: Planned) -> bool:
        """Whether a run may begin."""
        return True

    def wait(self) -> tuple[Planned, Claim] | None:
        """For a run that may begin later."""
        return None

    def let_go(self) -> None:
        """Give back what is being worked on: the run is not to blame for this process's end."""
        if self._held is not None:
            self._held.release()

    def execute(self, run: Planned, held: Claim) -> bool:
        """Every step that a run misses; whether it is complete now."""
        step = "start"
        try:
            if (died := deaths(held, self.store.progress(run.id))) >= MOST:
                raise RuntimeError(f"its worker died {died} times and got it no further")
            for folder in (self.store.run(run.id), (self.store.run(run.id) / KEPT).parent):
                sweep(folder, live=True)  # whoever had the run and was halted within a write
            with self.log(run) as console, only_while(held.held):
                job = self.job(run, console)
                missing = self.store.missing(run.id, self.steps, self.tell)
                if RESULT in missing or (
                    missing and not has_checkpoint(job)
                ):  # training removes what follows it
                    missing = list(self.steps)
                for step in missing:
                    if not held.held():
                        raise NotOurs(run.id)
                    self.store.set_aside(run.id, step)
                    self.todo[step](job)
                check_ours(job.directory)
        except NotOurs:
            self.tell(f"{run.id} was taken over by another worker")
            return False
        except Exception as error:
            message = one_line(f"{type(error).__name__}: {error}", None)
            if held.held():
                self.store.fail(run.id, step, message, self.session)
            self.tell(f"{run.id} failed: {message}")
            if "CUDA" in message:  # the process's context may be lost: another worker takes over
                raise SystemExit(1) from error
            return False
        else:
            self.store.forgive(run.id)
            if not self.study.keep_weights:
                for path in self.store.run(run.id).rglob("*.ckpt"):
                    path.unlink()
            self.tell(f"{run.id} complete")
            return True
        finally:
            held.release()
            self._held = None

    def job(self, run: Planned, console: Console) -> Job:
        """With data that are loaded once for all the runs that share them."""
        from radial.training.build import data_of

        config = run.config
        key = (config.data, config.image_size, config.split, config.data_root)
        if key not in self._data:
            self._data.clear()  # only the last set is kept
            self._data[key] = data_of(config)
        return Job(
            store=self.store,
            study=self.study,
            run=run,
            data=self._data[key],
            threads=self.threads,
            console=console,
            tell=self.tell,
        )

    @contextmanager
    def log(self, run: Planned) -> Iterator[Console]:
        """What training prints goes to logs/ID.log, and so does the traceback of an error."""
        from rich.console import Console

        path = self.store.path / "logs" / f"{run.id}.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            try:
                yield Console(file=file, width=120, force_terminal=False)
            except Exception:
                traceback.print_exc(file=file)
                raise


def worker_on(store: Store, **facts: Any) -> Worker:
    """A worker of the kind that a study needs."""
    if store.study().tune is None:
        return Worker(store, **facts)
    from radial.study.tune import TrialWorker

    return TrialWorker(store, **facts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.study.worker", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--session", required=True, help="failures of it are not tried again")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--limit", type=int, help="runs to execute at most")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    options = parser.parse_args(arguments)
    keep_freed_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.threads is not None:
        import torch

        torch.set_num_threads(options.threads)
    worker = worker_on(
        Store(options.directory.resolve()),
        session=options.session,
        threads=options.threads,
        tell=lambda line: print(line, flush=True),
        on_loss=lambda: os._exit(LOST),
    )
    if options.parent is not None:
        end_with(options.parent, worker.let_go)
    worker.work(options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
