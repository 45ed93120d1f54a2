"""A study as a SLURM array job: each task is a worker of the same plan (see worker.py)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from radial.checks import check_size, one_line
from radial.files import write_atomically
from radial.study.store import Store

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
