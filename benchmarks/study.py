"""Many tiny runs: what a second worker gains, beside two bare torch processes; Ray beside local.

    python benchmarks/study.py            # some minutes on two quiet cores

Each worker has one thread. A run is SimCLR on digits at 16 px, with evaluation and one score. The
bare side is the same backbone in a plain loop: as many steps in one process, and half of them in
each of two: what a second core is worth is the machine's, how much of it a study gets is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import record, verdict

from radial.study.plan import Study, from_values
from radial.study.store import Store

BACKBONE, BATCH, SIDE = "resnet9-w0.125", 128, 16
RUNS = 16
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
BARE = f"""
import sys
import torch
from radial.backbones import build_backbone
net = build_backbone({BACKBONE!r}, image_size={SIDE})[0]
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.rand({2 * BATCH}, 3, {SIDE}, {SIDE})
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""


def study(runs: int, **changes: object) -> Study:
    constants = {
        "data": "digits", "image_size": SIDE, "backbone": BACKBONE, "batch_size": BATCH,
        "epochs": 3,
    }  # fmt: skip
    values = {"name": "tiny", "constants": constants, "heads": ["default"]}
    score = {"images": 128, "view_images": 32, "repeats": 0, "scores": ["rankme"]}
    return from_values(values | {"seeds": list(range(runs)), "score": score} | changes)


def together(*commands: list[str]) -> float:
    """Seconds until the last of some processes has ended."""
    began = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for process in [subprocess.Popen(command, env=ONE_THREAD, **quiet) for command in commands]:
        if process.wait():
            raise SystemExit(f"{' '.join(process.args[:6])} … ended with {process.returncode}")
    return time.perf_counter() - began


def bare(steps: int) -> list[str]:
    return [sys.executable, "-c", BARE, str(steps)]


def run(store: Store, *options: str) -> list[str]:
    return [sys.executable, "-m", "radial", "study", "run", str(store.path), *options]


def worker(store: Store, limit: int) -> list[str]:
    """One worker process that executes ``limit`` runs."""
    command = [sys.executable, "-m", "radial.study.worker", str(store.path), "--session", "bench"]
    return [*command, "--threads", "1", "--limit", str(limit)]


def trained(store: Store) -> float:
    """Seconds that were spent in epochs."""
    return sum(json.loads(p.read_text())["seconds"] for p in store.path.glob("runs/*/result.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="fewer are a trial: no file")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-ray", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:

        def new(made: Study) -> Store:
            store = Store(Path(tempfile.mkdtemp(dir=place)) / "study")
            store.create(made)
            return store

        def timed(*arguments: str) -> float:
            return together(run(new(study(options.runs)), "--threads", "1", *arguments))

        together(bare(1))  # what is read once is in the page cache
        steps = 100
        some = together(bare(steps)) - together(bare(1))
        first = timed("--workers", "1")
        steps = 2 * max(1, round(steps * first / some / 2))  # as long as the study takes
        seconds: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for name, taken in (
                ("one worker", timed("--workers", "1")),
                ("two workers", timed("--workers", "2")),
                ("one process", together(bare(steps))),
                ("two processes", together(bare(steps // 2), bare(steps // 2))),
            ):
                seconds.setdefault(name, []).append(taken)
        if not options.no_ray:
            seconds["Ray, two tasks"] = [timed("--executor", "ray", "--cpus", "1")]
        medians = {name: statistics.median(taken) for name, taken in seconds.items()}
        print(f"{options.runs} runs, one thread each, median of {options.rounds}")
        for name, value in medians.items():
            print(f"  {name:16}{value:8.1f} s")
        gain = medians["one worker"] / medians["two workers"]
        of_torch = medians["one process"] / medians["two processes"]
        print(f"  a second worker gains {gain:.3f}x, a second torch process {of_torch:.3f}x")
        verdict("of the gain of two bare torch processes", gain / of_torch, least=0.95)
        plain = {"score": False, "evaluate": False}
        alone, three = new(study(1, **plain)), new(study(3, **plain))
        fresh = together(worker(alone, 1)) - trained(alone)
        more = (together(worker(three, 3)) - trained(three) - fresh) / 2
        print(f"  beside its epochs, a run in a new process costs {fresh:.1f} s (imports, data,")
        print(f"  building, checkpoint), each further run of that worker {more:.2f} s")
        figures = {"seconds": medians, "rounds": seconds, "gain": gain, "bare gain": of_torch}
        if options.runs != RUNS:
            return
        record("study", figures | {"overhead": {"first run": fresh, "further run": more}})


if __name__ == "__main__":
    main()
