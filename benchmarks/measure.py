"""What the benchmarks share: interleaved timing, allocated memory, verdicts, and their record."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # read when torch is loaded: a quiet profiler

import torch
from torch import Tensor

MIB = 2.0**20
ROOT = Path(__file__).parents[1]
GOALS: list[dict[str, Any]] = []  # what verdict() said, for record()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A forward pass and, if there are leaves, the backward pass that fills their gradients."""

    forward: Callable[[], Tensor]
    leaves: Sequence[Tensor] = ()
    cotangent: Tensor | None = None

    def prepare(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None

    def run(self) -> None:
        if self.leaves:
            self.forward().backward(self.cotangent)
        else:
            with torch.no_grad():
                self.forward()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Bytes allocated in one run, at the highest point and in all, and the run's seconds."""

    peak: int
    total: int
    seconds: float


def seconds(task: Task) -> float:
    task.prepare()
    start = time.perf_counter()
    task.run()
    return time.perf_counter() - start


def median_seconds(tasks: Mapping[str, Task], rounds: int) -> dict[str, float]:
    """Every round runs each task once, beginning one further on; the first round is discarded."""
    names = list(tasks)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds + 1):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(tasks[name]))
    return {name: statistics.median(all_times[1:]) for name, all_times in times.items()}


def usage(task: Task) -> Usage:
    """What torch's allocator handed out in one run: inputs and parameters not included."""
    task.prepare()
    with torch.profiler.profile(profile_memory=True) as prof:
        start = time.perf_counter()
        task.run()
        elapsed = time.perf_counter() - start
    live = peak = total = 0
    for event in prof.profiler.kineto_results.events():
        if event.name() == "[memory]":
            size = event.nbytes()  # negative when freed
            live += size
            peak = max(peak, live)
            total += max(size, 0)
    return Usage(peak=peak, total=total, seconds=elapsed)


def verdict(goal: str, value: float, *, most: float | None = None, least: float = 0.0) -> None:
    """Print whether the value keeps to its limit, and the factor between the two."""
    holds = value >= least if most is None else value <= most
    limit = {"least": least} if most is None else {"most": most}
    GOALS.append({"goal": goal, "value": value, **limit, "holds": holds})
    factor = least / value if most is None else value / most
    spare = 1 / factor if factor else math.inf
    margin = f"{spare:.3g}x to spare" if holds else f"by a factor of {factor:.3g}"
    print(f"  {'HOLDS ' if holds else 'MISSED'}  {goal}: {value:.4g}, {margin}")


def record(name: str, figures: Mapping[str, Any]) -> Path:
    """Write results/NAME.json: figures and verdicts, and what is needed to have them again."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    packages = ("radial-ssl", "torch", "numpy", "scipy", "scikit-learn")
    script, *arguments = ("FOLDER" if Path(word).is_dir() else word for word in sys.argv)
    content = {
        "command": " ".join(["python", f"benchmarks/{Path(script).name}", *arguments]),
        "commit": commit or None,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),  # others at work: read ratios with care
        "figures": figures,
        "goals": GOALS,
    }
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\nwritten: {path.relative_to(ROOT)}")
    return path
