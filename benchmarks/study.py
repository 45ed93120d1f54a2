"""Many tiny runs: two workers against one, Ray against local, and what a run costs beside itself.

    python benchmarks/study.py            # some five minutes on two quiet cores

Each worker has one thread. A run is SimCLR on digits at 16 px, with evaluation and one score.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import verdict

from radial.study.plan import Study, from_values
from radial.study.store import Store

GOAL = 1.7  # two workers against one


def study(runs: int, **changes: object) -> Study:
    constants = {
        "data": "digits", "image_size": 16, "backbone": "resnet9-w0.125", "batch_size": 128,
        "epochs": 3,
    }  # fmt: skip
    values = {"name": "tiny", "constants": constants, "heads": ["default"]}
    score = {"images": 128, "view_images": 32, "repeats": 0, "scores": ["rankme"]}
    return from_values(values | {"seeds": list(range(runs)), "score": score} | changes)


def timed(store: Store, *options: str) -> float:
    """Seconds of `radial study run`, everything included."""
    command = [sys.executable, "-m", "radial", "study", "run", str(store.path), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def worker(store: Store, limit: int) -> float:
    """Seconds of one worker process that executes ``limit`` runs."""
    command = [sys.executable, "-m", "radial.study.worker", str(store.path), "--session", "bench"]
    command += ["--threads", "1", "--limit", str(limit)]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def trained(store: Store) -> float:
    """Seconds that were spent in epochs."""
    return sum(json.loads(p.read_text())["seconds"] for p in store.path.glob("runs/*/result.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--no-ray", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:

        def new(name: str, made: Study) -> Store:
            store = Store(Path(place) / name)
            store.create(made)
            return store

        print(f"{options.runs} runs, one thread each")
        one = timed(new("one", study(options.runs)), "--workers", "1", "--threads", "1")
        two = timed(new("two", study(options.runs)), "--workers", "2", "--threads", "1")
        again = timed(new("again", study(options.runs)), "--workers", "1", "--threads", "1")
        print(f"  one worker {one:.1f} s and {again:.1f} s, two workers {two:.1f} s")
        verdict("two workers against one", (one + again) / 2 / two, least=GOAL)
        if not options.no_ray:
            ray = timed(new("ray", study(options.runs)), "--executor", "ray", "--cpus", "1")
            print(f"  Ray, two tasks at a time: {ray:.1f} s, {ray / two:.2f} times local")
        bare = {"score": False, "evaluate": False}
        first, both = new("first", study(1, **bare)), new("both", study(3, **bare))
        fresh = worker(first, 1) - trained(first)
        more = (worker(both, 3) - trained(both) - fresh) / 2
        print(f"  beside its epochs, a run in a new process costs {fresh:.1f} s (imports, data,")
        print(f"  building, checkpoint), each further run of that worker {more:.2f} s")


if __name__ == "__main__":
    main()
