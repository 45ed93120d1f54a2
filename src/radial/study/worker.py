"""The one primitive of every executor: claim the next run, execute it, write.

    python -m radial.study.worker DIR --session NAME --threads 1

works until nothing is left that it may take. Executors only start such workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.checks import one_line
from radial.processes import end_with
from radial.study.claims import MOST, Claim, claim
from radial.study.plan import Planned, Study
from radial.study.steps import STEPS, Job, has_checkpoint
from radial.study.store import Store
from radial.training.rundir import RESULT

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
            failed = self.store.failure(run.id).get("session") == self.session
            if failed or not self.store.missing(run.id, self.steps):  # while we looked
                found.release()
                continue
            self._held = found
            return run, found
        return None

    def let_go(self) -> None:
        """Give back what is being worked on: the run is not to blame for this process's end."""
        if self._held is not None:
            self._held.release()

    def execute(self, run: Planned, held: Claim) -> bool:
        """Every step that a run misses; whether it is complete now."""
        step = "start"
        try:
            if held.generation > MOST:
                raise RuntimeError(f"its worker died {held.generation - 1} times")
            with self.log(run) as console:
                job = self.job(run, console)
                missing = self.store.missing(run.id, self.steps, self.tell)
                if RESULT in missing or not has_checkpoint(job):  # training removes what follows it
                    missing = list(self.steps)
                for step in missing:
                    if not held.held():
                        self.tell(f"{run.id} was taken over by another worker")
                        return False
                    self.store.set_aside(run.id, step)
                    self.todo[step](job)
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.study.worker", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--session", required=True, help="failures of it are not tried again")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--limit", type=int, help="runs to execute at most")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    options = parser.parse_args(arguments)
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
    if options.parent is not None:
        end_with(options.parent, worker.let_go)
    worker.work(options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
