"""How long until work begins: importing a head, and the first step of a worker of a study.

    python benchmarks/startup.py [--rounds 5]

Each is a new process, timed from outside in interleaved rounds: `import torch`, a head of radial's,
torch and one step of a small network, and a worker of a study until the first step of
its first run; alone, as on a cluster, and as the fork of a study's nursery, which has imported
everything before. Medians, written to results/startup.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import record, verdict

TORCH = "import torch"
HEAD = "from radial import RBFNProjectionHead"
STEP = """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.rand(256, 3, 32, 32)).square().mean().backward()
optimizer.step()
"""
WORKER = """
import sys
from pathlib import Path
from radial.study.plan import Study
from radial.study.store import Store
from radial.study.worker import Worker

store = Store(Path(sys.argv[1]))
settings = {"data": "digits", "epochs": 1, "compile": "off"}
store.create(Study(name="startup", constants=settings, heads={"default": {}}))
worker = Worker(store, session="startup", threads=1, tell=lambda line: None)

from radial.training.module import Run

def first_step_done(self, outputs, batch, step):
    import os
    os._exit(0)  # the measurement ends here

Run.on_train_batch_end = first_step_done
worker.work(limit=1)
raise SystemExit("no step was made")
"""
NURSERY = f"""
import importlib, os, sys, time
from radial.study.nursery import PRELOADED
for name in PRELOADED:
    importlib.import_module(name)
began = time.perf_counter()
if (pid := os.fork()) == 0:
    exec({WORKER!r})
if os.waitpid(pid, 0)[1]:
    sys.exit("the worker failed")
print(time.perf_counter() - began)
"""


def seconds(code: str, *arguments: str) -> float:
    """Of a process, or as it prints them."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", code, *arguments]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(said) if said else time.perf_counter() - begin


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="how long until work begins")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            for name, code in (
                ("import torch", TORCH),
                ("import a head", HEAD),
                ("torch and a step", STEP),
                ("a worker's first step", WORKER),
                ("a forked worker's first step", NURSERY),
            ):
                taken = seconds(code, str(Path(scratch) / f"{name}-{number}"))
                times.setdefault(name, []).append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, value in medians.items():
        print(f"  {name:<30}{value:>8.2f} s")
    torch, head, step, worker, forked = medians.values()
    verdict("from radial import RBFNProjectionHead / import torch", head / torch, most=1.15)
    verdict("a new worker's first step, s beyond torch's and one step", worker - step, most=4.0)
    verdict("a further worker's of the pool, s beyond that", forked - step, most=4.0)
    record("startup", {"seconds": medians, "rounds": times})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
