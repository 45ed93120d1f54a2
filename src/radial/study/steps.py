"""The steps of a run: train, evaluate, score. Each ends by writing its file, whole."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from radial.files import write_atomically
from radial.processes import END_WITH
from radial.study.plan import Planned, Study
from radial.study.store import CHECKPOINTS, Store, Tell
from radial.training.config import RunConfig
from radial.training.rundir import (
    CONFIG,
    EVALUATION,
    LAST,
    METRICS,
    RESULT,
    SCORES,
    STOPPED,
)
from radial.verdicts import DIVERGED

if TYPE_CHECKING:
    from rich.console import Console

    from radial.data import Data
    from radial.scoring.settings import EvalSettings


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

    def asked(self, step: str) -> str:
        return self.store.steps(self.study)[step]


def has_checkpoint(job: Job) -> bool:
    return any((job.directory / name).is_file() for name in (LAST, STOPPED))


def train(job: Job) -> None:
    """From the last checkpoint, or from the start where there is none that can be read."""
    from radial.checkpoints import read_checkpoint
    from radial.training.run import resume, train

    directory, threads = job.directory, job.threads
    config = replace(job.config, out=str(directory), threads=threads)
    begun = (directory / CONFIG).is_file() and (directory / LAST).is_file()
    if begun:
        try:
            read_checkpoint(directory / LAST)
        except ValueError as error:
            job.tell(f"{error}; starting {job.run.id} afresh")
            os.replace(directory / LAST, directory / f"{LAST}.unreadable")
            begun = False
    if config.devices * config.num_nodes > 1:
        train_apart(config, begun, job.console)
    elif begun:
        resume(directory, threads=threads, console=job.console, data=job.data)
    else:
        train(config, overwrite=True, console=job.console, data=job.data)


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

    settings, began = job.study.evaluation(job.config.data), time.perf_counter()
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
    """Evaluation and scores of every kept checkpoint but the last epoch's, which is the run's."""
    from radial.files import write_json

    settings, began = job.study.evaluation(job.config.data), time.perf_counter()
    with (job.directory / METRICS).open(encoding="utf-8", newline="") as file:
        epochs = {int(row["epoch"]): row for row in csv.DictReader(file)}
    rows = []
    for path in sorted(job.directory.glob("checkpoints/epoch-*.ckpt")):
        epoch = int(path.stem.removeprefix("epoch-"))
        if epoch >= job.config.epochs:
            continue
        loss = float(epochs[epoch]["train_loss"])
        row: dict[str, Any] = {"epoch": epoch, "train_loss": loss if math.isfinite(loss) else None}
        if settings is not None:
            told = _evaluated(job, path, settings)
            for probe in told["probes"].values():
                del probe["confusion"], probe["per_class"]
            kept = ("probes", "knn", "knn_few", "verdict", "reason")
            row["evaluation"] = {name: told[name] for name in kept if name in told}
        if job.study.score is not None:
            row["card"] = _scored(job, path)
        rows.append(row)
    found = {"rows": rows, "seconds": _since(began), "asked": job.asked(CHECKPOINTS)}
    write_json(job.directory / CHECKPOINTS, found)


def _evaluated(job: Job, target: Path, settings: EvalSettings) -> dict[str, Any]:
    from radial.evaluation.features import NotFinite
    from radial.scoring.evaluate import evaluate

    try:
        found = evaluate(str(target), settings, data=job.data)
    except NotFinite as error:  # no accuracy, and nothing that another attempt would change
        found = {"verdict": DIVERGED, "reason": str(error), "probes": {}, "knn": {}, "knn_few": {}}
    return found | {"target": job.run.id, "directory": None}


def _scored(job: Job, target: Path) -> dict[str, Any]:
    from radial.scoring.score import score

    settings = job.study.scoring(job.config.data)
    return score([target], settings, data=job.data)[0].to_dict() | {"target": job.run.id}


def start(config: RunConfig, data: Data, settings: EvalSettings) -> dict[str, Any]:
    """What labels say of the backbone before the first step."""
    from radial.scoring.evaluate import evaluate_network
    from radial.scoring.targets import Network
    from radial.training.build import starting_backbone

    backbone, info = starting_backbone(config, data)
    network = Network(
        name=info.name, backbone=backbone.eval(), projection_head=None, statistics=None
    )
    return evaluate_network(network, data, settings, name="start")


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 3)


STEPS: Mapping[str, Callable[[Job], None]] = MappingProxyType(
    {RESULT: train, EVALUATION: evaluate, SCORES: score, CHECKPOINTS: checkpoints}
)
