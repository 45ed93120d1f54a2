"""The one primitive of every executor: claim the next run, execute it, write.

    python -m radial.study.worker DIR --session NAME --threads 1

works until nothing is left that it may take. Executors only start such workers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.files import write_atomically
from radial.study.claims import MOST, Claim, claim
from radial.study.grid import Planned, Study
from radial.study.store import EVALUATION, RESULT, SCORES, Store
from radial.training.config import RunConfig

if TYPE_CHECKING:
    from rich.console import Console

    from radial.data import Data

LOST = 75  # exit code of a worker whose run was taken over


@dataclass(eq=False)
class Worker:
    """Works on the runs of a study, one after another, in this process."""

    store: Store
    session: str  # a failure of this session is not tried again in it
    threads: int | None = None
    tell: Callable[[str], None] = print
    on_loss: Callable[[], None] | None = None  # called when another has taken the run over
    study: Study = field(init=False)
    plan: tuple[Planned, ...] = field(init=False)
    steps: tuple[str, ...] = field(init=False)
    _done: set[str] = field(default_factory=set)
    _data: dict[tuple[Any, ...], Data] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.study = self.store.study()
        self.plan, self.steps = self.study.runs(), self.store.steps(self.study)

    def work(self, limit: int | None = None) -> int:
        """Execute runs until none is to be had, or ``limit`` of them; how many were complete."""
        complete = taken = 0
        while (limit is None or taken < limit) and (found := self.claim()):
            taken += 1
            complete += self.execute(*found)
        return complete

    def claim(self) -> tuple[Planned, Claim] | None:
        """The first run of the plan that is not complete, not failed here and not another's."""
        for run in self.plan:
            if run.id in self._done or self.store.failure(run.id).get("session") == self.session:
                continue
            if not self.store.missing(run.id, self.steps):
                self._done.add(run.id)
                continue
            found = claim(self.store.path / "claims", run.id)
            if found is None:
                continue
            found.on_loss = self.on_loss
            if not self.store.missing(run.id, self.steps):  # completed while we looked
                found.release()
                continue
            return run, found
        return None

    def execute(self, run: Planned, held: Claim) -> bool:
        """Every step that a run misses; whether it is complete now."""
        step = "start"
        try:
            if held.generation > MOST:
                raise RuntimeError(f"its worker died {held.generation - 1} times")
            with self.log(run) as console:
                for step in self.steps:
                    if self.store.read(run.id, step, self.tell) is None:
                        self.store.set_aside(run.id, step)
                        self.STEPS[step](self, run, console)
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            self.store.fail(run.id, step, message, self.session)
            self.tell(f"{run.id} failed: {message}")
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

    def train(self, run: Planned, console: Console) -> None:
        from radial.training.checkpoint import LAST, read_checkpoint
        from radial.training.run import resume, train

        directory = self.store.run(run.id)
        config = replace(run.config, out=str(directory), threads=self.threads)
        begun = (directory / "config.yaml").is_file() and (directory / LAST).is_file()
        if begun:
            try:
                read_checkpoint(directory / LAST)
            except ValueError as error:
                self.tell(f"{error}; starting {run.id} afresh")
                os.replace(directory / LAST, directory / f"{LAST}.unreadable")
                begun = False
        if config.devices * config.num_nodes > 1:
            return train_apart(config, begun, console)
        data = self.data(config)
        if begun:
            resume(directory, threads=self.threads, console=console, data=data)
        else:
            train(config, overwrite=True, console=console, data=data)
        return None

    def evaluate(self, run: Planned, console: Console) -> None:
        from radial.scoring.labels import evaluate
        from radial.scoring.results import write_json

        settings = self.study.evaluation(run.config.data)
        assert settings is not None
        data, began = self.data(run.config), time.perf_counter()
        directory = self.store.run(run.id)
        found = evaluate(str(directory), settings, data=data)
        found |= {"target": run.id, "directory": None}
        found["seconds"] = round(time.perf_counter() - began, 3)
        file = self.store.start_file(run.config, {"protocol": settings.protocol})
        if not file.is_file():
            write_json(file, start(run.config, data, settings))
        found["start"] = file.name
        write_json(directory / EVALUATION, found)

    def score(self, run: Planned, console: Console) -> None:
        from radial.scoring.results import write_json
        from radial.scoring.scoring import score

        settings = self.study.scoring(run.config.data)
        data, began = self.data(run.config), time.perf_counter()
        card = score([self.store.run(run.id)], settings, data=data)[0].to_dict()
        card |= {"target": run.id, "seconds": round(time.perf_counter() - began, 3)}
        write_json(self.store.run(run.id) / SCORES, card)

    def data(self, config: RunConfig) -> Data:
        """Loaded once for all the runs that share it; only the last set is kept."""
        from radial.training.building import data_of

        key = (config.data, config.image_size, config.split, config.data_root)
        if key not in self._data:
            self._data.clear()
            self._data[key] = data_of(config)
        return self._data[key]

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

    STEPS = {RESULT: train, EVALUATION: evaluate, SCORES: score}  # noqa: RUF012


def start(config: RunConfig, data: Data, settings: Any) -> dict[str, Any]:
    """What labels say of the backbone before the first step."""
    from radial.scoring.labels import evaluate_network
    from radial.scoring.targets import Network
    from radial.training.building import starting_backbone

    backbone, info = starting_backbone(config, data)
    network = Network(
        name=info.name, backbone=backbone.eval(), projection_head=None, statistics=None
    )
    return evaluate_network(network, data, settings, name="start")


def train_apart(config: RunConfig, begun: bool, console: Console) -> None:
    """A run on several devices, by a process of its own: Lightning starts the ranks from it."""
    directory = config.directory
    if begun:
        arguments = ["--resume", str(directory)]
    else:
        settings = directory.with_name(f"{directory.name}.json")
        write_atomically(settings, json.dumps(config.to_dict()))
        arguments = ["--config", str(settings), "--overwrite"]
    command = [sys.executable, "-m", "radial.cli", "train", *arguments]
    # A worker's job on SLURM is one task: Lightning must not count it as a rank of the run.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    console.print(done.stderr, markup=False, highlight=False)
    if done.returncode not in (0, 1):  # 1: stopped by on_collapse, with a result
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"radial train ended with code {done.returncode}: {lines[-1]}")


def leave_with(parent: int) -> None:
    """End this process when the one that started it is gone: nobody reads its results then."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.study.worker", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--session", required=True, help="failures of it are not tried again")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--limit", type=int, help="runs to execute at most")
    parser.add_argument("--parent", type=int, help="end when this process is not the parent")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        leave_with(options.parent)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.threads is not None:
        import torch

        torch.set_num_threads(options.threads)
    worker = Worker(
        Store(options.directory.resolve()),
        session=options.session,
        threads=options.threads,
        tell=lambda line: print(line, flush=True),
        on_loss=lambda: os._exit(LOST),
    )
    worker.work(options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
